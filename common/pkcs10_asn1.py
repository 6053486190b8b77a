"""ASN.1 types of a PKCS#10 request, which `cryptography` decodes from strict DER.

Where the profile allows alternatives, the type is TLV (tag and content), so that common/pkcs10.py
can name the rule that a request breaks. Source: RFC 2986, section 4; RFC 5280,
sections 4.1 and 4.2.1.6; RFC 8017, appendix A.1.1.
"""

from typing import Annotated

from cryptography.hazmat import asn1
from cryptography.x509 import ObjectIdentifier


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
