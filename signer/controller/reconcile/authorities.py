"""The certificate authorities of all clusters, from the Secrets that Cluster API keeps (I1).

A Secret is read again some seconds after it was read, when it is used; its content is parsed once
for each version of the Secret. The private keys of recently used authorities therefore stay in
memory. A replaced authority signs for these seconds more, as if its certificates were older. That
costs no security: the API server accepts them while it trusts the replaced authority.

No two Clusters may have the same key, unless the policies of both allow it. A register that all
replicas share names the Clusters with a key. An authority is used only after the register has its
Cluster, so of two Clusters with the same key at least the later one is refused its first
certificate, and the other one some seconds later. The register is a hint: the Secret of the other
Cluster decides.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from hashlib import sha256
from threading import Lock
from typing import Final, Protocol

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from common.errors import Waiting
from signer.errors import AuthorityShared, AuthorityUnavailable
from signer.inventory.cluster_api.cluster_secret import (
    AUTHORITY_TYPES,
    authority_secret_name,
    require_label_and_type,
)
from signer.issue.authority import CertificateAuthority, parse_authority
from signer.kinds.cluster import ClusterKey
from signer.kube.secrets import Secret, SecretClient
from signer.policy.policy import Policy

_MAX_CACHED: Final = 2048
"""Authorities in memory, with about 10 KiB each."""
_MAX_AGE: Final = 10.0
"""Seconds for which a Secret and the register are not read again. A storm of joins then costs one
read of each."""


class AuthorityRegister(Protocol):
    """Which Clusters have which key. Each method raises `ApiServerUnavailable`."""

    def clusters_with(self, spki_sha256: bytes) -> AbstractSet[ClusterKey]:
        """Return the Clusters that have the key with this digest, as it was written last."""

    def assign(self, cluster: ClusterKey, spki_sha256: bytes) -> None:
        """Write that a Cluster has the key with this digest, and no other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cached:
    """An authority, and the version of the Secret that it was parsed from."""

    version: tuple[str, str]
    """UID and resource version."""
    authority: CertificateAuthority
    spki_sha256: bytes
    shared_with: ClusterKey | None = None
    """Another Cluster that has the same key and must not have it."""
    valid_until: float = -math.inf
    """Until when, on the monotonic clock, neither Secrets nor the register are read again."""


class ClusterAuthorities:
    """The certificate authorities of all clusters; for any number of threads."""

    def __init__(
        self,
        secrets: SecretClient,
        register: AuthorityRegister,
        policy_of: Callable[[ClusterKey], Policy],
        *,
        monotonic: Callable[[], float],
    ) -> None:
        """Find a Cluster's policy with `policy_of`; it raises `Waiting` if there is not one."""
        self._secrets = secrets
        self._register = register
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
        current = self._current(cluster)
        if current.shared_with is not None:
            raise AuthorityShared(
                "another Cluster has the same certificate authority",
                detail=str(current.shared_with),
            )
        return current.authority

    def _current(self, cluster: ClusterKey) -> _Cached:
        """Return the authority, as read and compared less than `_MAX_AGE` seconds ago."""
        now = self._monotonic()
        with self._lock:
            cached = self._cached.get(cluster)
        if cached is not None and now < cached.valid_until:
            return cached
        read = self._read(cluster)
        other = self._find_forbidden_sharer(cluster, read.spki_sha256)
        current = replace(read, shared_with=other, valid_until=now + _MAX_AGE)
        self._store(cluster, current)
        return current

    def _read(self, cluster: ClusterKey) -> _Cached:
        """Read the Secret; parse it unless this version is cached."""
        secret = self._secrets.read(cluster.namespace, authority_secret_name(cluster))
        if secret is None:
            raise AuthorityUnavailable("the Secret with the cluster's authority is missing")
        version = (secret.uid, secret.resource_version)
        with self._lock:
            cached = self._cached.get(cluster)
        if cached is not None and cached.version == version:
            return cached
        _require_secret_of_cluster(secret, cluster)
        authority = parse_authority(secret.data)
        read = _Cached(version=version, authority=authority, spki_sha256=_spki_sha256(authority))
        self._store(cluster, read)
        return read

    def _store(self, cluster: ClusterKey, read: _Cached) -> None:
        with self._lock:
            self._cached[cluster] = read
            self._cached.move_to_end(cluster)
            if len(self._cached) > _MAX_CACHED:
                self._cached.popitem(last=False)

    def _find_forbidden_sharer(self, cluster: ClusterKey, spki_sha256: bytes) -> ClusterKey | None:
        """Return another Cluster that has the same key, and may not share it with this one."""
        for other in self._registered_sharers(cluster, spki_sha256):
            is_allowed = self._may_share(cluster) and self._may_share(other)
            if not is_allowed and self._has_key(other, spki_sha256):
                return other
        return None

    def _registered_sharers(self, cluster: ClusterKey, spki_sha256: bytes) -> Sequence[ClusterKey]:
        """Return the other Clusters with the same key, after the register has this Cluster."""
        clusters = self._register.clusters_with(spki_sha256)
        if cluster not in clusters:
            self._register.assign(cluster, spki_sha256)
            # After the write: of two replicas that write, at least one then finds both Clusters.
            clusters = self._register.clusters_with(spki_sha256)
        return sorted(clusters - {cluster}, key=str)

    def _may_share(self, cluster: ClusterKey) -> bool:
        try:
            return self._policy_of(cluster).certificate.allow_shared_authority
        except Waiting:
            return False

    def _has_key(self, cluster: ClusterKey, spki_sha256: bytes) -> bool:
        """Return whether a Cluster's Secret holds this key now.

        A Cluster may have been deleted, or may have got another authority, since it was registered.
        """
        try:
            return self._read(cluster).spki_sha256 == spki_sha256
        except AuthorityUnavailable:
            return False


def _require_secret_of_cluster(secret: Secret, cluster: ClusterKey) -> None:
    """Raise unless type and label say that the Secret is this Cluster's.

    A Secret that has this name by chance, such as the Secret of a cert-manager Certificate, must
    not sign for nodes.
    """
    try:
        require_label_and_type(secret, cluster.name, AUTHORITY_TYPES)
    except ValueError as error:
        raise AuthorityUnavailable(f"the Secret of the cluster's authority: {error}") from error


def _spki_sha256(authority: CertificateAuthority) -> bytes:
    public_key = authority.certificate.public_key()
    return sha256(public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()
