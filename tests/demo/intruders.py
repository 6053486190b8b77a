"""Those who must not get in, each with everything that such an attacker would have."""

import base64
import secrets
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

from common.csr import build_pkcs10
from common.names import CLIENT_SIGNER
from tests.demo.environment import Stage, require
from tests.harness.client import Client
from tests.harness.node import Node
from tests.harness.objects import Machine
from tests.harness.process import wait_until

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


def stranger(stage: Stage, victim: Node) -> None:
    """Ask for the victim's name and provider ID, with another TPM of the same vendor."""
    thief = stage.boot_machine(victim.tenant, victim.name, seed="stranger")
    _expect(stage, thief, "EndorsementKeyMismatch")


def thief(stage: Stage, victim: Node) -> None:
    """File a bare request with a stolen token, as kubeadm's own bootstrap would."""
    workload = victim.tenant.workload
    attacker = workload.with_token(workload.bootstrap_token())
    denied = _file(attacker, victim)
    _tell(stage, denied, "PemBlocksUnexpected")


def impostor(stage: Stage, victim: Node) -> None:
    """Ask for the victim's name, as a machine of the cluster with its own TPM on record."""
    tenant = victim.tenant
    node = stage.boot_machine(tenant, "worker-2", seed="impostor")
    stage.fleet.add_machine(tenant, Machine("worker-2", annotations=node.registration()))
    node.name = victim.name
    _expect(stage, node, "NodeNameMismatch")


def _expect(stage: Stage, node: Node, reason: str) -> None:
    """Run the plugin, which has to fail with the signer's reason."""
    call = node.call()
    refused = call.status != 0 and reason in call.complaint
    require(refused, f"expected {reason}, not {call.status}: {call.complaint}")
    stage.story.tell("the plugin says:")
    stage.story.quote(call.complaint)


def _file(attacker: Client, victim: Node) -> dict[str, Any]:
    """File a request without attestation, and return it when the signer has decided."""
    der = build_pkcs10(
        generate_private_key(SECP256R1()), node_name=victim.name, provider_id=victim.provider_id
    )
    body = base64.encodebytes(der).decode().replace("\n", "")
    lines = [body[i : i + 64] for i in range(0, len(body), 64)]
    pem = "\n".join(
        ["-----BEGIN CERTIFICATE REQUEST-----", *lines, "-----END CERTIFICATE REQUEST-----", ""]
    )
    name = f"kubelet-tpm-{secrets.token_hex(16)}"
    attacker.create(
        REQUESTS,
        {
            "metadata": {"name": name},
            "spec": {
                "signerName": CLIENT_SIGNER,
                "request": base64.b64encode(pem.encode()).decode(),
                "usages": ["digital signature", "client auth"],
            },
        },
    )

    def conditions() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = attacker.get(f"{REQUESTS}/{name}")["status"].get(
            "conditions", []
        )
        return found

    wait_until(lambda: bool(conditions()), what="the signer has decided")
    return conditions()[0]


def _tell(stage: Stage, condition: dict[str, Any], reason: str) -> None:
    denied = (condition["type"], condition["reason"]) == ("Denied", reason)
    require(denied, f"expected {reason}, not {condition}")
    stage.story.tell("the signer says:")
    stage.story.quote(f"{condition['type']}: {condition['reason']}: {condition['message']}")
