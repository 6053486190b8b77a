"""The attackers of the demo, each with everything that it needs. The signer must deny each."""

import base64
import secrets
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

from common.names import CLIENT_SIGNER
from common.requests.csr import build_pkcs10
from tests.demo.environment import Stage, require
from tests.harness.client import Client
from tests.harness.node import Node
from tests.harness.objects import Machine
from tests.harness.process import wait_until

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


def stranger(stage: Stage, victim: Node) -> None:
    """Request the victim's name and provider ID with another TPM of the same vendor."""
    attacker = stage.boot_machine(victim.tenant, victim.name, seed="stranger")
    _expect_refusal(stage, attacker, "EndorsementKeyMismatch")


def thief(stage: Stage, victim: Node) -> None:
    """Create a CSR without attestation with a stolen token, as the kubelet's TLS bootstrap does."""
    workload = victim.tenant.workload
    attacker = workload.with_token(workload.bootstrap_token())
    condition = _create_plain_csr(attacker, victim)
    is_denied = (condition["type"], condition["reason"]) == ("Denied", "PemBlocksUnexpected")
    require(is_denied, f"expected PemBlocksUnexpected, not {condition}")
    stage.story.step("the signer denies the CSR:")
    stage.story.quote(f"{condition['type']}: {condition['reason']}: {condition['message']}")


def impostor(stage: Stage, victim: Node) -> None:
    """Request the victim's name as another machine of the cluster, whose TPM is registered."""
    tenant = victim.tenant
    node = stage.boot_machine(tenant, "worker-2", seed="impostor")
    stage.fleet.add_machine(tenant, Machine("worker-2", annotations=node.registration()))
    node.name = victim.name
    _expect_refusal(stage, node, "NodeNameMismatch")


def _expect_refusal(stage: Stage, node: Node, reason: str) -> None:
    """Run the plugin, which must fail with the signer's reason."""
    call = node.call()
    is_refused = call.status != 0 and reason in call.complaint
    require(is_refused, f"expected {reason}, not {call.status}: {call.complaint}")
    stage.story.step("the signer denies the CSR, and the plugin prints:")
    stage.story.quote(call.complaint)


def _create_plain_csr(attacker: Client, victim: Node) -> dict[str, Any]:
    """Create a CSR without attestation, and return its condition when the signer has decided."""
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
        status = attacker.get(f"{REQUESTS}/{name}")["status"]
        listed: list[dict[str, Any]] = status.get("conditions", [])
        return listed

    wait_until(lambda: bool(conditions()), what="the signer has decided")
    return conditions()[0]
