"""Parse the PKCS#10 request of a kubelet, to the byte (P3, P4, P5).

The profile is narrow, so the whole request is decoded from strict DER, its key included
(pkcs10_key.py). `cryptography` verifies the signature alone. Every parsed byte is signed.

The signer decides whether a key is weak, whether the provider ID is required and which subject
alternative names are allowed. Source: RFC 2986, RFC 5280 section 4.2.1.6, docs/protocol.md
sections 4 and 5.
"""

import hashlib
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat import asn1
from cryptography.x509 import ObjectIdentifier

from common.errors import (
    AttributeNotAllowed,
    ExtensionNotAllowed,
    ProviderIDMalformed,
    RequestMalformed,
    SubjectNotAllowed,
    TooLarge,
)
from common.formats.der import SEQUENCE, encode
from common.names import NODE_USER_PREFIX, NODES_GROUP, PROVIDER_ID_OID
from common.node_identity import require_node_name, require_provider_id
from common.public_keys import PublicKey
from common.requests.pkcs10_asn1 import (
    Attribute,
    AttributeTypeAndValue,
    CertificationRequest,
    CertificationRequestInfo,
    ExtensionRequest,
    GeneralNames,
    InvalidDer,
    RequestedExtension,
    content_of,
    decode,
    octets_of,
    parse,
)
from common.requests.pkcs10_key import read_public_key, verify_signature

MAX_PKCS10: Final = 16 * 1024
"""Bytes of a request. RSA 4096 and the longest provider ID need 2 KiB; SANs may use more."""

_COMMON_NAME: Final = ObjectIdentifier("2.5.4.3")
_ORGANIZATION: Final = ObjectIdentifier("2.5.4.10")
_EXTENSION_REQUEST: Final = ObjectIdentifier("1.2.840.113549.1.9.14")
_SUBJECT_ALT_NAME: Final = ObjectIdentifier("2.5.29.17")
_PROVIDER_ID: Final = ObjectIdentifier(PROVIDER_ID_OID)

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
    except InvalidDer as error:
        raise RequestMalformed(
            "PKCS#10 request is not DER of its structure", detail=str(error)
        ) from None


def _read(data: bytes) -> Pkcs10:
    request = decode(CertificationRequest, data)
    signed = encode(SEQUENCE, content_of(request.info))
    info = parse(CertificationRequestInfo, request.info)
    if info.version != 0:
        raise RequestMalformed("PKCS#10 request must have version 1")
    public_key = read_public_key(info.public_key)
    verify_signature(
        public_key, content_of(request.algorithm), octets_of(request.signature), signed
    )
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
        raise InvalidDer("a relative distinguished name is empty")
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
    if parse(Attribute, attributes[0]).type != _EXTENSION_REQUEST:
        raise AttributeNotAllowed("the attribute of a request must be extensionRequest")
    requested = parse(ExtensionRequest, attributes[0]).values.as_list()
    if len(requested) != 1:
        raise AttributeNotAllowed("extensionRequest must have exactly one value")
    if not requested[0]:
        raise InvalidDer("extensionRequest is empty")
    return requested[0]


def _provider_id(extension: RequestedExtension | None) -> str | None:
    """Return the provider ID from its non-critical extension, a DER UTF8String (P5)."""
    if extension is None:
        return None
    if extension.critical:
        raise ProviderIDMalformed("provider ID extension must not be critical")
    try:
        return require_provider_id(decode(str, extension.value))
    except InvalidDer as error:
        raise ProviderIDMalformed(
            "provider ID must be a UTF8String in DER", detail=str(error)
        ) from None


def _subject_alt_names(extension: RequestedExtension | None) -> tuple[SubjectAltName, ...] | None:
    """Return the names with their types (P5).

    The extension may be critical: the certificate gets a new extension, never this one.
    """
    if extension is None:
        return None
    names = decode(GeneralNames, encode(SEQUENCE, extension.value)).names
    return tuple(_general_name(name) for name in names)


def _general_name(name: asn1.TLV) -> SubjectAltName:
    tag, content = name.tag_bytes, bytes(name.data)
    if tag in _OTHER_NAMES:
        return OtherGeneralName(kind=_OTHER_NAMES[tag])
    if tag == _DNS_NAME and content.isascii():
        return content.decode("ascii")
    if tag == _IP_ADDRESS and len(content) in _IP_ADDRESS_SIZES:
        return ipaddress.ip_address(content)
    raise InvalidDer("a name is not a GeneralName")
