"""Issues the certificate of a verified answer (I1).

Subject and subject alternative names are the verified and claimed ones. Everything else that the
requester wrote is left out, so the signer never signs an extension or a name of its choice.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from cryptography.hazmat.primitives.serialization import Encoding

from signer.errors import AuthorityUnavailable
from signer.issue.authority import CertificateAuthority
from signer.issue.leaf import sign_leaf
from signer.kinds.csr import Csr, credential_id
from signer.verify.answer import VerifiedAnswer
from signer.verify.machines.claim_writes import WithheldCertificate
from signer.verify.requests.recognize import CsrKind


def certificate_not_after(
    *, lifetime: timedelta, csr: Csr, authority: CertificateAuthority, now: datetime
) -> datetime:
    """Return `notAfter` of the new certificate in whole seconds, the precision of certificates.

    It is the earliest of three: `lifetime` from now, `expirationSeconds` from now, and the end of
    the authority's own certificate. Raises `AuthorityUnavailable`: the authority's certificate is
    not valid now.
    """
    certificate = authority.certificate
    if not certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc:
        raise AuthorityUnavailable("the cluster's certificate authority is not valid now")
    ends = [now + lifetime, certificate.not_valid_after_utc]
    if csr.expiration_seconds is not None:
        ends.append(now + timedelta(seconds=csr.expiration_seconds))
    return min(ends).replace(microsecond=0)


def issue_certificate(  # noqa: PLR0913 - everything that it depends on
    verified: VerifiedAnswer,
    group: str,
    *,
    not_after: datetime,
    authority: CertificateAuthority,
    now: datetime,
    random: Callable[[int], bytes],
) -> WithheldCertificate:
    """Sign the leaf certificate, which `make_claims` releases when the claims name it.

    A client certificate says with `group` for which key it was issued.
    """
    serving = verified.kind is CsrKind.SERVING
    certificate = sign_leaf(
        verified.public_key,
        verified.holder.node_name,
        serving_names=verified.serving_names,
        groups=() if serving else (group,),
        not_after=not_after,
        authority=authority,
        now=now,
        random=random,
    )
    der = certificate.public_bytes(Encoding.DER)
    return WithheldCertificate(
        pem=certificate.public_bytes(Encoding.PEM),
        credential_id="" if serving else credential_id(der),
        not_after=not_after,
    )
