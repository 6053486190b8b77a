"""Attestation keys that a platform certifies (A2)."""

from collections.abc import Mapping
from typing import Final

from common.errors import AttestationError
from common.evidence import TpmKeys
from signer.errors import (
    AttestationCertificateMalformed,
    AttestationCertificateMismatch,
    AttestationCertificateNotAllowed,
    AttestationCertificateOutOfDate,
    AttestationCertificateUntrusted,
    EndorsementCertificateOutOfDate,
    EndorsementCertificateUntrusted,
)
from signer.verify.attestation.attestation_key import AttestationKey, verify_attestation_key
from signer.verify.context import VerificationContext
from signer.verify.x509.certificate_chain import REMEDY
from signer.verify.x509.endorsement_certificate import require_signature_algorithm, verify_chain
from signer.verify.x509.fields import (
    CertificateFields,
    basic_constraints,
    extended_key_usage,
    extract_certificate,
    key_usage,
    read_fields,
)
from signer.verify.x509.lenient_der import CertificateMalformed

_ATTESTATION_KEY_PURPOSE: Final = "2.23.133.8.3"
"""tcg-kp-AIKCertificate."""
_X509_V3: Final = 3
_DIGITAL_SIGNATURE: Final = 0
_CERTIFICATE_SIGNING: Final = 5
"""Bits of KeyUsage (RFC 5280, section 4.2.1.3)."""
_REASONS: Final[Mapping[type[AttestationError], type[AttestationError]]] = {
    EndorsementCertificateUntrusted: AttestationCertificateUntrusted,
    EndorsementCertificateOutOfDate: AttestationCertificateOutOfDate,
}
"""The error for each error that an endorsement certificate with the same chain would have."""


def verify_presented_attestation_key(
    evidence: TpmKeys, context: VerificationContext
) -> AttestationKey:
    """Verify the attestation key (A1); one with an authorization policy must be certified (A2).

    Raises what `verify_attestation_key` and `verify_attestation_certificate` raise.
    """
    rules = context.policy.attestation_key
    can_be_certified = bool(rules.certificate_authorities) and evidence.ak_certificate is not None
    key = verify_attestation_key(evidence.ak_public, rules.schemes, allow_policy=can_be_certified)
    if key.has_policy:
        verify_attestation_certificate(key, evidence, context)
    return key


def verify_attestation_certificate(
    key: AttestationKey, evidence: TpmKeys, context: VerificationContext
) -> CertificateFields | None:
    """Return the certificate that a configured authority gave to this attestation key (A2).

    `None` if the node has none, or the policy names no authority for attestation keys.

    Raises:
        AttestationCertificateMalformed: the certificate cannot be read.
        AttestationCertificateMismatch: it is for another key.
        AttestationCertificateUntrusted, AttestationCertificateOutOfDate,
        AttestationCertificateNotAllowed: no chain of it is valid.

    """
    if (
        evidence.ak_certificate is None
        or not context.policy.attestation_key.certificate_authorities
    ):
        return None
    try:
        leaf = read_fields(extract_certificate(evidence.ak_certificate))
        if leaf.public_key != key.public_key:
            raise AttestationCertificateMismatch(
                f"the certificate in the TPM is not for its attestation key{REMEDY}"
            )
        _require_leaf(leaf)
        _require_chain(leaf, context)
    except CertificateMalformed as error:
        message = f"attestation key certificate: {error}{REMEDY}"
        raise AttestationCertificateMalformed(message) from error
    return leaf


def _require_leaf(leaf: CertificateFields) -> None:
    """Check version, algorithm and usage of the certificate of an attestation key."""
    usage = key_usage(leaf)
    rules = {
        "must be an X.509 version 3 certificate": leaf.version == _X509_V3,
        "must not be the certificate of an authority": not basic_constraints(leaf).ca
        and (usage is None or _CERTIFICATE_SIGNING not in usage),
        "its key usage must be to sign": usage is None or _DIGITAL_SIGNATURE in usage,
        "its extended key usage must be that of an attestation key": _ATTESTATION_KEY_PURPOSE
        in (extended_key_usage(leaf) or ()),
    }
    for rule, holds in rules.items():
        if not holds:
            raise AttestationCertificateNotAllowed(f"attestation key certificate: {rule}{REMEDY}")


def _require_chain(leaf: CertificateFields, context: VerificationContext) -> None:
    try:
        require_signature_algorithm(leaf)
        verify_chain(leaf, (leaf,), context.anchors, context.now)
    except AttestationError as error:
        reason = _REASONS.get(type(error), AttestationCertificateNotAllowed)
        message = f"no chain of the attestation key's certificate is valid{REMEDY}"
        raise reason(message, detail=error.detail or error.message) from error
