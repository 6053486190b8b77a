"""Endorsement certificates (E2): verify that a configured authority certifies the TPM's key.

OpenSSL builds and checks the chain (certificate_chain.py), but it accepts more than this protocol
does. So this module checks algorithms, keys, usages and form. A valid certificate proves that the
key is in some TPM of the vendor. It does not prove which machine has that TPM.

Source: RFC 5280 section 6; TCG EK Credential Profile 2.x, section 3.2; docs/protocol.md section 5.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec, rsa

from common.errors import AttestationError
from common.public_keys import PublicKey
from signer.errors import (
    EndorsementCertificateMalformed,
    EndorsementCertificateMismatch,
    EndorsementCertificateMissing,
    EndorsementCertificateNotAllowed,
)
from signer.verify.weak_keys import WeakKey, reject_weak_key
from signer.verify.x509.certificate_chain import REMEDY, SIGNATURE_ALGORITHMS, build_chain
from signer.verify.x509.fields import (
    CertificateFields,
    basic_constraints,
    extended_key_usage,
    extract_certificate,
    key_usage,
    read_fields,
)
from signer.verify.x509.lenient_der import CertificateMalformed
from signer.verify.x509.revocation import require_not_revoked
from signer.verify.x509.trust_anchors import TrustAnchors

_MAX_CERTIFICATES: Final = 16
"""A TPM holds a certificate for each of a few endorsement keys, and a chain of five at most."""

_ENDORSEMENT_KEY_PURPOSE: Final = "2.23.133.8.1"
"""tcg-kp-EKCertificate."""
_KEY_ENCIPHERMENT: Final = 2
_KEY_AGREEMENT: Final = 4
_CERTIFICATE_SIGNING: Final = 5
"""Bits of KeyUsage (RFC 5280, section 4.2.1.3)."""

_X509_V3: Final = 3
_MIN_RSA_BITS: Final = 2048
_MIN_RSA_EXPONENT: Final = 65537


def verify_endorsement_certificate(
    certificates: Sequence[bytes],
    key: PublicKey,
    *,
    anchors: TrustAnchors,
    now: datetime,
    allow_without_usage: bool = False,
) -> CertificateFields:
    """Return a certificate of the TPM that certifies this key, up to a configured authority.

    The other readable certificates serve as intermediates. `allow_without_usage` accepts a
    certificate that has neither key usage nor extended key usage.

    Raises:
        EndorsementCertificateMissing: there is no certificate.
        EndorsementCertificateMalformed: no certificate is readable.
        EndorsementCertificateMismatch: all certificates are for other keys.
        EndorsementCertificateUntrusted, EndorsementCertificateNotAllowed,
        EndorsementCertificateOutOfDate, EndorsementCertificateRevoked: no chain is valid; the
            error is that of the first certificate for this key.
        RevocationListOutOfDate: the revocation status is unknown.

    """
    provided = _read(certificates)
    candidates = [fields for fields in provided if fields.public_key == key]
    if not candidates:
        raise EndorsementCertificateMismatch(
            f"no certificate of the TPM is for its endorsement key{REMEDY}"
        )
    errors: list[AttestationError] = []
    for leaf in candidates:
        try:
            _require_leaf(leaf, allow_without_usage=allow_without_usage)
            verify_chain(leaf, provided, anchors, now)
        except CertificateMalformed as error:
            message = f"endorsement certificate: {error}{REMEDY}"
            errors.append(EndorsementCertificateMalformed(message))
        except AttestationError as error:
            errors.append(error)
        else:
            return leaf
    raise errors[0]


def find_endorsement_certificate(
    certificates: Sequence[bytes], key: PublicKey
) -> CertificateFields | None:
    """Return the first certificate for this key without any check, `None` without one."""
    try:
        provided = _read(certificates)
    except AttestationError:
        return None
    return next((fields for fields in provided if fields.public_key == key), None)


def _read(certificates: Sequence[bytes]) -> list[CertificateFields]:
    if not certificates:
        raise EndorsementCertificateMissing(f"the TPM has no endorsement certificate{REMEDY}")
    readable: list[CertificateFields] = []
    problem = ""
    for data in certificates[:_MAX_CERTIFICATES]:
        try:
            readable.append(read_fields(extract_certificate(data)))
        except CertificateMalformed as error:
            problem = str(error)
    if not readable:
        raise EndorsementCertificateMalformed(f"endorsement certificate: {problem}{REMEDY}")
    return readable


def verify_chain(
    leaf: CertificateFields,
    provided: Sequence[CertificateFields],
    anchors: TrustAnchors,
    now: datetime,
) -> None:
    """Verify a chain from the leaf to a configured root. Raises as the chain's errors say."""
    chain = build_chain(leaf, provided, anchors, now)
    for authority in chain[1:-1]:
        require_signature_algorithm(authority)
    for intermediates, authority in enumerate(chain[1:]):
        _require_authority(authority, intermediates)
    require_not_revoked(chain, anchors, now)


def _require_leaf(leaf: CertificateFields, *, allow_without_usage: bool) -> None:
    """Check what OpenSSL does not: version, algorithm and usage of an endorsement certificate."""
    if leaf.version != _X509_V3:
        raise _not_allowed("must be an X.509 version 3 certificate")
    require_signature_algorithm(leaf)
    if basic_constraints(leaf).ca:
        raise _not_allowed("must not be the certificate of an authority")
    required = (
        _KEY_ENCIPHERMENT if isinstance(leaf.public_key, rsa.RSAPublicKey) else _KEY_AGREEMENT
    )
    usage = key_usage(leaf)
    if usage is not None and (required not in usage or _CERTIFICATE_SIGNING in usage):
        raise _not_allowed("its key usage must be that of an endorsement key")
    purposes = extended_key_usage(leaf)
    if purposes is not None and _ENDORSEMENT_KEY_PURPOSE not in purposes:
        raise _not_allowed("its extended key usage must be that of an endorsement key")
    # A vendor's authority may sign more than endorsement certificates, and only a usage
    # distinguishes them. The TCG profile requires both; certificates of older TPMs lack them.
    if usage is None and purposes is None and not allow_without_usage:
        raise _not_allowed(
            "must have a key usage or an extended key usage"
            " (the policy can set allowCertificatesWithoutUsage)"
        )


def require_signature_algorithm(fields: CertificateFields) -> None:
    """Require a signature that is not broken. Raises `EndorsementCertificateNotAllowed`."""
    signed, outer = fields.signature_algorithms
    if signed != outer or signed not in SIGNATURE_ALGORITHMS:
        raise _not_allowed("must be signed with RSA or ECDSA and SHA-256 or better")


def _require_authority(authority: CertificateFields, intermediates: int) -> None:
    """Check an authority that has this many intermediates between itself and the leaf."""
    limit = _verified_path_length(authority.der)
    if limit is not None and limit < intermediates:
        raise _not_allowed("an authority above it must not have so many authorities below it")


@lru_cache(maxsize=256)
def _verified_path_length(der: bytes) -> int | None:
    """Check an authority by itself; return its path length constraint.

    Nearly all authorities are configured ones, so the result is cached.
    """
    authority = read_fields(der)
    constraints = basic_constraints(authority)
    if authority.version != _X509_V3 or not constraints.ca:
        raise _not_allowed("a certificate above it is not the certificate of an authority")
    usage = key_usage(authority)
    if usage is not None and _CERTIFICATE_SIGNING not in usage:
        raise _not_allowed("an authority above it must not sign certificates")
    key = authority.public_key
    if key is None:
        raise _not_allowed("the key type of an authority above it is not supported")
    _require_authority_key(key)
    return constraints.path_length


def _require_authority_key(key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey) -> None:
    if isinstance(key, rsa.RSAPublicKey) and (
        key.key_size < _MIN_RSA_BITS or key.public_numbers().e < _MIN_RSA_EXPONENT
    ):
        raise _not_allowed("the RSA key of an authority above it is too short, or its exponent is")
    try:
        reject_weak_key(key)
    except WeakKey as error:
        raise _not_allowed(f"the key of an authority above it is weak: {error}") from None


def _not_allowed(rule: str) -> EndorsementCertificateNotAllowed:
    return EndorsementCertificateNotAllowed(f"endorsement certificate: {rule}{REMEDY}")
