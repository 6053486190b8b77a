"""Looks at a certificate before it leaves, at the very bytes that are written (I1).

It shares no code with the modules that build certificates. The caller takes what it expects from
the request and from the verdict.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from common.formats.der import SEQUENCE, encode
from common.formats.pem import decode_blocks
from signer.errors import CertificateNotAsVerified

_LABEL: Final = "CERTIFICATE"
_NO_CA: Final = True, "3000"
_SIGNATURE: Final = True, "03020780"
_SIGNATURE_AND_ENCIPHERMENT: Final = True, "030205a0"
_SERVER_AUTH: Final = False, "300a06082b06010505070301"
_CLIENT_AUTH: Final = False, "300a06082b06010505070302"
"""Whether an extension is critical, and its value in DER."""
_DNS_NAME: Final = 0x82
_IP_ADDRESS: Final = 0x87
"""Tags of a GeneralName (RFC 5280 section 4.2.1.6)."""
_SERIAL_BITS: Final = range(64, 160)
"""Random, positive, and of 20 bytes at most (RFC 5280 section 4.1.2.2)."""
_UNREADABLE: Final = (ValueError, TypeError, InvalidSignature, x509.InvalidVersion)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedCertificate:
    """What request and verdict say about a certificate."""

    node_name: str
    organizations: Sequence[str]
    """Each of them once, in any order: to an API server, each is a group."""
    public_key: bytes
    """SubjectPublicKeyInfo of the request, in DER."""
    serving_names: Sequence[str | IPv4Address | IPv6Address] | None
    """In this order. `None` for a client certificate, which has no names."""
    authority: x509.Certificate
    latest_end: datetime
    """What policy and request allow."""


def lint_certificate(pem: bytes, expected: ExpectedCertificate, now: datetime) -> None:
    """Raise `CertificateNotAsVerified` unless the certificate is exactly the expected one."""
    try:
        ((label, der),) = decode_blocks(pem)
        certificate = x509.load_der_x509_certificate(der)
        certificate.verify_directly_issued_by(expected.authority)
        wrong = [] if label == _LABEL else ["PEM label"]
        wrong += [rule for rule, holds in _rules(certificate, expected, now) if not holds]
    except _UNREADABLE as error:
        raise _failure(str(error) or type(error).__name__) from error
    if wrong:
        raise _failure(", ".join(wrong))


def _rules(
    certificate: x509.Certificate, expected: ExpectedCertificate, now: datetime
) -> Iterator[tuple[str, bool]]:
    """Yield each rule, and whether the certificate keeps it."""
    key, authority = certificate.public_key(), expected.authority
    starts, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    subject = [(a.oid.dotted_string, a.value) for a in certificate.subject]
    organizations = [("2.5.4.10", name) for name in expected.organizations]
    common_name = "2.5.4.3", f"system:node:{expected.node_name}"
    yield "subject", sorted(subject) == sorted([*organizations, common_name])
    yield "serial number", certificate.serial_number.bit_length() in _SERIAL_BITS
    yield "start", authority.not_valid_before_utc <= starts <= now
    yield "end", now < ends <= min(expected.latest_end, authority.not_valid_after_utc)
    spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    yield "public key", spki == expected.public_key
    extensions = {
        extension.oid.dotted_string: (extension.critical, extension.value.public_bytes().hex())
        for extension in certificate.extensions
    }
    yield "basic constraints", extensions.pop("2.5.29.19", None) == _NO_CA
    usage = _SIGNATURE_AND_ENCIPHERMENT if isinstance(key, rsa.RSAPublicKey) else _SIGNATURE
    yield "key usage", extensions.pop("2.5.29.15", None) == usage
    usage = _CLIENT_AUTH if expected.serving_names is None else _SERVER_AUTH
    yield "extended key usage", extensions.pop("2.5.29.37", None) == usage
    identifier = extensions.pop("2.5.29.35", None)
    yield "authority key identifier", identifier is not None and not identifier[0]
    names = None if expected.serving_names is None else (False, _names(expected.serving_names))
    yield "names", extensions.pop("2.5.29.17", None) == names
    yield "other extensions", not extensions


def _names(names: Sequence[str | IPv4Address | IPv6Address]) -> str:
    """Return the extension SubjectAltName that has exactly these names."""
    encoded = [
        encode(_DNS_NAME, name.encode("ascii"))
        if isinstance(name, str)
        else encode(_IP_ADDRESS, name.packed)
        for name in names
    ]
    return encode(SEQUENCE, b"".join(encoded)).hex()


def _failure(detail: str) -> CertificateNotAsVerified:
    return CertificateNotAsVerified(
        "the signed certificate is not what was verified", detail=detail
    )
