"""The PKCS#10 request of a kubelet, read to the byte (P3, P4, P5).

The profile leaves so little open that the request is read off its own strict DER; `cryptography`
only loads the key and checks the signature. What is read is what was signed.

Which keys are weak, whether the provider ID has to be there and which subject alternative names
are allowed is the signer's to say. Source: RFC 2986, RFC 5280 section 4.2.1.6, docs/protocol.md
sections 4 and 5.
"""

import hashlib
import ipaddress
import re
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import load_der_public_key

from common import der
from common.errors import (
    AttributeNotAllowed,
    ExtensionNotAllowed,
    NodeNameInvalid,
    ProviderIDMalformed,
    RequestKeyNotAllowed,
    RequestMalformed,
    RequestSignatureInvalid,
    SubjectNotAllowed,
    TooLarge,
)
from common.keys import PublicKey, accepted, canonical_spki
from common.names import NODE_USER_PREFIX, NODES_GROUP

MAX_PKCS10: Final = 16 * 1024
"""Bytes of a request: an RSA 4096 one with a full provider ID takes 2 KiB; the rest is for SANs."""

# Whole OBJECT IDENTIFIERs in DER, tag and all: what has none of these encodings is something else.
_COMMON_NAME: Final = bytes.fromhex("0603550403")
_ORGANIZATION: Final = bytes.fromhex("060355040a")
_EXTENSION_REQUEST: Final = bytes.fromhex("06092a864886f70d01090e")
_SUBJECT_ALT_NAME: Final = bytes.fromhex("0603551d11")
_PROVIDER_ID: Final = bytes.fromhex("060a2b06010401d679020115")

_KEY_ALGORITHMS: Final = frozenset(
    bytes.fromhex(algorithm)
    for algorithm in (
        "300d06092a864886f70d0101010500",  # rsaEncryption, NULL
        "301306072a8648ce3d020106082a8648ce3d030107",  # id-ecPublicKey, P-256
        "301006072a8648ce3d020106052b81040022",  # id-ecPublicKey, P-384
    )
)
_RSA_SIGNATURES: Final = {
    bytes.fromhex("300d06092a864886f70d01010b0500"): hashes.SHA256(),
    bytes.fromhex("300d06092a864886f70d01010c0500"): hashes.SHA384(),
    bytes.fromhex("300d06092a864886f70d01010d0500"): hashes.SHA512(),
}
_ECDSA_SIGNATURES: Final = {
    bytes.fromhex("300a06082a8648ce3d040302"): hashes.SHA256(),
    bytes.fromhex("300a06082a8648ce3d040303"): hashes.SHA384(),
    bytes.fromhex("300a06082a8648ce3d040304"): hashes.SHA512(),
}
_RSA_BITS: Final = range(2048, 4096 + 1)

_DNS_NAME: Final = der.CONTEXT | 2
_IP_ADDRESS: Final = der.CONTEXT | 7
_IP_ADDRESS_SIZES: Final = frozenset({4, 16})
_OTHER_NAMES: Final = {
    der.CONTEXT_CONSTRUCTED | 0: "otherName",
    der.CONTEXT | 1: "rfc822Name",
    der.CONTEXT_CONSTRUCTED | 3: "x400Address",
    der.CONTEXT_CONSTRUCTED | 4: "directoryName",
    der.CONTEXT_CONSTRUCTED | 5: "ediPartyName",
    der.CONTEXT | 6: "uniformResourceIdentifier",
    der.CONTEXT | 8: "registeredID",
}

_NODE_NAME: Final = re.compile(
    r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
)
_MAX_NODE_NAME: Final = 253
_PROVIDER_ID_TEXT: Final = re.compile(r"[!-~]{1,512}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """A subject alternative name that is neither a DNS name nor an IP address."""

    kind: str
    """Its choice of GeneralName, e.g. `uniformResourceIdentifier`."""


SubjectAltName = str | ipaddress.IPv4Address | ipaddress.IPv6Address | Other
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


def valid_node_name(name: str) -> str:
    """Return the name if it is a lower-case DNS-1123 subdomain, as Kubernetes defines it (P4).

    Raises NodeNameInvalid.
    """
    if len(name) > _MAX_NODE_NAME or _NODE_NAME.fullmatch(name) is None:
        raise NodeNameInvalid("node name is not a lower-case DNS-1123 subdomain")
    return name


def valid_provider_id(text: str) -> str:
    """Return the provider ID if it is 1 to 512 printable ASCII characters without spaces (P5).

    `Machine.spec.providerID` holds 1 to 512 characters. Raises ProviderIDMalformed.
    """
    if _PROVIDER_ID_TEXT.fullmatch(text) is None:
        raise ProviderIDMalformed("provider ID is not 1 to 512 printable ASCII characters")
    return text


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
        return _parse(data)
    except der.DerMalformed as error:
        raise RequestMalformed(f"PKCS#10 request: {error}") from None


def _parse(data: bytes) -> Pkcs10:
    info, algorithm, signature = der.parts(der.parse(data), der.SEQUENCE, at_least=3, at_most=3)
    version, subject, spki, attributes = der.parts(info, der.SEQUENCE, at_least=4, at_most=4)
    if der.integer(version) != 0:
        raise RequestMalformed("PKCS#10 request is not of version 1")
    public_key = _public_key(spki)
    _verify(public_key, algorithm.der, der.whole_bits(signature), info.der)
    node_name = _node_name(subject)
    extensions = _extensions(attributes)
    return Pkcs10(
        der=data,
        sha256=hashlib.sha256(data).digest(),
        public_key=public_key,
        node_name=node_name,
        provider_id=_provider_id(extensions.get(_PROVIDER_ID)),
        subject_alt_names=_subject_alt_names(extensions.get(_SUBJECT_ALT_NAME)),
    )


def _public_key(spki: der.Element) -> PublicKey:
    """P3: the key, in its canonical encoding."""
    algorithm, _ = der.parts(spki, der.SEQUENCE, at_least=2, at_most=2)
    if algorithm.der not in _KEY_ALGORITHMS:
        raise RequestKeyNotAllowed("key is neither RSA nor on P-256 or P-384")
    try:
        key = accepted(load_der_public_key(spki.der))
    except (ValueError, UnsupportedAlgorithm):
        raise RequestKeyNotAllowed("key is not valid, or of another exponent than 65537") from None
    if isinstance(key, rsa.RSAPublicKey) and key.key_size not in _RSA_BITS:
        raise RequestKeyNotAllowed("RSA key is not of 2048 to 4096 bits")
    if canonical_spki(key) != spki.der:
        raise RequestMalformed("SubjectPublicKeyInfo is not written canonically")
    return key


def _verify(key: PublicKey, algorithm: bytes, signature: bytes, signed: bytes) -> None:
    """P3: the request is signed by its own key."""
    try:
        if isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, signed, padding.PKCS1v15(), _RSA_SIGNATURES[algorithm])
        else:
            key.verify(signature, signed, ec.ECDSA(_ECDSA_SIGNATURES[algorithm]))
    except KeyError:
        raise RequestSignatureInvalid("signature algorithm is not one for this key") from None
    except InvalidSignature:
        raise RequestSignatureInvalid("request is not signed by its own key") from None


def _node_name(subject: der.Element) -> str:
    """P4: exactly O and CN, once each, in one RDN or two, in either order."""
    found: list[tuple[bytes, str]] = []
    for rdn in der.parts(subject, der.SEQUENCE, at_least=0, at_most=MAX_PKCS10):
        for attribute in der.parts(rdn, der.SET, at_least=1, at_most=MAX_PKCS10):
            kind, value = der.parts(attribute, der.SEQUENCE, at_least=2, at_most=2)
            if value.tag not in {der.UTF8_STRING, der.PRINTABLE_STRING}:
                raise SubjectNotAllowed("subject holds something else than strings")
            found.append((kind.der, value.content.decode()))
    names = dict(found)
    if len(found) != 2 or names.get(_ORGANIZATION) != NODES_GROUP or _COMMON_NAME not in names:  # noqa: PLR2004
        raise SubjectNotAllowed("subject is not exactly O=system:nodes and one CN")
    common_name = names[_COMMON_NAME]
    if not common_name.startswith(NODE_USER_PREFIX):
        raise SubjectNotAllowed("CN is not that of a node")
    return valid_node_name(common_name.removeprefix(NODE_USER_PREFIX))


def _extensions(attributes: der.Element) -> dict[bytes, tuple[bool, bytes]]:
    """P5: criticality and value of each extension that is taken, once each, by identifier."""
    extensions: dict[bytes, tuple[bool, bytes]] = {}
    for extension in _requested(attributes):
        kind, *critical, value = der.parts(extension, der.SEQUENCE, at_least=2, at_most=3)
        if kind.der not in {_PROVIDER_ID, _SUBJECT_ALT_NAME} or kind.der in extensions:
            raise ExtensionNotAllowed("an extension is not one that is taken, or there twice")
        # DER leaves out what is the default, so that what is there is TRUE.
        if value.tag != der.OCTET_STRING or any(c.der != b"\x01\x01\xff" for c in critical):
            raise RequestMalformed("an extension is not DER")
        extensions[kind.der] = (bool(critical), value.content)
    return extensions


def _requested(attributes: der.Element) -> tuple[der.Element, ...]:
    """P5: the extensions of the one attribute that is taken, where there is one."""
    found = der.parts(attributes, der.CONTEXT_CONSTRUCTED, at_least=0, at_most=MAX_PKCS10)
    if not found:
        return ()
    if len(found) > 1:
        raise AttributeNotAllowed("request has several attributes")
    kind, values = der.parts(found[0], der.SEQUENCE, at_least=2, at_most=2)
    if kind.der != _EXTENSION_REQUEST:
        raise AttributeNotAllowed("request has another attribute than extensionRequest")
    requested = der.parts(values, der.SET, at_least=0, at_most=MAX_PKCS10)
    if len(requested) != 1:
        raise AttributeNotAllowed("extensionRequest does not have exactly one value")
    return der.parts(requested[0], der.SEQUENCE, at_least=1, at_most=MAX_PKCS10)


def _provider_id(extension: tuple[bool, bytes] | None) -> str | None:
    """P5: non-critical, a DER UTF8String that holds a provider ID."""
    if extension is None:
        return None
    critical, value = extension
    if critical:
        raise ProviderIDMalformed("provider ID extension is critical")
    try:
        element = der.parse(value)
    except der.DerMalformed as error:
        raise ProviderIDMalformed(f"provider ID: {error}") from None
    if element.tag != der.UTF8_STRING:
        raise ProviderIDMalformed("provider ID is not a UTF8String")
    return valid_provider_id(element.content.decode())


def _subject_alt_names(extension: tuple[bool, bytes] | None) -> tuple[SubjectAltName, ...] | None:
    """P5: the names, each of its type; critical or not, since the certificate is made anew."""
    if extension is None:
        return None
    names = der.parts(der.parse(extension[1]), der.SEQUENCE, at_least=0, at_most=MAX_PKCS10)
    return tuple(_general_name(name) for name in names)


def _general_name(name: der.Element) -> SubjectAltName:
    if name.tag in _OTHER_NAMES:
        return Other(kind=_OTHER_NAMES[name.tag])
    if name.tag == _DNS_NAME and name.content.isascii():
        return name.content.decode("ascii")
    if name.tag == _IP_ADDRESS and len(name.content) in _IP_ADDRESS_SIZES:
        return ipaddress.ip_address(name.content)
    raise der.DerMalformed("a name is no GeneralName")
