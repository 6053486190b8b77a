"""The exchange as the API server stores it: the requester of each CSR, and the verdict."""

import base64
import secrets
from typing import Any

from cryptography import x509

from common import evidence
from common.names import CLIENT_SIGNER, PENDING_REASON_ANNOTATION
from common.requests.csr import decode_request
from tests.harness.client import Client
from tests.harness.node import Node
from tests.harness.process import wait_until

CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
ATTESTED_NODES = "/apis/attestation.cluster.x-k8s.io/v1alpha1/namespaces/{}/attestednodes"

ENDORSEMENT_KEYS = "/apis/attestation.cluster.x-k8s.io/v1alpha1/endorsementkeys"


def of_node(node: Node) -> list[dict[str, Any]]:
    """Return all attested CSRs for a node's name."""
    return [
        csr
        for csr in node.tenant.workload.admin.list(CSRS)
        if csr["spec"]["signerName"] == CLIENT_SIGNER and f"system:node:{node.name}" == subject(csr)
    ]


def subject(csr: dict[str, Any]) -> str:
    """Return the common name that a CSR requests."""
    first = request(csr).partition(b"-----END CERTIFICATE REQUEST-----\n")
    pkcs10 = x509.load_pem_x509_csr(first[0] + first[1])
    [name] = pkcs10.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return str(name.value)


def request(csr: dict[str, Any]) -> bytes:
    """Return `spec.request`."""
    return base64.b64decode(csr["spec"]["request"])


def content(csr: dict[str, Any]) -> evidence.Offer | evidence.Answer:
    """Return the attestation data of a CSR."""
    return evidence.decode_attestation_data(decode_request(request(csr))[1])


def offers(node: Node) -> list[dict[str, Any]]:
    """Return the node's offers."""
    return [csr for csr in of_node(node) if isinstance(content(csr), evidence.Offer)]


def answers(node: Node) -> list[dict[str, Any]]:
    """Return the node's answers."""
    return [csr for csr in of_node(node) if isinstance(content(csr), evidence.Answer)]


def new_name() -> str:
    """Return a CSR name of the form that nodes choose."""
    return f"kubelet-tpm-{secrets.token_hex(16)}"


def file(client: Client, data: bytes, *, name: str = "", **spec: object) -> str:
    """File a CSR, by default under a new name, and return the name."""
    name = name or new_name()
    whole = {
        "signerName": CLIENT_SIGNER,
        "usages": ["client auth", "digital signature"],
        "request": base64.b64encode(data).decode(),
        **spec,
    }
    client.create(CSRS, {"metadata": {"name": name}, "spec": whole})
    return name


def conditions(client: Client, name: str) -> dict[str, str]:
    """Return reasons by condition type."""
    status = client.get(f"{CSRS}/{name}").get("status", {})
    return {c["type"]: c["reason"] for c in status.get("conditions", [])}


def decided(client: Client, name: str) -> dict[str, str]:
    """Wait for the verdict on a CSR, and return its conditions."""
    wait_until(lambda: bool(conditions(client, name)), what=f"a verdict on {name}")
    return conditions(client, name)


def certificate(client: Client, name: str) -> bytes:
    """Return a CSR's certificate as PEM, empty while it has none."""
    status = client.get(f"{CSRS}/{name}").get("status", {})
    return base64.b64decode(status.get("certificate", ""))


def annotated(client: Client, name: str, key: str) -> str:
    """Wait for an annotation on a CSR, and return its value.

    The signer verifies a waiting CSR each minute at least.
    """
    wait_until(lambda: bool(_annotation(client, name, key)), what=f"{key} on {name}", seconds=90)
    return _annotation(client, name, key)


def waiting_for(client: Client, name: str, reason: str) -> str:
    """Wait until a CSR waits for this reason, and return the whole annotation.

    It may have waited for another reason before: the signer watches Machines and CSRs on two API
    servers, and their order is not defined.
    """
    wait_until(lambda: is_waiting_for(client, name, reason), what=f"{name} waits for {reason}")
    return _annotation(client, name, PENDING_REASON_ANNOTATION)


def is_waiting_for(client: Client, name: str, reason: str) -> bool:
    """Return whether a CSR waits for this reason."""
    return _annotation(client, name, PENDING_REASON_ANNOTATION).startswith(f"{reason}: ")


def _annotation(client: Client, name: str, key: str) -> str:
    value: str = client.get(f"{CSRS}/{name}")["metadata"].get("annotations", {}).get(key, "")
    return value


def claim(node: Node, management: Client) -> dict[str, Any]:
    """Return the spec of the node's AttestedNode."""
    path = ATTESTED_NODES.format(node.tenant.namespace)
    [value] = [
        each["spec"]
        for each in management.list(path)
        if (each["spec"]["clusterName"], each["spec"]["nodeName"]) == (node.tenant.name, node.name)
    ]
    result: dict[str, Any] = value
    return result


def held(node: Node, management: Client) -> dict[str, Any]:
    """Return `heldBy` of the EndorsementKey in the node's AttestedNode."""
    key = claim(node, management)["endorsementKey"]
    result: dict[str, Any] = management.get(f"{ENDORSEMENT_KEYS}/{key}")["spec"]["heldBy"]
    return result
