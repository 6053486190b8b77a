"""Fields of an X.509 certificate, read leniently.

Real endorsement certificates are not all DER (unsorted sets, explicit defaults), and NV memory
holds them with various headers and padding. OpenSSL builds and checks their chains, but pyOpenSSL
exposes neither extensions nor OAEP keys, so this module reads them. Lenient parsing is safe here:
the signature of a configured authority covers every field before a check relies on it.

Source: RFC 5280; RFC 4055 section 4.1 (OAEP keys); TCG PC Client Specific Implementation 1.2,
section 7.3 (stored certificates).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec, rsa

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

MAX_CERTIFICATE: Final = 16 * 1024
"""Bytes of one certificate. An NV index holds 2 KiB at most; authorities' are about as large."""

_UTC_TIME: Final = 0x17
_TIME: Final = re.compile("[0-9]{14}Z")
_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_CRL_EXTENSIONS: Final = 0xA0

_KEY_IDENTIFIER: Final = 0x80

_STORED: Final = bytes.fromhex("1001")
_STORED_HEADER: Final = 7
"""Bytes of TCG_PCCLIENT_STORED_CERT before the certificate: tag, type, size, tag of the content."""

_RSA_KEYS: Final = frozenset({"1.2.840.113549.1.1.1", "1.2.840.113549.1.1.7"})
"""rsaEncryption and id-RSAES-OAEP; both hold an RSAPublicKey."""
_EC_KEY: Final = "1.2.840.10045.2.1"
_CURVES: Final[Mapping[str, ec.EllipticCurve]] = {
    "1.2.840.10045.3.1.7": ec.SECP256R1(),
    "1.3.132.0.34": ec.SECP384R1(),
    "1.3.132.0.35": ec.SECP521R1(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """One extension; `value` is the content of its OCTET STRING."""

    critical: bool
    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFields:
    """Fields of one certificate; `issuer` and `subject` are encoded Names, compared bytewise."""

    der: bytes
    tbs: bytes
    signature: bytes
    version: int
    """1, 2 or 3; the number in the encoding is one less."""
    serial: int
    not_before: datetime
    not_after: datetime
    issuer: bytes
    subject: bytes
    signature_algorithms: tuple[str, str]
    """OIDs: in the signed part, and in the outer part."""
    public_key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey | None
    """None if the key type or curve is not supported."""
    extensions: Mapping[str, Extension]


def extract_certificate(data: bytes) -> bytes:
    """Return the certificate in the content of an NV index, without header, wrapper or padding.

    Raises `CertificateMalformed`.
    """
    if data.startswith(_STORED):
        data = data[_STORED_HEADER:]
    if data[:1] == bytes([OCTET_STRING]):
        data = next(elements(data[:MAX_CERTIFICATE]))[1]
    tag, _, whole = next(elements(data[:MAX_CERTIFICATE]), (0, b"", b""))
    if tag != SEQUENCE:
        raise CertificateMalformed("there is no certificate in the data")
    return whole


@lru_cache(maxsize=512)
def read_fields(der: bytes) -> CertificateFields:
    """Parse one certificate.

    Offer, answer and renewals of a node have the same certificates, and the result depends on the
    bytes alone. So it is cached, about 5 KB for each certificate, and 50 KB at most. A certificate
    that is malformed is not cached.

    Raises `CertificateMalformed`.
    """
    try:
        tbs, outer_algorithm, signature = children(single_element(der))
        fields = list(elements(tbs[1]))
        version = 1
        if fields[0][0] == _VERSION:
            version = 1 + int.from_bytes(single_element(fields.pop(0)[1])[1], "big")
        serial, algorithm, issuer, validity, subject, spki, *optional = fields
        not_before, not_after = (_time(element) for element in children(validity))
        extensions = next((content for tag, content, _ in optional if tag == _EXTENSIONS), b"")
        return CertificateFields(
            der=der,
            tbs=tbs[2],
            signature=bits(signature),
            version=version,
            not_before=not_before,
            not_after=not_after,
            serial=int.from_bytes(serial[1], "big", signed=True),
            issuer=issuer[2],
            subject=subject[2],
            signature_algorithms=(_algorithm(algorithm), _algorithm(outer_algorithm)),
            public_key=_public_key(spki),
            extensions=_extensions(extensions),
        )
    except (ValueError, IndexError) as error:
        # A structure with too few or too many elements fails to unpack, which ends here as well.
        raise CertificateMalformed("the data is not an X.509 certificate") from error


def crl_extensions(tbs: bytes) -> Mapping[str, Extension]:
    """Return the extensions of a CRL by OID; the caller has parsed the CRL already."""
    parts = children(single_element(tbs))
    return _extensions(next((content for tag, content, _ in parts if tag == _CRL_EXTENSIONS), b""))


def _algorithm(element: Element) -> str:
    return oid(children(element)[0])


def _time(element: Element) -> datetime:
    """Parse a UTCTime or GeneralizedTime in the form of RFC 5280, section 4.1.2.5."""
    tag, content, _ = element
    text = content.decode("ascii")
    if tag == _UTC_TIME:
        # RFC 5280: years from 50 on are 19xx
        text = ("19" if text >= "50" else "20") + text
    if _TIME.fullmatch(text) is None:
        raise CertificateMalformed("a time is not in the form of RFC 5280")
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
        # cryptography rejects these numbers, so they cannot equal a TPM's key.
        return None
    return None


def _extensions(wrapped: bytes) -> Mapping[str, Extension]:
    extensions: dict[str, Extension] = {}
    for element in children(single_element(wrapped)) if wrapped else ():
        name, *flags, value = children(element)
        identifier = oid(name)
        if value[0] != OCTET_STRING or identifier in extensions:
            raise CertificateMalformed("an extension is repeated or has no value")
        critical = any(tag == BOOLEAN and content != b"\0" for tag, content, _ in flags)
        extensions[identifier] = Extension(critical=critical, value=value[1])
    return extensions


@dataclass(frozen=True, slots=True, kw_only=True)
class BasicConstraints:
    """Whether the subject is an authority, and how many authorities may follow it in a chain."""

    ca: bool
    path_length: int | None


def basic_constraints(fields: CertificateFields) -> BasicConstraints:
    """Return the basic constraints; absent means no authority. Raises `CertificateMalformed`."""
    extension = fields.extensions.get("2.5.29.19")
    values = [] if extension is None else children(single_element(extension.value))
    ca = any(tag == BOOLEAN and content != b"\0" for tag, content, _ in values[:1])
    lengths = [int.from_bytes(content, "big") for tag, content, _ in values if tag == INTEGER]
    return BasicConstraints(ca=ca, path_length=lengths[0] if lengths else None)


def key_usage(fields: CertificateFields) -> frozenset[int] | None:
    """Return the set key usage bits; None if absent. Raises `CertificateMalformed`."""
    extension = fields.extensions.get("2.5.29.15")
    if extension is None:
        return None
    tag, content, _ = single_element(extension.value)
    if tag != BIT_STRING or not content:
        raise CertificateMalformed("the key usage cannot be read")
    flags = content[1:]
    return frozenset(i for i in range(len(flags) * 8) if flags[i // 8] >> (7 - i % 8) & 1)


def extended_key_usage(fields: CertificateFields) -> frozenset[str] | None:
    """Return the OIDs of the purposes; None if absent. Raises `CertificateMalformed`."""
    extension = fields.extensions.get("2.5.29.37")
    if extension is None:
        return None
    return frozenset(oid(purpose) for purpose in children(single_element(extension.value)))


def authority_key_identifier(fields: CertificateFields) -> bytes:
    """Return the identifier of the issuer's key; empty if there is none that can be read."""
    extension = fields.extensions.get("2.5.29.35")
    try:
        parts = [] if extension is None else children(single_element(extension.value))
    except CertificateMalformed:
        return b""
    return next((content for tag, content, _ in parts if tag == _KEY_IDENTIFIER), b"")
