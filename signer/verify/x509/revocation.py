"""Revocation of endorsement certificates, by lists from files (E2).

Nothing is fetched. A list counts for the authority that signed it, and only while it is valid: by
an old one, nobody knows what is revoked.
"""

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPublicKeyTypes

from signer.errors import (
    EndorsementCertificateNotAllowed,
    EndorsementCertificateRevoked,
    RevocationListOutOfDate,
)
from signer.verify.x509.fields import CertificateFields
from signer.verify.x509.trust_anchors import Crl, TrustAnchors


def require_not_revoked(
    chain: Sequence[CertificateFields], anchors: TrustAnchors, now: datetime
) -> None:
    """Check each certificate of a verified chain against the lists of its issuer.

    Raises:
        EndorsementCertificateRevoked: a list names it.
        EndorsementCertificateNotAllowed: no list could.
        RevocationListOutOfDate: a list of its issuer is not valid now, and no other one is.

    """
    for certificate, issuer in pairwise(chain):
        lists = [found for found in anchors.revocation_lists if _is_of(found, issuer)]
        if lists and certificate.serial < 0:
            raise EndorsementCertificateNotAllowed(
                "endorsement certificate: its serial number is negative, so no list can name it"
            )
        for found in lists:
            if found.loaded.get_revoked_certificate_by_serial_number(certificate.serial):
                raise EndorsementCertificateRevoked("the endorsement certificate is revoked")
        if lists and not any(_is_valid(found, now) for found in lists):
            raise RevocationListOutOfDate(
                "a revocation list is out of date", detail=", ".join(f.source for f in lists)
            )


def _is_of(found: Crl, issuer: CertificateFields) -> bool:
    """Tell whether an authority signed a list; its name alone would let a namesake speak for it."""
    key: CertificateIssuerPublicKeyTypes | None = issuer.public_key
    return (
        key is not None and found.issuer == issuer.subject and found.loaded.is_signature_valid(key)
    )


def _is_valid(found: Crl, now: datetime) -> bool:
    end = found.loaded.next_update_utc
    return found.loaded.last_update_utc <= now and end is not None and now <= end
