"""The certificates of nodes: their IDs, clients with them, and certificates of other times."""

from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from authenticator.model import KeyPair
from authenticator.state import credential
from common.requests.csr import node_subject
from tests.harness.client import ApiError, Client
from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.harness.pki import Authority, ec_key, key_pem
from tests.integration import csrs

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
ENDED = "the client certificate has ended"


def credential_id(pem: bytes) -> str:
    """Return the ID of a certificate as Kubernetes documents it."""
    certificate = x509.load_pem_x509_certificate(pem)
    return f"X509SHA256={sha256(certificate.public_bytes(Encoding.DER)).hexdigest()}"


def joined(machines: Machines) -> tuple[Node, str]:
    """Join a node, and return it with the ID of its certificate."""
    node = machines.registered()
    return node, credential_id(node.call().certificate.encode())


def renewed(node: Node) -> str:
    """Renew the certificate of a node, and return the ID of the new one."""
    assert node.call("renew", "--kubeconfig", str(node.kubeconfig())).status == 0
    return credential_id(node.call().certificate.encode())


def with_stolen_authority(node: Node) -> Client:
    """Return a client in the name of the node, with a certificate that the signer did not issue."""
    return node.tenant.workload.client(f"system:node:{node.name}", "system:nodes")


def client_of(node: Node) -> Client:
    """Return a client with the present certificate of a node."""
    credential = node.call().credential
    number = len(list(node.directory.glob("kubelet-*.crt")))
    files = (
        node.directory / f"kubelet-{number}.crt",
        node.directory / f"kubelet-{number}.key",
    )
    for file, name in zip(files, ("clientCertificateData", "clientKeyData"), strict=True):
        file.write_text(credential[name])
    workload = node.tenant.workload
    return Client(server=workload.url, authority=workload.admin.authority, certificate=files)


def is_refused(client: Client, name: str, reason: str = ENDED) -> bool:
    """Write the lease of a node as its kubelet does; return whether the policy refuses it."""
    lease: dict[str, Any] = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40},
    }
    try:
        client.apply(f"{LEASES}/{name}", lease)
    except ApiError as error:
        if reason in str(error):
            return True
        raise
    return False


def ban(node: Node, management: Client) -> None:
    """Ban the key of a node, as `kubectl attestation ban` does."""
    key = csrs.claim(node, management)["endorsementKey"]
    banned = {"reason": "stolen", "by": "test", "since": "2026-11-22T00:00:00Z"}
    management.patch(f"{csrs.ENDORSEMENT_KEYS}/{key}", {"spec": {"banned": banned}})


DAY = 24 * 3600


def let_token_run_out(node: Node) -> None:
    """Leave it a token that the API server does not know, like one deleted at its expiry."""
    node.give_token("abcdef.0123456789abcdef")


def hold(node: Node, authority: Authority, began: float, ends: float) -> None:
    """Give the node another certificate, of this authority and for this time."""
    key = ec_key()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(node_subject(node.name))
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.fromtimestamp(began, UTC))
        .not_valid_after(datetime.fromtimestamp(ends, UTC))
        .sign(authority.key, hashes.SHA256())
    )
    path = node.state / "credential.pem"
    replaced = replace(
        credential.decode(path.read_bytes()),
        key_pair=KeyPair(certificate=certificate.public_bytes(Encoding.PEM), key=key_pem(key)),
        not_before=int(began),
        not_after=int(ends),
        received_at=int(began),
    )
    path.write_bytes(credential.encode(replaced))
