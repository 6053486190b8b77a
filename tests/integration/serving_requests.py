"""Requests to the built-in signer in the way the kubelet files them, and their certificates."""

import ipaddress
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from common.names import BUILTIN_SERVING_SIGNER
from common.requests.csr import node_subject
from tests.harness.client import Client
from tests.harness.process import wait_until
from tests.integration import csrs

Names = Sequence[str]
"""Addresses where the text is an IP address, DNS names otherwise."""


def general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def ask(client: Client, node_name: str, names: Names) -> str:
    """File a request to the built-in signer, in the way the kubelet does, and return its name."""
    alternatives = x509.SubjectAlternativeName(map(general_name, names))
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(node_subject(node_name))
        .add_extension(alternatives, critical=False)
        .sign(generate_private_key(SECP256R1()), hashes.SHA256())
    )
    return csrs.file(
        client,
        request.public_bytes(Encoding.PEM),
        signerName=BUILTIN_SERVING_SIGNER,
        usages=["digital signature", "server auth"],
    )


def certified(client: Client, name: str) -> x509.Certificate:
    """Wait for the certificate of a request that was approved."""
    wait_until(lambda: bool(csrs.certificate(client, name)), what="a certificate")
    assert csrs.conditions(client, name) == {"Approved": "Attested"}
    return x509.load_pem_x509_certificate(csrs.certificate(client, name))


def named(certificate: x509.Certificate) -> set[str]:
    """Return the names in a serving certificate."""
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = map(str, names.get_values_for_type(x509.IPAddress))
    return {*names.get_values_for_type(x509.DNSName), *addresses}
