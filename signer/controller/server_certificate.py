"""A self-signed certificate for the address of the metrics, made at each start and kept in memory.

Its readers authenticate with a token and cannot verify this certificate, as with controller-runtime
without a certificate directory: it keeps tokens and metrics from those who only listen.
"""

import ssl
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from signer.kube.tls import load_chain

_NAME = "node-attestation-signer"
_LIFETIME = timedelta(days=3650)


def self_signed_context(now: datetime, serial_number: int) -> ssl.SSLContext:
    """Return a TLS server context with a new key and certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial_number)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(_NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    load_chain(context, (certificate.public_bytes(Encoding.PEM) + key_pem).decode())
    return context
