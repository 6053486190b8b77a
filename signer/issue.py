"""The certificate (I1), built from scratch: only the public key comes from the request."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from signer.model import Csr
from signer.policy import Policy
from signer.verdict import Claimed


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A cluster's certificate authority; the key is never shown."""

    certificate: x509.Certificate
    private_key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey = field(repr=False)


def certificate_not_after(
    *, policy: Policy, csr: Csr, authority: Authority, now: datetime
) -> datetime:
    """Return now plus the least of the policy's lifetime, `expirationSeconds` and the CA's rest.

    Raises:
        AuthorityUnavailable: the authority is not valid now.

    """
    raise NotImplementedError


def issue(
    claimed: Claimed,
    *,
    authority: Authority,
    now: datetime,
    random: Callable[[int], bytes],
) -> bytes:
    """Return the leaf certificate, PEM, and nothing else; valid until `claimed.not_after`.

    Raises:
        AuthorityUnavailable: the authority cannot sign.

    """
    raise NotImplementedError
