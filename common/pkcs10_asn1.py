"""The ASN.1 of a PKCS#10 request, as types that `cryptography` decodes from strict DER.

Only what every request has is typed; what the profile chooses from stays as tag and content, so
that common/pkcs10.py can say which of its rules is broken. Source: RFC 2986, section 4; RFC 5280,
sections 4.1 and 4.2.1.6; RFC 8017, appendix A.1.1.
"""

from typing import Annotated

from cryptography.hazmat import asn1
from cryptography.x509 import ObjectIdentifier


@asn1.sequence
class CertificationRequest:
    """CertificationRequest; `info` is what is signed."""

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
    """CertificationRequestInfo; version 1 is written as 0."""

    version: int
    subject: list[asn1.SetOf[AttributeTypeAndValue]]
    public_key: SubjectPublicKeyInfo
    attributes: Annotated[asn1.SetOf[asn1.TLV], asn1.Implicit(0)]


@asn1.sequence
class Attribute:
    """Attribute of whatever type."""

    type: ObjectIdentifier
    values: asn1.SetOf[asn1.TLV]


@asn1.sequence
class RequestedExtension:
    """Extension of a certificate."""

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
    """A SEQUENCE around GeneralNames: `cryptography` decodes a list in nothing else."""

    names: list[asn1.TLV]
