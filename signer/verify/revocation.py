"""Revocation of endorsement certificates, by lists from files (E2).

Nothing is fetched. A list counts for the authority that signed it, and only while it is valid: by
an old one, nobody knows what is revoked.
"""

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPublicKeyTypes

from common.errors import EndorsementCertificateRevoked, RevocationListOutOfDate
from signer.verify.trust_anchors import RevocationList, TrustAnchors
from signer.verify.x509_fields import Fields


def require_not_revoked(chain: Sequence[Fields], anchors: TrustAnchors, now: datetime) -> None:
    """Check each certificate of a verified chain against the lists of its issuer.

    Raises:
        EndorsementCertificateRevoked: a list names it.
        RevocationListOutOfDate: a list of its issuer is not valid now, and no other one is.

    """
    for certificate, issuer in pairwise(chain):
        lists = [found for found in anchors.revocation_lists if _is_of(found, issuer)]
        for found in lists:
            if found.loaded.get_revoked_certificate_by_serial_number(certificate.serial):
                raise EndorsementCertificateRevoked("the endorsement certificate is revoked")
        if lists and not any(_is_valid(found, now) for found in lists):
            raise RevocationListOutOfDate(
                "a revocation list is out of date", detail=", ".join(f.source for f in lists)
            )


def _is_of(found: RevocationList, issuer: Fields) -> bool:
    """Tell whether an authority signed a list; its name alone would let a namesake speak for it."""
    key: CertificateIssuerPublicKeyTypes | None = issuer.public_key
    if key is None or found.issuer != issuer.subject:
        return False
    try:
        return found.loaded.is_signature_valid(key)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False


def _is_valid(found: RevocationList, now: datetime) -> bool:
    end = found.loaded.next_update_utc
    return found.loaded.last_update_utc <= now and end is not None and now <= end
