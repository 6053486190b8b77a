"""Revocation of endorsement certificates by the configured lists (E2).

The signer downloads nothing. A list is valid only for the authority whose key signed it, and only
until its nextUpdate: an expired list cannot show that a certificate is not revoked.
"""

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

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
    """Check each certificate of a verified chain, leaf first, against its issuer's lists.

    Raises:
        EndorsementCertificateRevoked: a list, current or expired, names the certificate.
        EndorsementCertificateNotAllowed: the issuer has a list, and no list can name the serial
            number.
        RevocationListOutOfDate: the issuer has lists, but no list is valid now.

    """
    for certificate, issuer in pairwise(chain):
        lists = [crl for crl in anchors.revocation_lists if crl.is_issued_by(issuer)]
        if lists and certificate.serial < 0:
            raise EndorsementCertificateNotAllowed(
                "endorsement certificate: a negative serial number cannot be revoked"
            )
        for crl in lists:
            if crl.loaded.get_revoked_certificate_by_serial_number(certificate.serial):
                raise EndorsementCertificateRevoked("the endorsement certificate is revoked")
        if lists and not any(_is_valid(crl, now) for crl in lists):
            raise RevocationListOutOfDate(
                "a revocation list is out of date", detail=", ".join(crl.source for crl in lists)
            )


def _is_valid(crl: Crl, now: datetime) -> bool:
    end = crl.loaded.next_update_utc
    return crl.loaded.last_update_utc <= now and end is not None and now <= end
