"""PKCS#10 requests that no honest node creates, built part by part and signed.

A test changes one part. The request is refused for that part and not for its signature.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

SEQUENCE, SET, OCTETS, UTF8, PRINTABLE = 0x30, 0x31, 0x04, 0x0C, 0x13
OID_CN, OID_O = "0603550403", "060355040a"
OID_PROVIDER_ID = "060a2b06010401d679020115"
OID_SAN = "0603551d11"
OID_KEY_USAGE = "0603551d0f"
OID_EXTENSION_REQUEST = "06092a864886f70d01090e"
ECDSA_SHA256 = "300a06082a8648ce3d040302"
RSA_SHA256 = "300d06092a864886f70d01010b0500"
VERSION_1 = "020100"
TRUE, FALSE = "0101ff", "010100"

KEY = ec.derive_private_key(0x1234567, ec.SECP256R1())


def tlv(tag: int, *parts: bytes | str) -> bytes:
    """Encode one DER value from bytes and hex strings."""
    content = b"".join(bytes.fromhex(p) if isinstance(p, str) else p for p in parts)
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 + len(length)]) + length + content


def attribute(oid: str, text: bytes, tag: int = UTF8) -> bytes:
    """Encode an AttributeTypeAndValue."""
    return tlv(SEQUENCE, oid, tlv(tag, text))


def rdn(*attributes: bytes) -> bytes:
    """Encode a RelativeDistinguishedName, sorted as in DER."""
    return tlv(SET, *sorted(attributes))


ORGANIZATION = attribute(OID_O, b"system:nodes")


def common_name(name: bytes) -> bytes:
    """Encode the CN of a node."""
    return attribute(OID_CN, b"system:node:" + name)


def subject(*rdns: bytes) -> bytes:
    """Encode a Name."""
    return tlv(SEQUENCE, *rdns)


def extension(oid: str, value: bytes, *critical: str) -> bytes:
    """Encode an Extension, with criticality only if given."""
    return tlv(SEQUENCE, oid, *critical, tlv(OCTETS, value))


PROVIDER_ID = extension(OID_PROVIDER_ID, tlv(UTF8, b"test:///zone-a/i-1"))


def alt_names(*names: bytes) -> bytes:
    """Encode the extension with these GeneralNames."""
    return extension(OID_SAN, tlv(SEQUENCE, *names))


def extension_request(*extensions: bytes) -> bytes:
    """Encode the attribute extensionRequest."""
    values = tlv(SET, tlv(SEQUENCE, *extensions))
    return tlv(SEQUENCE, OID_EXTENSION_REQUEST, values)


def spki_of(key: CertificateIssuerPrivateKeyTypes) -> bytes:
    """Return the key's SubjectPublicKeyInfo."""
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgery:
    """A good request, except for its changed fields."""

    version: str = VERSION_1
    subject: bytes = subject(rdn(ORGANIZATION), rdn(common_name(b"worker-1")))
    attributes: tuple[bytes, ...] = (extension_request(PROVIDER_ID),)
    algorithm: str = ECDSA_SHA256
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey = field(default=KEY)
    spki: bytes | None = None
    trailing: bytes = b""
    """Elements after the signature."""
    sign: Callable[[bytes], bytes] | None = None
    """Replaces the signature by `key` with SHA-256."""

    def der(self) -> bytes:
        """Sign and encode the request."""
        spki = self.spki or spki_of(self.key)
        info = tlv(SEQUENCE, self.version, self.subject, spki, tlv(0xA0, *self.attributes))
        signature = tlv(0x03, b"\0", self._sign(info))
        return tlv(SEQUENCE, info, self.algorithm, signature, self.trailing)

    def _sign(self, info: bytes) -> bytes:
        if self.sign is not None:
            return self.sign(info)
        if isinstance(self.key, rsa.RSAPrivateKey):
            return self.key.sign(info, padding.PKCS1v15(), hashes.SHA256())
        return self.key.sign(info, ec.ECDSA(hashes.SHA256()))
