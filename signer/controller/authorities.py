"""The certificate authorities of all clusters, from the Secrets that Cluster API keeps (I1).

A Secret is read again some seconds after it was read, when it is used; its content is parsed once
for each version of the Secret. The private keys of recently used authorities therefore stay in
memory. A replaced authority signs for these seconds more, as if its certificates were older. That
costs no security: the API server accepts them while it trusts the replaced authority.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from threading import Lock
from typing import Final, Protocol

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from common.errors import Waiting
from signer.errors import AuthorityShared, AuthorityUnavailable
from signer.inventory.cluster_secret import (
    AUTHORITY_TYPES,
    authority_secret_name,
    require_label_and_type,
)
from signer.issue.authority import CertificateAuthority, parse_authority
from signer.kube.secrets import Secret
from signer.model import ClusterKey
from signer.policy import Policy

_MAX_CACHED: Final = 2048
"""Authorities in memory, with about 10 KiB each."""
_MAX_AGE: Final = 10.0
"""Seconds for which a Secret that was read is used. A storm of joins then costs one read."""


class SecretReader(Protocol):
    """The part of the management cluster's API that `ClusterAuthorities` needs."""

    def read(self, namespace: str, name: str) -> Secret | None:
        """Return the Secret, or `None` if it does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cached:
    """An authority, and the version of the Secret that it was parsed from."""

    version: tuple[str, str]
    """UID and resource version."""
    authority: CertificateAuthority
    spki_sha256: bytes
    read_at: float
    """When the Secret was read, on the monotonic clock."""


class ClusterAuthorities:
    """The certificate authorities of all clusters; for any number of threads."""

    def __init__(
        self,
        secrets: SecretReader,
        policy_of: Callable[[ClusterKey], Policy],
        *,
        monotonic: Callable[[], float],
    ) -> None:
        """Find a Cluster's policy with `policy_of`; it raises `Waiting` if there is not one."""
        self._secrets = secrets
        self._policy_of = policy_of
        self._monotonic = monotonic
        self._lock = Lock()
        self._cached: OrderedDict[ClusterKey, _Cached] = OrderedDict()

    def authority(self, cluster: ClusterKey) -> CertificateAuthority:
        """Return a cluster's authority.

        Raises:
            AuthorityUnavailable: the cluster has no authority, or it cannot be used.
            AuthorityShared: another Cluster has the same key, and a policy of the two forbids it.
            ApiServerUnavailable: a Secret cannot be read.

        """
        current = self._load(cluster, max_age=_MAX_AGE)
        for other in self._forbidden_sharers(cluster, current):
            if self._still_has_key(other, current.spki_sha256):
                raise AuthorityShared(
                    "another Cluster has the same certificate authority",
                    detail=f"{other.namespace}/{other.name}",
                )
        return current.authority

    def _load(self, cluster: ClusterKey, *, max_age: float) -> _Cached:
        """Read the Secret unless it was read less than `max_age` seconds ago.

        Parse it unless this version is cached.
        """
        now = self._monotonic()
        with self._lock:
            cached = self._cached.get(cluster)
        if cached is not None and now - cached.read_at < max_age:
            return cached
        secret = self._secrets.read(cluster.namespace, authority_secret_name(cluster))
        if secret is None:
            raise AuthorityUnavailable("the Secret with the cluster's authority is missing")
        version = (secret.uid, secret.resource_version)
        if cached is None or cached.version != version:
            _require_secret_of_cluster(secret, cluster)
            authority = parse_authority(secret.data)
            spki_sha256 = _spki_sha256(authority)
            cached = _Cached(
                version=version, authority=authority, spki_sha256=spki_sha256, read_at=now
            )
        else:
            cached = replace(cached, read_at=now)
        with self._lock:
            # Before the comparison with others: of two threads that load one key for two Clusters,
            # the later one sees the earlier one's.
            self._cached[cluster] = cached
            self._cached.move_to_end(cluster)
            if len(self._cached) > _MAX_CACHED:
                self._cached.popitem(last=False)
        return cached

    def _forbidden_sharers(self, cluster: ClusterKey, current: _Cached) -> list[ClusterKey]:
        """Return the Clusters last seen with the same key that may not share it with this one."""
        with self._lock:
            others = [
                other
                for other, cached in self._cached.items()
                if other != cluster and cached.spki_sha256 == current.spki_sha256
            ]
        if not self._may_share(cluster):
            return others
        return [other for other in others if not self._may_share(other)]

    def _may_share(self, cluster: ClusterKey) -> bool:
        try:
            return self._policy_of(cluster).allow_shared_authority
        except Waiting:
            return False

    def _still_has_key(self, cluster: ClusterKey, spki_sha256: bytes) -> bool:
        """Return whether a Cluster's Secret holds this key now; forget the Cluster if it has none.

        A Cluster may have been deleted, or may have got another authority, since it was cached.
        """
        try:
            return self._load(cluster, max_age=0.0).spki_sha256 == spki_sha256
        except AuthorityUnavailable:
            with self._lock:
                self._cached.pop(cluster, None)
            return False


def _require_secret_of_cluster(secret: Secret, cluster: ClusterKey) -> None:
    """Raise unless type and label say that the Secret is this Cluster's.

    A Secret that has this name by chance, such as the one of a cert-manager Certificate, must not
    sign for nodes.
    """
    try:
        require_label_and_type(secret, cluster.name, AUTHORITY_TYPES)
    except ValueError as e:
        raise AuthorityUnavailable(f"the Secret of the cluster's authority: {e}") from e


def _spki_sha256(authority: CertificateAuthority) -> bytes:
    public_key = authority.certificate.public_key()
    return sha256(public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()
