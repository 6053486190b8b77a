"""Endorsement certificates (E2): whether one certifies this very key, up to a configured authority.

OpenSSL builds and checks the chain (signer/verify/x509/certificate_chain.py). It accepts much that must
not pass, so algorithms, keys, usages and form are judged here. What a certificate proves is that
the key sits in some TPM of that vendor; whose TPM is not in it.

Source: RFC 5280 section 6; TCG EK Credential Profile 2.x, section 3.2; docs/protocol.md section 5.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec, rsa

from common.errors import AttestationError
from common.public_keys import PublicKey, canonical_spki
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
    CertificateMalformed,
    basic_constraints,
    certifies_key,
    extended_key_usage,
    extract_certificate,
    key_usage,
    read_fields,
)
from signer.verify.x509.revocation import require_not_revoked
from signer.verify.x509.trust_anchors import NO_ANCHORS, TrustAnchors, load_trust_anchors

__all__ = ["NO_ANCHORS", "TrustAnchors", "load_trust_anchors", "verify_endorsement_certificate"]

_MAX_CERTIFICATES: Final = 16
"""A TPM has a certificate for each of a few endorsement keys, and a chain of at most five."""

_ENDORSEMENT_KEY_PURPOSE: Final = "2.23.133.8.1"
"""tcg-kp-EKCertificate."""
_KEY_ENCIPHERMENT: Final = 2
_KEY_AGREEMENT: Final = 4
_CERTIFICATE_SIGNING: Final = 5
"""Bits of KeyUsage (RFC 5280, section 4.2.1.3)."""

_LEAST_RSA_BITS: Final = 2048
_LEAST_RSA_EXPONENT: Final = 65537


def verify_endorsement_certificate(
    certificates: Sequence[bytes], key: PublicKey, *, anchors: TrustAnchors, now: datetime
) -> None:
    """Check that one of the TPM's certificates certifies this very key, up to an authority.

    The others serve as intermediates, where they can be read.

    Raises:
        EndorsementCertificateMissing, EndorsementCertificateMalformed: none to check.
        EndorsementCertificateMismatch: all are for other keys.
        EndorsementCertificateUntrusted, EndorsementCertificateNotAllowed,
        EndorsementCertificateOutOfDate, EndorsementCertificateRevoked: no chain passes.
        RevocationListOutOfDate: nobody knows what is revoked.

    """
    given = _read(certificates)
    spki = canonical_spki(key)
    candidates = [fields for fields in given if certifies_key(fields, spki)]
    if not candidates:
        raise EndorsementCertificateMismatch(
            f"no certificate from the TPM is for its endorsement key{REMEDY}"
        )
    errors: list[AttestationError] = []
    for leaf in candidates:
        try:
            _verify_chain(leaf, given, anchors, now)
        except AttestationError as error:
            errors.append(error)
        else:
            return
    raise errors[0]


def _read(certificates: Sequence[bytes]) -> list[CertificateFields]:
    if not certificates:
        raise EndorsementCertificateMissing(f"the TPM has no endorsement certificate{REMEDY}")
    given: list[CertificateFields] = []
    problem = ""
    for data in certificates[:_MAX_CERTIFICATES]:
        try:
            given.append(read_fields(extract_certificate(data)))
        except CertificateMalformed as error:
            problem = str(error)
    if not given:
        raise EndorsementCertificateMalformed(f"endorsement certificate: {problem}{REMEDY}")
    return given


def _verify_chain(
    leaf: CertificateFields,
    given: Sequence[CertificateFields],
    anchors: TrustAnchors,
    now: datetime,
) -> None:
    try:
        _require_leaf(leaf)
        chain = build_chain(leaf, given, anchors, now)
        for authority in chain[1:-1]:
            _require_signature_algorithm(authority)
        for below, authority in enumerate(chain[1:]):
            _require_authority(authority, below)
    except CertificateMalformed as error:
        raise EndorsementCertificateMalformed(f"certificate: {error}{REMEDY}") from None
    require_not_revoked(chain, anchors, now)


def _require_leaf(leaf: CertificateFields) -> None:
    """Judge what OpenSSL does not: usage and form of an endorsement certificate."""
    _require_signature_algorithm(leaf)
    if basic_constraints(leaf).ca:
        raise _not_allowed("it is a certificate authority's")
    usage = key_usage(leaf)
    needed = _KEY_ENCIPHERMENT if isinstance(leaf.public_key, rsa.RSAPublicKey) else _KEY_AGREEMENT
    if usage is not None and (needed not in usage or _CERTIFICATE_SIGNING in usage):
        raise _not_allowed("its key usage is not that of an endorsement key")
    purposes = extended_key_usage(leaf)
    if purposes is not None and _ENDORSEMENT_KEY_PURPOSE not in purposes:
        raise _not_allowed("its extended key usage is not that of an endorsement key")


def _require_signature_algorithm(fields: CertificateFields) -> None:
    signed, beside = fields.signature_algorithms
    if signed != beside or signed not in SIGNATURE_ALGORITHMS:
        raise _not_allowed("it is not signed with RSA or ECDSA and SHA-256 or better")


def _require_authority(authority: CertificateFields, below: int) -> None:
    """Judge an authority that has this many others below it."""
    most = _path_length(authority.der)
    if most is not None and most < below:
        raise _not_allowed("an authority above it may not have so many below it")


@lru_cache(maxsize=256)
def _path_length(der: bytes) -> int | None:
    """Judge an authority by itself; return how many others may be below it.

    Nearly always it is one of the few that are configured, so it is judged once.
    """
    authority = read_fields(der)
    constraints = basic_constraints(authority)
    if not constraints.ca:
        raise _not_allowed("a certificate above it is not that of an authority")
    usage = key_usage(authority)
    if usage is not None and _CERTIFICATE_SIGNING not in usage:
        raise _not_allowed("an authority above it may not sign certificates")
    key = authority.public_key
    if key is None:
        raise _not_allowed("the key of an authority above it is not one that is taken")
    _require_authority_key(key)
    return constraints.path_length


def _require_authority_key(key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey) -> None:
    if isinstance(key, rsa.RSAPublicKey) and (
        key.key_size < _LEAST_RSA_BITS or key.public_numbers().e < _LEAST_RSA_EXPONENT
    ):
        raise _not_allowed("the RSA key of an authority above it is too short, or of e = 3")
    try:
        reject_weak_key(key)
    except WeakKey as error:
        raise _not_allowed(f"the key of an authority above it is weak: {error}") from None


def _not_allowed(rule: str) -> EndorsementCertificateNotAllowed:
    return EndorsementCertificateNotAllowed(f"endorsement certificate: {rule}{REMEDY}")
