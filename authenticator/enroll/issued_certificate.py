"""The kubelet's key, and the certificate that comes back for it.

The key is a software key on P-256, made afresh for every offer, because the exec protocol hands it
over as PEM; the TPM's statement binds it. What a client's chain is worth is the API server's
business: the node only knows its serving CA (docs/protocol.md section 6).
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from authenticator.errors import CertificateMismatch, CertificateNotAccepted
from authenticator.model import CertificateSpec
from common.csr import allow_long_common_names
from common.names import NODE_USER_PREFIX, NODES_GROUP

_T = TypeVar("_T", bound=x509.ExtensionType)
_EXTENDED: Final = {
    "client auth": ExtendedKeyUsageOID.CLIENT_AUTH,
    "server auth": ExtendedKeyUsageOID.SERVER_AUTH,
}
"""What usages of a CSR become in a certificate."""

CLOCK_TOLERANCE_SECONDS: Final = 24 * 3600
"""How far the dates may be off the node's clock. Whether they hold is seen when it is tried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedCertificate:
    """A certificate that is as it was asked for. Times are unix seconds."""

    chain: bytes
    """The leaf, then whatever came after it, as canonical PEM."""
    not_before: int
    not_after: int


def new_key() -> ec.EllipticCurvePrivateKey:
    """Make a key."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Write the key as PKCS#8 PEM, unencrypted."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def verify_issued_certificate(
    certificates: bytes, key: bytes, wanted: CertificateSpec, now: float
) -> IssuedCertificate:
    """Check what came back for `key`: that key, subject, usage, names, validity, no CA.

    Raises CertificateMismatch.
    """
    try:
        chain = x509.load_pem_x509_certificates(certificates)
        leaf = chain[0]
        _require_key(leaf, key)
        _require_subject(leaf, wanted.node_name)
        _require_extensions(leaf, wanted)
    except (ValueError, UnsupportedAlgorithm, x509.DuplicateExtension) as error:
        raise CertificateMismatch("the certificate that came back cannot be read") from error
    not_before, not_after = (
        int(date.timestamp()) for date in (leaf.not_valid_before_utc, leaf.not_valid_after_utc)
    )
    within = not_before - CLOCK_TOLERANCE_SECONDS <= now < not_after + CLOCK_TOLERANCE_SECONDS
    if not_before >= not_after or not within:
        raise CertificateMismatch(
            "the certificate that came back is not valid now; is this machine's clock right?"
        )
    return IssuedCertificate(
        chain=b"".join(certificate.public_bytes(Encoding.PEM) for certificate in chain),
        not_before=not_before,
        not_after=not_after,
    )


def verify_chain(chain: bytes, authorities: str) -> None:
    """Check that a chain, leaf first as TLS servers send it, leads to one of the authorities.

    The API server's own check of the kubelet is what counts; this one is made before a certificate
    is put in the place of one that works. Raises CertificateNotAccepted.
    """
    try:
        anchors = x509.load_pem_x509_certificates(authorities.encode())
        certificates = x509.load_pem_x509_certificates(chain)
    except ValueError as error:
        raise CertificateNotAccepted("the kubeconfig's CA cannot be read") from error
    for position, certificate in enumerate(certificates):
        if _issuer(certificate, anchors) is not None:
            return
        if _issuer(certificate, certificates[position + 1 : position + 2]) is None:
            break
    raise CertificateNotAccepted(
        "the new certificate does not lead to the kubeconfig's CA: is it the signer's?"
    )


def _issuer(
    certificate: x509.Certificate, candidates: Sequence[x509.Certificate]
) -> x509.Certificate | None:
    for candidate in candidates:
        with contextlib.suppress(ValueError, TypeError, InvalidSignature):
            certificate.verify_directly_issued_by(candidate)
            return candidate
    return None


def _require_key(leaf: x509.Certificate, key: bytes) -> None:
    mine, its = (
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        for public in (load_pem_private_key(key, None).public_key(), leaf.public_key())
    )
    if mine != its:
        raise CertificateMismatch("the certificate that came back is for another key")


def _require_subject(leaf: x509.Certificate, node_name: str) -> None:
    with allow_long_common_names():
        found = [(attribute.oid.dotted_string, attribute.value) for attribute in leaf.subject]
    wanted = [
        (NameOID.COMMON_NAME.dotted_string, NODE_USER_PREFIX + node_name),
        (NameOID.ORGANIZATION_NAME.dotted_string, NODES_GROUP),
    ]
    if sorted(found) != sorted(wanted):
        raise CertificateMismatch("the certificate that came back has another subject")


def _require_extensions(leaf: x509.Certificate, wanted: CertificateSpec) -> None:
    usage = _extension(leaf, x509.ExtendedKeyUsage)
    for name, purpose in _EXTENDED.items():
        if name in wanted.usages and (usage is None or purpose not in usage):
            raise CertificateMismatch(f"the certificate that came back is not for {name}")
    names = _extension(leaf, x509.SubjectAlternativeName)
    if {name.value for name in names or ()} != set(wanted.names):
        raise CertificateMismatch("the certificate that came back has other names")
    constraints = _extension(leaf, x509.BasicConstraints)
    if constraints is not None and constraints.ca:
        raise CertificateMismatch("the certificate that came back is an authority's")


def _extension(leaf: x509.Certificate, kind: type[_T]) -> _T | None:
    try:
        return leaf.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None
