"""Certificates as they occur in TPMs: the fields that a policy judges, read with tolerance.

Real endorsement certificates are not all DER (sets out of order, defaults written out), and the
bytes around them in NV vary. OpenSSL builds and checks their chains; but its binding tells neither
extensions nor an OAEP key, so these are read here. Tolerance costs nothing: what is read is covered
by the signature of a configured authority before it counts.

Source: RFC 5280; RFC 4055 section 4.1 (OAEP keys); TCG PC Client Specific Implementation 1.2,
section 7.3 (stored certificates).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec, rsa

from common.public_keys import InvalidKey, canonical_spki
from signer.verify.x509.lenient_der import (
    BIT_STRING,
    BOOLEAN,
    INTEGER,
    OBJECT_IDENTIFIER,
    OCTET_STRING,
    SEQUENCE,
    CertificateMalformed,
    Element,
    bits,
    children,
    elements,
    oid,
    single_element,
)

__all__ = [
    "BasicConstraints",
    "CertificateMalformed",
    "Extension",
    "CertificateFields",
    "basic_constraints",
    "extract_certificate",
    "extended_key_usage",
    "certifies_key",
    "key_usage",
    "crl_extensions",
    "crl_issuer",
    "read_fields",
]

MAX_CERTIFICATE: Final = 16 * 1024
"""Bytes of one certificate; NV indices hold 2 KiB at most, authorities' take as much."""

_UTC_TIME: Final = 0x17
_TIME: Final = re.compile("[0-9]{14}Z")
_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_LIST_EXTENSIONS: Final = 0xA0

_STORED: Final = bytes.fromhex("1001")
_STORED_HEADER: Final = 7
"""TCG_PCCLIENT_STORED_CERT: tag, type and size, then the tag of the full certificate."""

_RSA_KEYS: Final = frozenset({"1.2.840.113549.1.1.1", "1.2.840.113549.1.1.7"})
"""rsaEncryption and id-RSAES-OAEP: one key under two names."""
_EC_KEY: Final = "1.2.840.10045.2.1"
_CURVES: Final[Mapping[str, ec.EllipticCurve]] = {
    "1.2.840.10045.3.1.7": ec.SECP256R1(),
    "1.3.132.0.34": ec.SECP384R1(),
    "1.3.132.0.35": ec.SECP521R1(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """One extension; `value` is what its OCTET STRING holds."""

    critical: bool
    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFields:
    """What a policy judges of a certificate; names are compared as they are written."""

    der: bytes
    tbs: bytes
    signature: bytes
    serial: int
    not_before: datetime
    not_after: datetime
    issuer: bytes
    subject: bytes
    signature_algorithms: tuple[str, str]
    """The one that is signed, and the one beside the signature."""
    public_key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey | None
    """`None` where it is of a kind that is not read here."""
    extensions: Mapping[str, Extension]


def extract_certificate(data: bytes) -> bytes:
    """Cut the certificate out of what was found in NV: header, wrapping and padding fall away.

    Raises CertificateMalformed.
    """
    if data.startswith(_STORED):
        data = data[_STORED_HEADER:]
    if data[:1] == bytes([OCTET_STRING]):
        data = next(elements(data[:MAX_CERTIFICATE]))[1]
    tag, _, whole = next(elements(data[:MAX_CERTIFICATE]), (0, b"", b""))
    if tag != SEQUENCE:
        raise CertificateMalformed("there is no certificate in it")
    return whole


def read_fields(der: bytes) -> CertificateFields:
    """Read the fields of one certificate, cut out already.

    Raises CertificateMalformed.
    """
    try:
        tbs, outer_algorithm, signature = children(single_element(der))
        fields = list(elements(tbs[1]))
        if fields[0][0] == _VERSION:
            fields = fields[1:]
        serial, algorithm, issuer, validity, subject, spki, *rest = fields
        not_before, not_after = (_time(element) for element in children(validity))
        extensions = next((content for tag, content, _ in rest if tag == _EXTENSIONS), b"")
        return CertificateFields(
            der=der,
            tbs=tbs[2],
            signature=bits(signature),
            not_before=not_before,
            not_after=not_after,
            serial=int.from_bytes(serial[1], "big", signed=True),
            issuer=issuer[2],
            subject=subject[2],
            signature_algorithms=(_algorithm(algorithm), _algorithm(outer_algorithm)),
            public_key=_public_key(spki),
            extensions=_extensions(extensions),
        )
    except (ValueError, IndexError, StopIteration) as error:
        # Too few or too many parts of anything end here as well
        raise CertificateMalformed("it is no X.509 certificate") from error


def crl_issuer(tbs: bytes) -> bytes:
    """Read the issuer of a revocation list that is one, as it is written."""
    _algorithm_of_signature, issuer, *_ = (
        part for part in children(single_element(tbs)) if part[0] == SEQUENCE
    )
    return issuer[2]


def crl_extensions(tbs: bytes) -> Mapping[str, Extension]:
    """Read the extensions of a revocation list that is one."""
    parts = children(single_element(tbs))
    return _extensions(next((content for tag, content, _ in parts if tag == _LIST_EXTENSIONS), b""))


def _algorithm(element: Element) -> str:
    return oid(children(element)[0])


def _time(element: Element) -> datetime:
    """Read a UTCTime or GeneralizedTime in the form of RFC 5280, section 4.1.2.5."""
    tag, content, _ = element
    text = content.decode("ascii")
    if tag == _UTC_TIME:
        # Two digits from 50 on are of the last century
        text = ("19" if text >= "50" else "20") + text
    if _TIME.fullmatch(text) is None:
        raise CertificateMalformed("a time is not one of RFC 5280")
    return datetime.fromisoformat(f"{text[:8]}T{text[8:]}")


def _public_key(spki: Element) -> rsa.RSAPublicKey | ec.EllipticCurvePublicKey | None:
    algorithm, key = children(spki)
    name, *parameters = children(algorithm)
    try:
        if oid(name) in _RSA_KEYS:
            modulus, exponent = (
                int.from_bytes(e[1], "big") for e in children(single_element(bits(key)))
            )
            return rsa.RSAPublicNumbers(exponent, modulus).public_key()
        if oid(name) == _EC_KEY and parameters and parameters[0][0] == OBJECT_IDENTIFIER:
            curve = _CURVES.get(oid(parameters[0]))
            if curve is not None:
                return ec.EllipticCurvePublicKey.from_encoded_point(curve, bits(key))
    except CertificateMalformed:
        raise
    except ValueError:
        # cryptography refuses the numbers: a key that nothing is equal to
        return None
    return None


def _extensions(wrapped: bytes) -> Mapping[str, Extension]:
    extensions: dict[str, Extension] = {}
    for element in children(single_element(wrapped)) if wrapped else ():
        name, *flags, value = children(element)
        if value[0] != OCTET_STRING or oid(name) in extensions:
            raise CertificateMalformed("an extension is there twice, or has no value")
        critical = any(tag == BOOLEAN and content != b"\0" for tag, content, _ in flags)
        extensions[oid(name)] = Extension(critical=critical, value=value[1])
    return extensions


def certifies_key(fields: CertificateFields, spki: bytes) -> bool:
    """Tell whether a certificate is for the key with this canonical SubjectPublicKeyInfo."""
    if fields.public_key is None:
        return False
    try:
        return canonical_spki(fields.public_key) == spki
    except InvalidKey:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class BasicConstraints:
    """Whether a certificate is an authority's, and how many authorities may be below it."""

    ca: bool
    path_length: int | None


def basic_constraints(fields: CertificateFields) -> BasicConstraints:
    """Read the basic constraints; absent ones are no authority's. Raises CertificateMalformed."""
    extension = fields.extensions.get("2.5.29.19")
    values = [] if extension is None else children(single_element(extension.value))
    ca = any(tag == BOOLEAN and content != b"\0" for tag, content, _ in values[:1])
    lengths = [int.from_bytes(content, "big") for tag, content, _ in values if tag == INTEGER]
    return BasicConstraints(ca=ca, path_length=lengths[0] if lengths else None)


def key_usage(fields: CertificateFields) -> frozenset[int] | None:
    """Read the key usage bits by number; `None` where missing. Raises CertificateMalformed."""
    extension = fields.extensions.get("2.5.29.15")
    if extension is None:
        return None
    tag, content, _ = single_element(extension.value)
    if tag != BIT_STRING or not content:
        raise CertificateMalformed("its key usage cannot be read")
    flags = content[1:]
    return frozenset(i for i in range(len(flags) * 8) if flags[i // 8] >> (7 - i % 8) & 1)


def extended_key_usage(fields: CertificateFields) -> frozenset[str] | None:
    """Read the purposes; `None` where missing. Raises CertificateMalformed."""
    extension = fields.extensions.get("2.5.29.37")
    if extension is None:
        return None
    return frozenset(oid(purpose) for purpose in children(single_element(extension.value)))
