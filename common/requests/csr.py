"""`spec.request` of a CSR: PEM blocks with a PKCS#10 request and its attestation data (P2).

This module also builds PKCS#10 requests. The node does not parse any, and the parser takes a while
to import, so common/requests/pkcs10.py is separate. Source: docs/protocol.md sections 2 and 4.
"""

import warnings
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address
from itertools import islice
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from common.errors import PemBlocksUnexpected, PemNotCanonical, ProviderUnknown, TooLarge
from common.formats import der
from common.formats.pem import PemMalformed, decode_blocks, encode_block
from common.names import (
    NODE_USER_PREFIX,
    NODES_GROUP,
    PEM_DATA,
    PEM_PROVIDER,
    PEM_REQUEST,
    PROVIDER,
    PROVIDER_ID_OID,
)
from common.node_identity import require_node_name, require_provider_id

__all__ = [
    "MAX_REQUEST",
    "PrivateKey",
    "build_pkcs10",
    "decode_plain_request",
    "decode_request",
    "encode_request",
    "node_subject",
    "require_node_name",
    "require_provider_id",
]

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey

MAX_REQUEST: Final = 1536 * 1024
"""Bytes of the PEM text (P1). The largest blocks need 1.4 MiB; etcd's default limit is 1.5 MiB."""

# X.520 limits a CN to 64 characters, and `cryptography` warns of longer ones. Kubernetes puts node
# names of up to 253 characters there, and Go and OpenSSL accept them. The filter is set for the
# process: `warnings.catch_warnings` is not safe with threads, and takes 40 us for each certificate.
warnings.filterwarnings("ignore", message="Attribute's length", category=UserWarning)


def encode_request(pkcs10_der: bytes, data: bytes) -> bytes:
    """Return the three blocks: request, provider, attestation data."""
    blocks = ((PEM_REQUEST, pkcs10_der), (PEM_PROVIDER, PROVIDER), (PEM_DATA, data))
    return b"".join(encode_block(label, content) for label, content in blocks)


def decode_request(request: bytes) -> tuple[bytes, bytes]:
    """Parse exactly the three blocks; return PKCS#10 DER and attestation data (P1, P2).

    Raises `TooLarge`, `PemNotCanonical`, `PemBlocksUnexpected`, `ProviderUnknown`.
    """
    pkcs10, provider, data = _blocks(request, (PEM_REQUEST, PEM_PROVIDER, PEM_DATA))
    if provider != PROVIDER:
        raise ProviderUnknown("attestation provider must be tpm")
    return pkcs10, data


def decode_plain_request(request: bytes) -> bytes:
    """Parse the single block of a request without attestation; return PKCS#10 DER (P1, P2).

    Raises `TooLarge`, `PemNotCanonical`, `PemBlocksUnexpected`.
    """
    (pkcs10,) = _blocks(request, (PEM_REQUEST,))
    return pkcs10


def _blocks(request: bytes, labels: tuple[str, ...]) -> list[bytes]:
    if len(request) > MAX_REQUEST:
        raise TooLarge("request exceeds 1.5 MiB")
    try:
        # Reading stops at the first block too many: there may be tens of thousands.
        blocks = list(islice(decode_blocks(request), len(labels) + 1))
    except PemMalformed as error:
        raise PemNotCanonical(f"request: {error}") from None
    if tuple(label for label, _ in blocks) != labels:
        raise PemBlocksUnexpected(f"request must have exactly the blocks {', '.join(labels)}")
    return [content for _, content in blocks]


def node_subject(node_name: str, *groups: str) -> x509.Name:
    """Return the subject O=system:nodes, CN=system:node:<name> of a request or certificate.

    `groups` are further organizations. Raises `NodeNameInvalid`.
    """
    common_name = NODE_USER_PREFIX + require_node_name(node_name)
    organizations = (NODES_GROUP, *groups)
    return x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name, _validate=False),
        ]
    )


def build_pkcs10(
    private_key: PrivateKey,
    *,
    node_name: str,
    provider_id: str,
    dns_names: Iterable[str] = (),
    ip_addresses: Iterable[IPv4Address | IPv6Address] = (),
) -> bytes:
    """Build and sign a request; return DER for `parse_pkcs10`. Only serving requests have names.

    Raises `NodeNameInvalid`, `ProviderIDMalformed`; `ValueError` for a DNS name that is not ASCII.
    """
    encoded_id = der.encode(der.UTF8_STRING, require_provider_id(provider_id).encode())
    builder = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(node_subject(node_name))
        .add_extension(
            x509.UnrecognizedExtension(x509.ObjectIdentifier(PROVIDER_ID_OID), encoded_id),
            critical=False,
        )
    )
    names = [*map(x509.DNSName, dns_names), *map(x509.IPAddress, ip_addresses)]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    request = builder.sign(private_key, _digest_for(private_key))
    return request.public_bytes(Encoding.DER)


def _digest_for(private_key: PrivateKey) -> hashes.SHA256 | hashes.SHA384:
    """Return the hash of the curve's strength; SHA-256 for RSA."""
    if isinstance(private_key, ec.EllipticCurvePrivateKey) and private_key.curve.key_size > 256:  # noqa: PLR2004
        return hashes.SHA384()
    return hashes.SHA256()
