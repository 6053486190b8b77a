"""The kubelet's key, and the certificate that comes back for it.

Each offer gets a new software key on P-256, because the exec protocol returns keys as PEM; the
TPM's quote binds it. The API server verifies the chain of a client certificate: the node knows
only the API server's serving CA (docs/protocol.md section 6).
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

from authenticator.errors import CertificateMismatch, CertificateNotAccepted, ClockSkewTooLarge
from authenticator.model import CertificateSpec
from authenticator.state.credential import rfc3339
from common.names import NODE_USER_PREFIX, NODES_GROUP
from common.node_identity import is_attested_group, is_group_of_key

_T = TypeVar("_T", bound=x509.ExtensionType)
_EXTENDED: Final = {
    "client auth": ExtendedKeyUsageOID.CLIENT_AUTH,
    "server auth": ExtendedKeyUsageOID.SERVER_AUTH,
}
"""Usages of a CSR to extended key usages of a certificate."""

CLOCK_TOLERANCE_SECONDS: Final = 24 * 3600
"""How far the dates may be off the node's clock. The trial shows whether they hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedCertificate:
    """A certificate that matches its request. Times are unix seconds."""

    chain: bytes
    """The leaf, then the certificates that followed it, as canonical PEM."""
    not_before: int
    not_after: int


def new_key() -> ec.EllipticCurvePrivateKey:
    """Generate a key."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return the key as PKCS#8 PEM, unencrypted."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def verify_issued_certificate(
    certificates: bytes, key: bytes, spec: CertificateSpec, now: float
) -> IssuedCertificate:
    """Verify that the certificate is for `key` and matches the spec.

    Key, subject, usages and names are those of the request, and a client certificate also has the
    group of a key; it is not a CA's; it is valid, to within a day, by the node's clock. Raises
    `CertificateMismatch`, `ClockSkewTooLarge`.
    """
    try:
        chain = x509.load_pem_x509_certificates(certificates)
        leaf = chain[0]
        _require_key(leaf, key)
        _require_extensions(leaf, spec)
        _require_subject(leaf, spec.node_name, client="client auth" in spec.usages)
        leaf.issuer.public_bytes()  # Names are parsed at their first use.
    except (
        *(ValueError, TypeError, UnsupportedAlgorithm, x509.DuplicateExtension),
        *(x509.InvalidVersion, x509.UnsupportedGeneralNameType),
    ) as error:
        raise CertificateMismatch("the certificate that came back cannot be read") from error
    not_before, not_after = (
        int(date.timestamp()) for date in (leaf.not_valid_before_utc, leaf.not_valid_after_utc)
    )
    if not_before >= not_after:
        raise CertificateMismatch("the certificate that came back ends before it begins")
    if not not_before - CLOCK_TOLERANCE_SECONDS <= now < not_after + CLOCK_TOLERANCE_SECONDS:
        raise ClockSkewTooLarge(
            f"the certificate that came back is valid from {rfc3339(not_before)} to"
            f" {rfc3339(not_after)}, and this node's clock says {rfc3339(now)}: correct the clock"
            " of this node, or of the signer"
        )
    return IssuedCertificate(
        chain=b"".join(certificate.public_bytes(Encoding.PEM) for certificate in chain),
        not_before=not_before,
        not_after=not_after,
    )


def is_of_key(chain: bytes, key_name: str) -> bool:
    """Return whether a client certificate that was stored names this endorsement key.

    `key_name` is the SHA-256 of its SubjectPublicKeyInfo in hex. Raises `ValueError` if the
    certificate cannot be read.
    """
    leaf = x509.load_pem_x509_certificates(chain)[0]
    groups = leaf.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return any(is_group_of_key(str(group.value), key_name) for group in groups)


def verify_serving_chain(chain: bytes, client_chain: bytes, authorities: Sequence[str]) -> None:
    """Verify that the API server can be expected to accept a serving certificate.

    Either its issuer is that of the node's client certificate, which the API server accepts: where
    a load balancer terminates TLS, the kubeconfig's CA is not the cluster's. Or its chain leads to
    the kubeconfig's CA. The API server's own check of the kubelet decides; this one protects a
    certificate that works from being replaced. Raises `CertificateNotAccepted`.
    """
    leaf, client = (x509.load_pem_x509_certificates(pem)[0] for pem in (chain, client_chain))
    if _issuer_of(leaf) != _issuer_of(client):
        verify_chain(chain, authorities)


def verify_chain(chain: bytes, authorities: Sequence[str]) -> None:
    """Verify that a chain, leaf first, leads to one of the authorities, each a PEM certificate.

    Raises `CertificateNotAccepted`.
    """
    anchors = []
    for authority in authorities:
        with contextlib.suppress(ValueError):
            anchors.append(x509.load_pem_x509_certificate(authority.encode()))
    if not anchors:
        raise CertificateNotAccepted("the kubeconfig's CA cannot be read")
    certificates = x509.load_pem_x509_certificates(chain)
    for position, certificate in enumerate(certificates):
        if _issuer(certificate, anchors) is not None:
            return
        if _issuer(certificate, certificates[position + 1 : position + 2]) is None:
            break
    raise CertificateNotAccepted(
        "the new certificate leads neither to the kubeconfig's CA nor to the issuer of the client"
        " certificate: does the signer have the cluster's CA?"
    )


def _issuer_of(certificate: x509.Certificate) -> tuple[bytes, bytes | None]:
    """Return the issuer's name, and its key's identifier if the certificate has one."""
    identifier = _extension(certificate, x509.AuthorityKeyIdentifier)
    key = None if identifier is None else identifier.key_identifier
    return certificate.issuer.public_bytes(), key


def _issuer(
    certificate: x509.Certificate, candidates: Sequence[x509.Certificate]
) -> x509.Certificate | None:
    for candidate in candidates:
        with contextlib.suppress(ValueError, TypeError, InvalidSignature):
            certificate.verify_directly_issued_by(candidate)
            return candidate
    return None


def _require_key(leaf: x509.Certificate, key: bytes) -> None:
    expected, actual = (
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        for public in (load_pem_private_key(key, None).public_key(), leaf.public_key())
    )
    if expected != actual:
        raise CertificateMismatch("the certificate that came back is for another key")


def _require_subject(leaf: x509.Certificate, node_name: str, *, client: bool) -> None:
    """Require the subject of the request, and in a client certificate the group of a key."""
    actual = sorted((each.oid.dotted_string, str(each.value)) for each in leaf.subject)
    groups = [value for _, value in actual if client and is_attested_group(value)]
    organizations = [NODES_GROUP, *groups]
    expected = [(NameOID.COMMON_NAME.dotted_string, NODE_USER_PREFIX + node_name)]
    expected += [(NameOID.ORGANIZATION_NAME.dotted_string, each) for each in organizations]
    if actual != sorted(expected) or len(groups) != client:
        raise CertificateMismatch("the certificate that came back has another subject")


def _require_extensions(leaf: x509.Certificate, spec: CertificateSpec) -> None:
    usage = _extension(leaf, x509.ExtendedKeyUsage)
    for name, purpose in _EXTENDED.items():
        if name in spec.usages and (usage is None or purpose not in usage):
            raise CertificateMismatch(f"the certificate that came back is not for {name}")
    names = _extension(leaf, x509.SubjectAlternativeName)
    if {name.value for name in names or ()} != set(spec.names):
        raise CertificateMismatch("the certificate that came back has other names")
    constraints = _extension(leaf, x509.BasicConstraints)
    if constraints is not None and constraints.ca:
        raise CertificateMismatch("the certificate that came back is a CA's")


def _extension(leaf: x509.Certificate, kind: type[_T]) -> _T | None:
    try:
        return leaf.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None
