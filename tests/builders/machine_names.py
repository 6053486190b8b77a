"""Endorsement certificates that name a machine, as Google and swtpm_localca write them."""

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from common.names import PROVIDER_ID_OID
from common.public_keys import PublicKey
from tests.builders.certificates import NOW, Issuer, leaf_extensions, name
from tests.builders.der import BOOLEAN, CONTEXT_CONSTRUCTED, INTEGER, SEQUENCE, UTF8_STRING, encode

PROJECT, ZONE, INSTANCE = "example.com:team-a", "europe-west3-b", "worker-1"
GCE_ID = f"gce://{PROJECT}/{ZONE}/{INSTANCE}"
UUID = "5f0b6a3e-1d2c-4c1b-9a5e-3b1f0c2d4e5f"
OPENSTACK_ID = f"openstack:///{UUID}"


def security_properties(*, production: bytes = b"\xff") -> bytes:
    """Return the last member of Google's extension: security version and isProduction."""
    version = encode(CONTEXT_CONSTRUCTED, encode(INTEGER, b"\0"))
    flag = encode(CONTEXT_CONSTRUCTED | 1, encode(BOOLEAN, production))
    return encode(CONTEXT_CONSTRUCTED, encode(SEQUENCE, version + flag))


def gce_members(zone: str = ZONE, project: str = PROJECT, instance: str = INSTANCE) -> list[bytes]:
    """Return the members of Google's extension."""
    return [
        encode(UTF8_STRING, zone.encode()),
        encode(INTEGER, b"\x12"),
        encode(UTF8_STRING, project.encode()),
        encode(INTEGER, b"\x34"),
        encode(UTF8_STRING, instance.encode()),
        security_properties(),
    ]


def gce_extension(members: list[bytes] | None = None) -> bytes:
    """Return the value of Google's extension."""
    return encode(SEQUENCE, b"".join(gce_members() if members is None else members))


def named_leaf(
    issuer: Issuer, key: PublicKey, *, common_name: str = "", extension: bytes | None = None
) -> bytes:
    """Make an endorsement certificate with a common name, or with Google's extension, DER."""
    builder = (
        x509.CertificateBuilder()
        .issuer_name(issuer.certificate.subject)
        .subject_name(name(common_name) if common_name else x509.Name([]))
        .public_key(key)
        .serial_number(7)
        .not_valid_before(NOW)
        .not_valid_after(NOW.replace(year=NOW.year + 10))
    )
    for standard, critical in leaf_extensions(key).items():
        builder = builder.add_extension(standard, critical=critical)
    if extension is not None:
        kind = x509.ObjectIdentifier(PROVIDER_ID_OID)
        builder = builder.add_extension(x509.UnrecognizedExtension(kind, extension), critical=False)
    certificate = builder.sign(issuer.key, hashes.SHA256())
    return certificate.public_bytes(Encoding.DER)
