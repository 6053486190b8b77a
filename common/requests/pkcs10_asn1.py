"""ASN.1 types of a PKCS#10 request, and functions that decode them from strict DER.

`cryptography` decodes. Where the profile allows alternatives, the type is TLV (tag and content), so
that pkcs10.py and pkcs10_key.py can name the rule that a request breaks.

Source: RFC 2986, section 4; RFC 5280, sections 4.1 and 4.2.1.6; RFC 8017, appendix A.1.1.
"""

from typing import Annotated, Final, TypeVar

from cryptography.hazmat import asn1
from cryptography.x509 import ObjectIdentifier

T = TypeVar("T")

_SEQUENCE: Final = b"\x30"


@asn1.sequence
class CertificationRequest:
    """CertificationRequest; the signature covers `info`."""

    info: asn1.TLV
    algorithm: asn1.TLV
    signature: asn1.BitString


@asn1.sequence
class AttributeTypeAndValue:
    """One attribute of a relative distinguished name."""

    type: ObjectIdentifier
    value: str | asn1.PrintableString | asn1.TLV


@asn1.sequence
class SubjectPublicKeyInfo:
    """SubjectPublicKeyInfo."""

    algorithm: asn1.TLV
    key: asn1.BitString


@asn1.sequence
class CertificationRequestInfo:
    """CertificationRequestInfo; 0 means version 1."""

    version: int
    subject: list[asn1.SetOf[AttributeTypeAndValue]]
    public_key: SubjectPublicKeyInfo
    attributes: Annotated[asn1.SetOf[asn1.TLV], asn1.Implicit(0)]


@asn1.sequence
class Attribute:
    """Attribute of any type."""

    type: ObjectIdentifier
    values: asn1.SetOf[asn1.TLV]


@asn1.sequence
class RequestedExtension:
    """Extension for the requested certificate."""

    kind: ObjectIdentifier
    critical: Annotated[bool, asn1.Default(value=False)]
    value: bytes


@asn1.sequence
class ExtensionRequest:
    """Attribute of type extensionRequest (RFC 2985, section 5.4.2)."""

    type: ObjectIdentifier
    values: asn1.SetOf[list[RequestedExtension]]


@asn1.sequence
class RsaPublicKey:
    """RSAPublicKey."""

    modulus: int
    exponent: int


@asn1.sequence
class GeneralNames:
    """A SEQUENCE around GeneralNames, since `cryptography` decodes a list only as a field."""

    names: list[asn1.TLV]


class InvalidDer(ValueError):
    """The bytes are not DER of the expected structure."""


def decode(structure: type[T], data: bytes) -> T:
    """Decode exactly one value. Raises `InvalidDer`."""
    try:
        return asn1.decode_der(structure, data)
    except ValueError as error:
        raise InvalidDer(str(error)) from None


def parse(structure: type[T], element: asn1.TLV) -> T:
    """Decode an element that another type contains. Raises `InvalidDer`."""
    try:
        parsed: T = element.parse(structure)
    except ValueError as error:
        raise InvalidDer(str(error)) from None
    return parsed


def content_of(element: asn1.TLV) -> bytes:
    """Return the content of a SEQUENCE. Raises `InvalidDer`."""
    if element.tag_bytes != _SEQUENCE:
        raise InvalidDer("not a SEQUENCE")
    return bytes(element.data)


def octets_of(bits: asn1.BitString) -> bytes:
    """Return the content of a BIT STRING of whole bytes. Raises `InvalidDer`."""
    if bits.padding_bits() != 0:
        raise InvalidDer("not a BIT STRING of whole bytes")
    return bits.as_bytes()
