"""Parse the PKCS#10 request of a kubelet, to the byte (P3, P4, P5).

The profile is narrow, so this module decodes the whole request, its key included, from strict DER.
`cryptography` verifies the signature alone. Every parsed byte is a signed byte.

The signer decides whether a key is weak, whether the provider ID is required and which subject
alternative names are allowed. Source: RFC 2986, RFC 5280 section 4.2.1.6, docs/protocol.md
sections 4 and 5.
"""

import hashlib
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat import asn1
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509 import ObjectIdentifier

from common.der import SEQUENCE, encode
from common.errors import (
    AttributeNotAllowed,
    ExtensionNotAllowed,
    ProviderIDMalformed,
    RequestKeyNotAllowed,
    RequestMalformed,
    RequestSignatureInvalid,
    SubjectNotAllowed,
    TooLarge,
)
from common.names import NODE_USER_PREFIX, NODES_GROUP, PROVIDER_ID_OID
from common.node_identity import require_node_name, require_provider_id
from common.pkcs10_asn1 import (
    Attribute,
    AttributeTypeAndValue,
    CertificationRequest,
    CertificationRequestInfo,
    ExtensionRequest,
    GeneralNames,
    RequestedExtension,
    RsaPublicKey,
    SubjectPublicKeyInfo,
)
from common.public_keys import RSA_EXPONENT, PublicKey

T = TypeVar("T")

MAX_PKCS10: Final = 16 * 1024
"""Bytes of a request. RSA 4096 and the longest provider ID need 2 KiB; SANs may use more."""

_COMMON_NAME: Final = ObjectIdentifier("2.5.4.3")
_ORGANIZATION: Final = ObjectIdentifier("2.5.4.10")
_EXTENSION_REQUEST: Final = ObjectIdentifier("1.2.840.113549.1.9.14")
_SUBJECT_ALT_NAME: Final = ObjectIdentifier("2.5.29.17")
_PROVIDER_ID: Final = ObjectIdentifier(PROVIDER_ID_OID)

# Contents of AlgorithmIdentifiers with parameters. In DER each has one encoding.
_RSA_ENCRYPTION: Final = bytes.fromhex("06092a864886f70d0101010500")
_CURVES: Final[Mapping[bytes, ec.EllipticCurve]] = MappingProxyType(
    {
        bytes.fromhex("06072a8648ce3d020106082a8648ce3d030107"): ec.SECP256R1(),
        bytes.fromhex("06072a8648ce3d020106052b81040022"): ec.SECP384R1(),
    }
)
_RSA_SIGNATURES: Final = {
    bytes.fromhex("06092a864886f70d01010b0500"): hashes.SHA256(),
    bytes.fromhex("06092a864886f70d01010c0500"): hashes.SHA384(),
    bytes.fromhex("06092a864886f70d01010d0500"): hashes.SHA512(),
}
_ECDSA_SIGNATURES: Final = {
    bytes.fromhex("06082a8648ce3d040302"): ec.ECDSA(hashes.SHA256()),
    bytes.fromhex("06082a8648ce3d040303"): ec.ECDSA(hashes.SHA384()),
    bytes.fromhex("06082a8648ce3d040304"): ec.ECDSA(hashes.SHA512()),
}
_COMPRESSED_OR_HYBRID: Final = (b"\2", b"\3", b"\6", b"\7")
"""First bytes of compressed and hybrid points (SEC 1, section 2.3.3; X9.62, section 4.3.6)."""
_RSA_BITS: Final = range(2048, 4096 + 1)

_SEQUENCE: Final = b"\x30"

_DNS_NAME: Final = b"\x82"
_IP_ADDRESS: Final = b"\x87"
_IP_ADDRESS_SIZES: Final = frozenset({4, 16})
_OTHER_NAMES: Final = {
    b"\xa0": "otherName",
    b"\x81": "rfc822Name",
    b"\xa3": "x400Address",
    b"\xa4": "directoryName",
    b"\xa5": "ediPartyName",
    b"\x86": "uniformResourceIdentifier",
    b"\x88": "registeredID",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherGeneralName:
    """A subject alternative name that is neither a DNS name nor an IP address."""

    kind: str
    """The alternative of GeneralName, for example `uniformResourceIdentifier`."""


SubjectAltName = str | ipaddress.IPv4Address | ipaddress.IPv6Address | OtherGeneralName
"""A DNS name (ASCII, as sent), an IP address, or a name of another type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pkcs10:
    """A request that its own key has signed, with the subject of a node.

    `sha256` is the digest of `der`, 32 bytes. `subject_alt_names` is None if there is no such
    extension.
    """

    der: bytes
    sha256: bytes
    public_key: PublicKey
    node_name: str
    provider_id: str | None
    subject_alt_names: tuple[SubjectAltName, ...] | None


def parse_pkcs10(data: bytes) -> Pkcs10:
    """Parse a request and verify that its own key signed it.

    Raises:
        TooLarge: P1.
        RequestMalformed, RequestKeyNotAllowed, RequestSignatureInvalid: P3.
        SubjectNotAllowed, NodeNameInvalid: P4.
        AttributeNotAllowed, ExtensionNotAllowed, ProviderIDMalformed: P5.

    """
    if len(data) > MAX_PKCS10:
        raise TooLarge("PKCS#10 request exceeds 16 KiB")
    try:
        return _read(data)
    except _InvalidDer as error:
        raise RequestMalformed(
            "PKCS#10 request is not DER of its structure", detail=str(error)
        ) from None


def _read(data: bytes) -> Pkcs10:
    request = _decode(CertificationRequest, data)
    signed = encode(SEQUENCE, _content(request.info))
    info = _parse(CertificationRequestInfo, request.info)
    if info.version != 0:
        raise RequestMalformed("PKCS#10 request must have version 1")
    public_key = _public_key(info.public_key)
    _verify(public_key, _content(request.algorithm), _octets(request.signature), signed)
    node_name = _node_name(info.subject)
    extensions = _extensions(info.attributes.as_list())
    return Pkcs10(
        der=data,
        sha256=hashlib.sha256(data).digest(),
        public_key=public_key,
        node_name=node_name,
        provider_id=_provider_id(extensions.get(_PROVIDER_ID)),
        subject_alt_names=_subject_alt_names(extensions.get(_SUBJECT_ALT_NAME)),
    )


class _InvalidDer(ValueError):
    """The bytes are not DER of the expected structure."""


def _decode(structure: type[T], data: bytes) -> T:
    try:
        return asn1.decode_der(structure, data)
    except ValueError as error:
        raise _InvalidDer(str(error)) from None


def _parse(structure: type[T], element: asn1.TLV) -> T:
    try:
        parsed: T = element.parse(structure)
    except ValueError as error:
        raise _InvalidDer(str(error)) from None
    return parsed


def _content(element: asn1.TLV) -> bytes:
    """Return the content of a SEQUENCE."""
    if element.tag_bytes != _SEQUENCE:
        raise _InvalidDer("not a SEQUENCE")
    return bytes(element.data)


def _octets(bits: asn1.BitString) -> bytes:
    """Return the content of a BIT STRING of whole bytes."""
    if bits.padding_bits() != 0:
        raise _InvalidDer("not a BIT STRING of whole bytes")
    return bits.as_bytes()


def _public_key(info: SubjectPublicKeyInfo) -> PublicKey:
    """Return the key, from its canonical encoding (P3)."""
    algorithm, key = _content(info.algorithm), _octets(info.key)
    if algorithm == _RSA_ENCRYPTION:
        return _rsa_key(key)
    curve = _CURVES.get(algorithm)
    if curve is None:
        raise RequestKeyNotAllowed("key must be RSA, or on P-256 or P-384")
    if key.startswith(_COMPRESSED_OR_HYBRID):
        raise RequestMalformed("SubjectPublicKeyInfo is not in canonical form")
    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(curve, key)
    except ValueError:
        raise RequestKeyNotAllowed("key is invalid: its point is not on the curve") from None


def _rsa_key(data: bytes) -> rsa.RSAPublicKey:
    """Decode an RSAPublicKey of RFC 8017, appendix A.1.1 (P3)."""
    try:
        key = _decode(RsaPublicKey, data)
    except _InvalidDer as error:
        raise RequestKeyNotAllowed(
            "key is invalid: it is not an RSAPublicKey", detail=str(error)
        ) from None
    if key.exponent != RSA_EXPONENT:
        raise RequestKeyNotAllowed("RSA key must have exponent 65537")
    # OpenSSL loads keys with an even modulus.
    if key.modulus < 0 or key.modulus % 2 == 0 or key.modulus.bit_length() not in _RSA_BITS:
        raise RequestKeyNotAllowed("RSA key must have an odd modulus of 2048 to 4096 bits")
    return rsa.RSAPublicNumbers(key.exponent, key.modulus).public_key()


def _verify(key: PublicKey, algorithm: bytes, signature: bytes, signed: bytes) -> None:
    """Verify that the request is signed by its own key (P3)."""
    try:
        if isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, signed, padding.PKCS1v15(), _RSA_SIGNATURES[algorithm])
        else:
            key.verify(signature, signed, _ECDSA_SIGNATURES[algorithm])
    except KeyError:
        raise RequestSignatureInvalid("signature algorithm does not fit the key") from None
    except InvalidSignature:
        raise RequestSignatureInvalid("request is not signed by its own key") from None


def _node_name(subject: Sequence[asn1.SetOf[AttributeTypeAndValue]]) -> str:
    """Return the node name. The subject is O and CN, once each, in one RDN or two (P4)."""
    attributes = [
        (attribute.type, _directory_string(attribute.value))
        for rdn in subject
        for attribute in _rdn_attributes(rdn)
    ]
    names = dict(attributes)
    if len(attributes) != 2 or names.get(_ORGANIZATION) != NODES_GROUP or _COMMON_NAME not in names:  # noqa: PLR2004
        raise SubjectNotAllowed("subject must be exactly O=system:nodes and one CN")
    common_name = names[_COMMON_NAME]
    if not common_name.startswith(NODE_USER_PREFIX):
        raise SubjectNotAllowed("CN must begin with system:node:")
    return require_node_name(common_name.removeprefix(NODE_USER_PREFIX))


def _rdn_attributes(rdn: asn1.SetOf[AttributeTypeAndValue]) -> list[AttributeTypeAndValue]:
    """Return the attributes of a relative distinguished name, at least one."""
    attributes = rdn.as_list()
    if not attributes:
        raise _InvalidDer("a relative distinguished name is empty")
    return attributes


def _directory_string(value: str | asn1.PrintableString | asn1.TLV) -> str:
    """Return the text of a UTF8String or PrintableString."""
    if isinstance(value, str):
        return value
    if isinstance(value, asn1.PrintableString):
        return value.as_str()
    raise SubjectNotAllowed("subject must hold UTF8String or PrintableString values")


def _extensions(attributes: Sequence[asn1.TLV]) -> dict[ObjectIdentifier, RequestedExtension]:
    """Return the extensions by identifier: known ones, once each (P5)."""
    extensions: dict[ObjectIdentifier, RequestedExtension] = {}
    for extension in _requested(attributes):
        if extension.kind not in {_PROVIDER_ID, _SUBJECT_ALT_NAME} or extension.kind in extensions:
            raise ExtensionNotAllowed("an extension is unknown or repeated")
        extensions[extension.kind] = extension
    return extensions


def _requested(attributes: Sequence[asn1.TLV]) -> Sequence[RequestedExtension]:
    """Return the extensions of the extensionRequest attribute, the only one allowed (P5)."""
    if not attributes:
        return ()
    if len(attributes) > 1:
        raise AttributeNotAllowed("request must have at most one attribute")
    if _parse(Attribute, attributes[0]).type != _EXTENSION_REQUEST:
        raise AttributeNotAllowed("the attribute of a request must be extensionRequest")
    requested = _parse(ExtensionRequest, attributes[0]).values.as_list()
    if len(requested) != 1:
        raise AttributeNotAllowed("extensionRequest must have exactly one value")
    if not requested[0]:
        raise _InvalidDer("extensionRequest is empty")
    return requested[0]


def _provider_id(extension: RequestedExtension | None) -> str | None:
    """Return the provider ID from its non-critical extension, a DER UTF8String (P5)."""
    if extension is None:
        return None
    if extension.critical:
        raise ProviderIDMalformed("provider ID extension must not be critical")
    try:
        return require_provider_id(_decode(str, extension.value))
    except _InvalidDer as error:
        raise ProviderIDMalformed(
            "provider ID must be a UTF8String in DER", detail=str(error)
        ) from None


def _subject_alt_names(extension: RequestedExtension | None) -> tuple[SubjectAltName, ...] | None:
    """Return the names with their types (P5).

    The extension may be critical: the certificate gets a new extension, never this one.
    """
    if extension is None:
        return None
    names = _decode(GeneralNames, encode(SEQUENCE, extension.value)).names
    return tuple(_general_name(name) for name in names)


def _general_name(name: asn1.TLV) -> SubjectAltName:
    tag, content = name.tag_bytes, bytes(name.data)
    if tag in _OTHER_NAMES:
        return OtherGeneralName(kind=_OTHER_NAMES[tag])
    if tag == _DNS_NAME and content.isascii():
        return content.decode("ascii")
    if tag == _IP_ADDRESS and len(content) in _IP_ADDRESS_SIZES:
        return ipaddress.ip_address(content)
    raise _InvalidDer("a name is not a GeneralName")
