"""The PKCS#10 request of a kubelet, read to the byte (P3, P4, P5).

The profile leaves so little open that the request is read off its own strict DER, the key in it
too; `cryptography` only checks the signature. What is read is what was signed.

Which keys are weak, whether the provider ID has to be there and which subject alternative names
are allowed is the signer's to say. Source: RFC 2986, RFC 5280 section 4.2.1.6, docs/protocol.md
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
"""Bytes of a request: an RSA 4096 one with a full provider ID takes 2 KiB; the rest is for SANs."""

_COMMON_NAME: Final = ObjectIdentifier("2.5.4.3")
_ORGANIZATION: Final = ObjectIdentifier("2.5.4.10")
_EXTENSION_REQUEST: Final = ObjectIdentifier("1.2.840.113549.1.9.14")
_SUBJECT_ALT_NAME: Final = ObjectIdentifier("2.5.29.17")
_PROVIDER_ID: Final = ObjectIdentifier(PROVIDER_ID_OID)

# Contents of AlgorithmIdentifiers, parameters and all; in DER they have no other form.
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
"""How a point begins that is compressed or hybrid (SEC 1, section 2.3.3; X9.62, section 4.3.6)."""
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
    """Its choice of GeneralName, e.g. `uniformResourceIdentifier`."""


SubjectAltName = str | ipaddress.IPv4Address | ipaddress.IPv6Address | OtherGeneralName
"""A DNS name (ASCII, as sent), an IP address, or something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pkcs10:
    """A request whose own signature holds and whose subject is that of a node.

    `subject_alt_names` is None when the extension is absent; `sha256` is over `der`, 32 bytes.
    """

    der: bytes
    sha256: bytes
    public_key: PublicKey
    node_name: str
    provider_id: str | None
    subject_alt_names: tuple[SubjectAltName, ...] | None


def parse_pkcs10(data: bytes) -> Pkcs10:
    """Read a request and check its own signature.

    Raises:
        TooLarge: P1.
        RequestMalformed, RequestKeyNotAllowed, RequestSignatureInvalid: P3.
        SubjectNotAllowed, NodeNameInvalid: P4.
        AttributeNotAllowed, ExtensionNotAllowed, ProviderIDMalformed: P5.

    """
    if len(data) > MAX_PKCS10:
        raise TooLarge("PKCS#10 request is over 16 KiB")
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
        raise RequestMalformed("PKCS#10 request is not of version 1")
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
    """The library's own error, or one like it: something is not DER of its structure."""


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
    """Take the content of a SEQUENCE."""
    if element.tag_bytes != _SEQUENCE:
        raise _InvalidDer("not a SEQUENCE")
    return bytes(element.data)


def _octets(bits: asn1.BitString) -> bytes:
    """Take a BIT STRING of whole bytes."""
    if bits.padding_bits() != 0:
        raise _InvalidDer("not a BIT STRING of whole bytes")
    return bits.as_bytes()


def _public_key(info: SubjectPublicKeyInfo) -> PublicKey:
    """P3: the key, in its canonical encoding."""
    algorithm, key = _content(info.algorithm), _octets(info.key)
    if algorithm == _RSA_ENCRYPTION:
        return _rsa_key(key)
    curve = _CURVES.get(algorithm)
    if curve is None:
        raise RequestKeyNotAllowed("key is neither RSA nor on P-256 or P-384")
    if key.startswith(_COMPRESSED_OR_HYBRID):
        raise RequestMalformed("SubjectPublicKeyInfo is not written canonically")
    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(curve, key)
    except ValueError:
        raise RequestKeyNotAllowed("key is not valid: no point of its curve") from None


def _rsa_key(data: bytes) -> rsa.RSAPublicKey:
    """P3: an RSAPublicKey of RFC 8017, appendix A.1.1."""
    try:
        key = _decode(RsaPublicKey, data)
    except _InvalidDer as error:
        raise RequestKeyNotAllowed(
            "key is not valid: not an RSAPublicKey", detail=str(error)
        ) from None
    if key.exponent != RSA_EXPONENT:
        raise RequestKeyNotAllowed("RSA key is of another exponent than 65537")
    # OpenSSL loads even moduli, and then verifies nothing
    if key.modulus < 0 or key.modulus % 2 == 0 or key.modulus.bit_length() not in _RSA_BITS:
        raise RequestKeyNotAllowed("RSA key is not of 2048 to 4096 bits, or even")
    return rsa.RSAPublicNumbers(key.exponent, key.modulus).public_key()


def _verify(key: PublicKey, algorithm: bytes, signature: bytes, signed: bytes) -> None:
    """P3: the request is signed by its own key."""
    try:
        if isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, signed, padding.PKCS1v15(), _RSA_SIGNATURES[algorithm])
        else:
            key.verify(signature, signed, _ECDSA_SIGNATURES[algorithm])
    except KeyError:
        raise RequestSignatureInvalid("signature algorithm is not one for this key") from None
    except InvalidSignature:
        raise RequestSignatureInvalid("request is not signed by its own key") from None


def _node_name(subject: Sequence[asn1.SetOf[AttributeTypeAndValue]]) -> str:
    """P4: exactly O and CN, once each, in one RDN or two, in either order."""
    found = [
        (each.type, _directory_string(each.value))
        for rdn in subject
        for each in _rdn_attributes(rdn)
    ]
    names = dict(found)
    if len(found) != 2 or names.get(_ORGANIZATION) != NODES_GROUP or _COMMON_NAME not in names:  # noqa: PLR2004
        raise SubjectNotAllowed("subject is not exactly O=system:nodes and one CN")
    common_name = names[_COMMON_NAME]
    if not common_name.startswith(NODE_USER_PREFIX):
        raise SubjectNotAllowed("CN is not that of a node")
    return require_node_name(common_name.removeprefix(NODE_USER_PREFIX))


def _rdn_attributes(rdn: asn1.SetOf[AttributeTypeAndValue]) -> list[AttributeTypeAndValue]:
    """Take the attributes of a relative distinguished name, which has at least one."""
    attributes = rdn.as_list()
    if not attributes:
        raise _InvalidDer("a relative distinguished name is empty")
    return attributes


def _directory_string(value: str | asn1.PrintableString | asn1.TLV) -> str:
    """Take a UTF8String or a PrintableString."""
    if isinstance(value, str):
        return value
    if isinstance(value, asn1.PrintableString):
        return value.as_str()
    raise SubjectNotAllowed("subject holds something else than strings")


def _extensions(attributes: Sequence[asn1.TLV]) -> dict[ObjectIdentifier, RequestedExtension]:
    """P5: the extensions that are taken, once each, by identifier."""
    extensions: dict[ObjectIdentifier, RequestedExtension] = {}
    for extension in _requested(attributes):
        if extension.kind not in {_PROVIDER_ID, _SUBJECT_ALT_NAME} or extension.kind in extensions:
            raise ExtensionNotAllowed("an extension is not one that is taken, or there twice")
        extensions[extension.kind] = extension
    return extensions


def _requested(attributes: Sequence[asn1.TLV]) -> Sequence[RequestedExtension]:
    """P5: the extensions of the one attribute that is taken, where there is one."""
    if not attributes:
        return ()
    if len(attributes) > 1:
        raise AttributeNotAllowed("request has several attributes")
    if _parse(Attribute, attributes[0]).type != _EXTENSION_REQUEST:
        raise AttributeNotAllowed("request has another attribute than extensionRequest")
    requested = _parse(ExtensionRequest, attributes[0]).values.as_list()
    if len(requested) != 1:
        raise AttributeNotAllowed("extensionRequest does not have exactly one value")
    if not requested[0]:
        raise _InvalidDer("extensionRequest is empty")
    return requested[0]


def _provider_id(extension: RequestedExtension | None) -> str | None:
    """P5: non-critical, a DER UTF8String that holds a provider ID."""
    if extension is None:
        return None
    if extension.critical:
        raise ProviderIDMalformed("provider ID extension is critical")
    try:
        return require_provider_id(_decode(str, extension.value))
    except _InvalidDer as error:
        raise ProviderIDMalformed(
            "provider ID is not a UTF8String in DER", detail=str(error)
        ) from None


def _subject_alt_names(extension: RequestedExtension | None) -> tuple[SubjectAltName, ...] | None:
    """P5: the names, each of its type; critical or not, since the certificate is made anew."""
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
    raise _InvalidDer("a name is no GeneralName")
