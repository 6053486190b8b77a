"""What an API server says about the client certificate with which a CSR was filed."""

import base64
import secrets
from hashlib import sha256

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from common.csr import build_pkcs10, encode_request
from common.names import CLIENT_SIGNER
from tests.harness.client import Client, Object
from tests.harness.fleet import Fleet
from tests.harness.pki import ec_key
from tests.integration.csrs import CSRS

CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"


def file_request(client: Client, **extra: list[str]) -> Object:
    """File a CSR of our signer, and return it as the API server stored it."""
    request = build_pkcs10(ec_key(), node_name="credential", provider_id="metal://credential")
    return client.create(
        CSRS,
        {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": f"credential-{secrets.token_hex(8)}"},
            "spec": {
                "request": base64.b64encode(encode_request(request, b"{}")).decode(),
                "signerName": CLIENT_SIGNER,
                "usages": ["client auth", "digital signature"],
                "extra": extra,
            },
        },
    )


def test_csr_has_the_digest_of_the_certificate_that_filed_it(fleet: Fleet) -> None:
    """In lower-case hex, over the DER form, and only once, whatever the requester writes itself."""
    node = fleet.first.workload.client("system:node:credential", "system:nodes")
    assert node.certificate is not None
    pem = x509.load_pem_x509_certificate(node.certificate[0].read_bytes())
    digest = sha256(pem.public_bytes(Encoding.DER)).hexdigest()
    spec = file_request(node, **{CREDENTIAL_ID: ["X509SHA256=forged"], "other": ["x"]})["spec"]
    assert spec["extra"] == {CREDENTIAL_ID: [f"X509SHA256={digest}"]}


def test_csr_of_a_bootstrap_token_has_no_credential_id(fleet: Fleet) -> None:
    workload = fleet.first.workload
    spec = file_request(workload.with_token(workload.bootstrap_token()))["spec"]
    assert CREDENTIAL_ID not in spec.get("extra", {})
