"""Replicas share the Clusters: each Cluster is served by one of them, as their Leases say.

This is about cost, never about safety: each write to an object creates it or carries the
resourceVersion that was verified, so two replicas that serve one Cluster do no harm. A Cluster that
no replica serves does harm. So a replica that cannot read or write Leases serves every Cluster, and
one that starts connects to its Clusters before its Lease makes the others close theirs. Source:
docs/decisions/0035-replicas-share-the-clusters.md.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from typing import Final, Protocol

from common.errors import ApiServerUnavailable
from signer.controller.live_leases import LEASE_SECONDS, PROOF_SECONDS, LiveLeases
from signer.kube.leases import Lease
from signer.model import ClusterKey

_logger = logging.getLogger(__name__)

_PREFIX: Final = "node-attestation-signer-"
_SETTINGS_LABEL: Final = "attestation.cluster.x-k8s.io/signer-settings"
"""On the Lease of each replica: only replicas with the same value share the Clusters."""
_NAMESPACE_LABEL: Final = "attestation.cluster.x-k8s.io/watched-namespace"
_CONNECT_SECONDS: Final = 30.0
"""How long a new replica waits for the connections to its Clusters before it takes them over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One process of the signer."""

    name: str
    """Unique; a process that starts again has another name."""
    namespace: str
    """The only namespace whose Clusters it serves; empty for all."""


class LeaseStore(Protocol):
    """The Leases of the signer's namespace. Each method raises `ApiServerUnavailable`."""

    def all(self, label: str) -> Sequence[Lease]:
        """Return the Leases that have this label, with any value."""

    def renew(
        self, name: str, *, holder: str, seconds: int, labels: Mapping[str, str], now: datetime
    ) -> None:
        """Write the time of renewal; create the Lease if it does not exist."""

    def delete(self, name: str) -> None:
        """Delete a Lease in whatever state it is."""

    def delete_unchanged(self, lease: Lease) -> None:
        """Delete a Lease, unless it has changed since it was read."""


@lru_cache(maxsize=1 << 14)
def serving_replica(replicas: frozenset[Replica], cluster: ClusterKey) -> Replica | None:
    """Return the replica that serves a Cluster: the one with the highest hash for it.

    A replica that is added or removed moves only its own share of the Clusters ("rendezvous
    hashing"). Replicas for the Cluster's namespace alone come before those for all namespaces.
    """
    pinned = [replica for replica in replicas if replica.namespace == cluster.namespace]
    candidates = pinned or [replica for replica in replicas if not replica.namespace]
    key = f"{cluster.namespace}/{cluster.name}"
    return max(
        candidates,
        key=lambda replica: sha256(f"{replica.name}/{key}".encode()).digest(),
        default=None,
    )


class Replicas:
    """The share of this replica. One thread calls `sync` and then `leave`; any calls the others."""

    def __init__(  # noqa: PLR0913 - the last three are functions of the environment
        self,
        leases: LeaseStore,
        this: Replica,
        *,
        settings: Callable[[], str],
        ready: Callable[[], bool],
        connected: Callable[[], bool],
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        """Share with the replicas whose `settings` are the same: a hash of what verdicts depend on.

        `ready` says whether this process can serve Clusters. `connected` says whether it has tried
        to connect to each Cluster that it serves.
        """
        self.this = this
        self._leases = leases
        self._settings = settings
        self._ready = ready
        self._connected = connected
        self._now = now
        self._monotonic = monotonic
        self._live = LiveLeases()
        self._has_lease = False
        self._sharing: frozenset[Replica] = frozenset()
        """All replicas that share, with this one; empty until it knows the others."""
        self._ready_since = math.inf
        self._valid_until = monotonic() + LEASE_SECONDS
        """When `_sharing` is too old to be used. The Lease has lapsed then, too."""
        self._synced_at: float | None = None
        """When the Leases were read first."""
        self._reported_failure = False

    @property
    def has_joined(self) -> bool:
        """Return whether this replica has its share, or serves every Cluster."""
        return self._has_lease or self._serves_all

    @property
    def count(self) -> int:
        """Return the number of replicas that share; 0 while this one serves every Cluster."""
        return 0 if self._serves_all else len(self._sharing)

    @property
    def counts_clusters(self) -> bool:
        """Return whether this replica counts the Clusters in the status of policies.

        A replica of one namespace does not see the others, so it leaves that to one that does.
        """
        return not self.this.namespace or all(each.namespace for each in self._sharing)

    def serving(self, cluster: ClusterKey) -> Replica | None:
        """Return the replica that serves a Cluster, `None` while it is not known."""
        return self.this if self._serves_all else serving_replica(self._sharing, cluster)

    def serves(self, cluster: ClusterKey) -> bool:
        """Return whether this replica serves a Cluster."""
        return self.serving(cluster) == self.this

    def sync(self) -> None:
        """Renew the Lease of this replica, read those of the others, and share the Clusters."""
        now = self._monotonic()
        try:
            if self._has_lease and self._ready():
                self._renew()
            self._live.update(self._read_others(), now)
            self._share(now)
            for lease in self._live.abandoned(now)[:1]:
                self._leases.delete_unchanged(lease)
        except ApiServerUnavailable as e:
            if self._synced_at is None:
                # Most likely RBAC does not allow it, so waiting would not help.
                self._valid_until = -math.inf
            self._report_failure(e)
        else:
            self._valid_until = now + LEASE_SECONDS
            self._report_success()

    @property
    def has_successors(self) -> bool:
        """Return whether other replicas may be there to take over the Clusters."""
        now = self._monotonic()
        return bool(self._live.live(now) or self._live.unproved(now))

    def leave(self) -> None:
        """Delete the Lease; this replica goes on serving what it serves."""
        if not self._serves_all:
            self._valid_until = math.inf
        if self._has_lease:
            self._leases.delete(self._lease_name)

    @property
    def _serves_all(self) -> bool:
        return self._monotonic() >= self._valid_until

    @property
    def _lease_name(self) -> str:
        return f"{_PREFIX}{sha256(self.this.name.encode()).hexdigest()[:16]}"

    def _read_others(self) -> Sequence[Lease]:
        return [e for e in self._leases.all(_SETTINGS_LABEL) if e.name != self._lease_name]

    def _renew(self) -> None:
        self._leases.renew(
            self._lease_name,
            holder=self.this.name,
            seconds=LEASE_SECONDS,
            labels={_SETTINGS_LABEL: self._settings(), _NAMESPACE_LABEL: self.this.namespace},
            now=self._now(),
        )

    def _share(self, now: float) -> None:
        """Find out which replicas share, and take a Lease as soon as this one can serve."""
        if self._synced_at is None:
            self._synced_at = now
        if now - self._synced_at < PROOF_SECONDS and self._live.unproved(now):
            return  # Replicas that run would look as if they had ended.
        settings = self._settings()
        others = [e for e in self._live.live(now) if e.labels.get(_SETTINGS_LABEL) == settings]
        sharing = frozenset({self.this, *map(_replica, others)})
        if sharing != self._sharing:
            self._sharing = sharing
            fields = {"replica": self.this.name, "replicas": sorted(r.name for r in sharing)}
            _logger.info("replicas share the Clusters", extra={"fields": fields})
        if not self._has_lease and self._ready():
            self._ready_since = min(self._ready_since, now)
            waited = now - self._ready_since >= _CONNECT_SECONDS
            if not others or waited or self._connected():
                self._renew()
                self._has_lease = True

    def _report_failure(self, error: ApiServerUnavailable) -> None:
        if self._reported_failure or not self._serves_all:
            return
        self._reported_failure = True
        fields = {
            "message": f"{error.message}: allow the signer to list, create, patch and delete Leases"
            " in its namespace",
            "detail": error.detail,
            "alarm": True,
        }
        _logger.warning("this replica serves every Cluster", extra={"fields": fields})

    def _report_success(self) -> None:
        if self._reported_failure:
            self._reported_failure = False
            _logger.info("this replica shares the Clusters again")


def _replica(lease: Lease) -> Replica:
    return Replica(name=lease.holder, namespace=lease.labels.get(_NAMESPACE_LABEL, ""))
