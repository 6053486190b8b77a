"""Certificate signing requests without attestation, for tests that need any request."""

import base64

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from tests.harness import pki
from tests.harness.client import Client, Object

CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
CLIENT_SIGNER = "cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm"


def request(node: str, *, alternatives: tuple[str, ...] = ()) -> str:
    """Return a node's PKCS#10 request in the encoding of the API."""
    subject = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
        x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node}"),
    ]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    if alternatives:
        names = x509.SubjectAlternativeName([x509.DNSName(name) for name in alternatives])
        builder = builder.add_extension(names, critical=False)
    signed = builder.sign(pki.ec_key(), hashes.SHA256())
    return base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()


def csr(name: str, *, signer: str = CLIENT_SIGNER, usage: str = "client auth") -> Object:
    """Return a request of a node named node-1."""
    alternatives = () if usage == "client auth" else ("node-1",)
    return {
        "metadata": {"name": name},
        "spec": {
            "request": request("node-1", alternatives=alternatives),
            "signerName": signer,
            "usages": ["digital signature", usage],
        },
    }


def approve(client: Client, name: str) -> None:
    """Approve a request in the way a controller does."""
    condition = {"type": "Approved", "status": "True", "reason": "Test", "message": "by a test"}
    client.patch(f"{CSRS}/{name}/approval", {"status": {"conditions": [condition]}})
