"""A cluster's certificate authority, from the Secret that Cluster API keeps it in (I1).

Read for each certificate and not held: the key is in memory only while it signs, and a new
authority counts at once.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from signer.errors import AuthorityUnavailable
from signer.issue.certificate import CertificateAuthority
from signer.model import ClusterKey


class SecretData(Protocol):
    """What a Secret holds."""

    @property
    def data(self) -> Mapping[str, bytes]:
        """Return its data."""


class SecretReader(Protocol):
    """The part of the management cluster's API that this needs."""

    def read(self, namespace: str, name: str) -> SecretData | None:
        """Return the Secret, `None` when there is none."""


_CERTIFICATE: Final = "tls.crt"
_KEY: Final = "tls.key"


class ClusterAuthorities:
    """The certificate authorities of all clusters."""

    def __init__(self, secrets: SecretReader) -> None:
        self._secrets = secrets

    def authority(self, cluster: ClusterKey) -> CertificateAuthority:
        """Return a cluster's authority.

        Raises:
            AuthorityUnavailable: there is none, or it cannot be used.
            ApiServerUnavailable: the Secret cannot be read.

        """
        secret = self._secrets.read(cluster.namespace, f"{cluster.name}-ca")
        if secret is None:
            raise AuthorityUnavailable("the Secret with the cluster's authority is missing")
        return parse_authority(secret.data)


def parse_authority(data: Mapping[str, bytes]) -> CertificateAuthority:
    """Read certificate and key, which have to be each other's.

    Raises:
        AuthorityUnavailable: they are missing, unreadable or of different pairs.

    """
    if not data.get(_CERTIFICATE) or not data.get(_KEY):
        # Without a key it is an authority that somebody keeps elsewhere.
        raise AuthorityUnavailable("the Secret of the cluster's authority lacks certificate or key")
    try:
        # The first is the signer's own; further ones are for those who verify.
        certificate = x509.load_pem_x509_certificates(data[_CERTIFICATE])[0]
        certified = certificate.public_key()
        key = load_pem_private_key(data[_KEY], password=None)
    except (ValueError, TypeError, IndexError, UnsupportedAlgorithm, x509.InvalidVersion) as e:
        raise AuthorityUnavailable("the cluster's authority cannot be read") from e
    if not isinstance(key, (rsa.RSAPrivateKey, ec.EllipticCurvePrivateKey)):
        raise AuthorityUnavailable("the authority's key is neither RSA nor ECDSA")
    if certified != key.public_key():
        raise AuthorityUnavailable("the authority's key is not that of its certificate")
    return CertificateAuthority(certificate=certificate, private_key=key)
