"""Replicas share the Clusters: each Cluster is served by one of them, as their Leases say.

This is about cost, never about safety: each write to an object creates it or carries the
resourceVersion that was verified, so two replicas that serve one Cluster do no harm. A Cluster that
no replica serves does harm. So a replica that cannot read the Leases serves every Cluster, and one
that starts connects to its Clusters before its Lease makes the others close theirs. In doubt, a
share grows in steps: if the API server is only slow, it must not get the load of every Cluster from
every replica. Source: docs/decisions/0035-replicas-share-the-clusters.md.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from http import HTTPStatus
from typing import Final

from common.errors import ApiServerUnavailable
from signer.clusters.state_check import StateCheck
from signer.controller.live_leases import LiveLeases
from signer.controller.own_lease import OwnLease
from signer.inventory.replica_records.replica_leases import (
    LEASE_SECONDS,
    NAMESPACE_LABEL,
    SETTINGS_LABEL,
)
from signer.kinds.cluster import ClusterKey
from signer.kube.leases import Lease, LeaseClient
from signer.kube.transport.client import is_outage

_logger = logging.getLogger(__name__)

_PREFIX: Final = "node-attestation-signer-"
_STEPS: Final = 5
_STEP_SECONDS: Final = 2.0
"""A replica that takes over Clusters in doubt takes a fifth of them in each step."""
_CONNECT_SECONDS: Final = 30.0
"""How long a new replica waits for the connections to its Clusters before it takes them over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One process of the signer."""

    name: str
    """Unique; a process that starts again has another name."""
    namespace: str
    """The only namespace whose Clusters it serves; empty for all."""


@lru_cache(maxsize=1 << 14)
def serving_replica(replicas: frozenset[Replica], cluster: ClusterKey) -> Replica | None:
    """Return the replica that serves a Cluster: the one with the highest hash for it.

    A replica that is added or removed moves only its own share of the Clusters ("rendezvous
    hashing"). Replicas for the Cluster's namespace alone come before those for all namespaces.
    """
    pinned = [replica for replica in replicas if replica.namespace == cluster.namespace]
    candidates = pinned or [replica for replica in replicas if not replica.namespace]
    key = str(cluster)
    return max(
        candidates,
        key=lambda replica: sha256(f"{replica.name}/{key}".encode()).digest(),
        default=None,
    )


@lru_cache(maxsize=1 << 14)
def _step_delay(cluster: ClusterKey) -> float:
    """Return after how many seconds a Cluster is taken over in doubt."""
    return sha256(f"step/{cluster}".encode()).digest()[0] % _STEPS * _STEP_SECONDS


class Replicas:
    """The share of this replica, for any thread.

    One thread calls `sync`; another one calls `renew` and at last `leave`. The two requests to the
    API server must not wait for each other.
    """

    def __init__(  # noqa: PLR0913 - what a share depends on, and what depends on the Lease
        self,
        leases: LeaseClient,
        this: Replica,
        *,
        settings: Callable[[], str],
        ready: Callable[[], bool],
        connected: Callable[[], bool],
        state: StateCheck,
        restored: Callable[[], None],
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        """Share with the replicas whose `settings` are the same: a hash of what verdicts depend on.

        `ready` says whether this process can serve Clusters; while it cannot, the others serve
        them. `connected` says whether it has tried to connect to each Cluster that it serves.
        `restored` is called when the management cluster may have an earlier state than the caches.
        """
        self.this = this
        self._leases = leases
        self._settings = settings
        self._ready = ready
        self._connected = connected
        self._state = state
        self._lease_name = f"{_PREFIX}{sha256(this.name.encode()).hexdigest()[:16]}"
        self._lease = OwnLease(
            leases,
            self._lease_name,
            holder=this.name,
            seconds=LEASE_SECONDS,
            now=now,
            restored=restored,
        )
        self._monotonic = monotonic
        self._live = LiveLeases()
        self._alone = frozenset({this})
        self._sharing: frozenset[Replica] = frozenset()
        """All replicas that share, with this one; empty until it knows the others."""
        self._before: frozenset[Replica] = frozenset()
        """In place of `_sharing` for the Clusters whose step has not come."""
        self._changed_at = -math.inf
        """When the steps from `_before` to `_sharing` began."""
        self._was_ready = True
        """Whether this process could serve Clusters at the last `sync`."""
        self._ready_since = math.inf
        self._wants_lease = False
        self._tried_lease = False
        self._left = False
        self._valid_until = monotonic() + LEASE_SECONDS
        """When this replica begins to take over all Clusters, since it cannot read the Leases."""
        self._reading = _Outage("this replica serves every Cluster")
        self._renewing = _Outage("the Lease of this replica is not renewed")

    @property
    def has_share_of_clusters(self) -> bool:
        """Return whether this replica knows its share of the Clusters, or serves all of them."""
        return self._tried_lease or self._serves_all

    @property
    def count(self) -> int:
        """Return the number of replicas that share; 0 while this one serves every Cluster."""
        return 0 if self._serves_all else len(self._sharing)

    @property
    def is_counting_replica(self) -> bool:
        """Return whether this replica counts the Clusters in the status of policies.

        A replica of one namespace does not see the others, so it leaves that to one that does.
        """
        return not self.this.namespace or all(each.namespace for each in self._sharing)

    def serving(self, cluster: ClusterKey) -> Replica | None:
        """Return the replica that serves a Cluster, `None` while it is not known."""
        sharing = self._sharing_for(cluster)
        other = None if self._was_ready else serving_replica(sharing - self._alone, cluster)
        return other or serving_replica(sharing, cluster)

    def serves(self, cluster: ClusterKey) -> bool:
        """Return whether this replica serves a Cluster."""
        return self.serving(cluster) == self.this

    def sync(self) -> None:
        """Read the Leases of the others, and share the Clusters."""
        now = self._monotonic()
        self._was_ready = self._ready()
        if not self._was_ready:
            self._wants_lease, self._ready_since = False, math.inf
        try:
            others = self._read_others()
        except ApiServerUnavailable as error:
            if self._live.reads == 0 and error.status == HTTPStatus.FORBIDDEN:
                self._valid_until = -math.inf  # Waiting would not help.
            if self._serves_all:
                self._reading.begin(error)
            return
        self._live.update(others, now)
        self._share(now)
        if not self._left:
            self._valid_until = now + LEASE_SECONDS
        self._reading.end()
        for lease in self._live.abandoned(now)[:1]:
            self._leases.delete_unchanged(lease)

    def renew(self) -> None:
        """Renew the Lease of this replica, or delete it: then the others take over immediately."""
        try:
            if self._wants_lease:
                self._tried_lease = True
                self._renew_lease()
            elif self._tried_lease:
                self._delete_lease()
                self._tried_lease = False
        except ApiServerUnavailable as error:
            if is_outage(error):
                self._state.note_interruption()
            self._renewing.begin(error)
        else:
            self._renewing.end()

    @property
    def has_successors(self) -> bool:
        """Return whether other replicas may be there to take over the Clusters."""
        now = self._monotonic()
        return bool(self._live.live(now) or self._live.unproved(now))

    def leave(self) -> None:
        """Delete the Lease; this replica goes on serving what it serves."""
        self._left = True
        if not self._serves_all:
            self._valid_until = math.inf
        if self._tried_lease:
            self._delete_lease()

    @property
    def _serves_all(self) -> bool:
        return self._monotonic() >= self._valid_until

    def _sharing_for(self, cluster: ClusterKey) -> frozenset[Replica]:
        """Return the replicas of which one serves a Cluster."""
        now, delay = self._monotonic(), _step_delay(cluster)
        if now >= self._valid_until + delay:
            return self._alone
        return self._sharing if now >= self._changed_at + delay else self._before

    def _read_others(self) -> Sequence[Lease]:
        return [e for e in self._leases.all(SETTINGS_LABEL) if e.name != self._lease_name]

    def _renew_lease(self) -> None:
        sent = self._monotonic()
        labels = {
            SETTINGS_LABEL: self._settings(),
            NAMESPACE_LABEL: self.this.namespace,
        }
        if self._lease.renew(labels, SETTINGS_LABEL):
            self._state.confirm(sent)

    def _delete_lease(self) -> None:
        self._lease.delete()
        self._state.stop()

    def _share(self, now: float) -> None:
        """Find out which replicas share, and want a Lease as soon as this one can serve."""
        if not self._live.is_settled(now):
            return  # Replicas that run would look as if they had ended.
        settings = self._settings()
        others = [e for e in self._live.live(now) if e.labels.get(SETTINGS_LABEL) == settings]
        sharing = frozenset({self.this, *map(_replica, others)})
        if sharing != self._sharing:
            self._change_sharing(sharing, now)
        if self._was_ready and not self._wants_lease:
            self._ready_since = min(self._ready_since, now)
            waited = now - self._ready_since >= _CONNECT_SECONDS
            self._wants_lease = not others or waited or self._connected()

    def _change_sharing(self, sharing: frozenset[Replica], now: float) -> None:
        """Share with other replicas than before: in steps if a Lease was only not renewed."""
        lapsed = self._sharing.intersection(map(_replica, self._live.lapsed(now)))
        # `_sharing` last: other threads must not see it before its steps begin.
        self._before = self._sharing if lapsed else sharing
        self._changed_at = now
        self._sharing = sharing
        fields: dict[str, object] = {
            "replica": self.this.name,
            "replicas": sorted(replica.name for replica in sharing),
        }
        if lapsed:
            fields["notRenewed"] = sorted(replica.name for replica in lapsed)
        _logger.info("replicas share the Clusters", extra={"fields": fields})


class _Outage:
    """Logs when the requests for Leases begin to fail, and when they no longer do."""

    def __init__(self, event: str) -> None:
        self._event = event
        self._is_reported = False

    def begin(self, error: ApiServerUnavailable) -> None:
        """Log the first failure."""
        if self._is_reported:
            return
        self._is_reported = True
        fields = {
            "message": f"{error.message}: allow the signer to list, create, patch and delete Leases"
            " in its namespace",
            "detail": error.detail,
            "alarm": True,
        }
        _logger.warning(self._event, extra={"fields": fields})

    def end(self) -> None:
        """Log the first success after a failure."""
        if self._is_reported:
            self._is_reported = False
            _logger.info("no longer: %s", self._event)


def _replica(lease: Lease) -> Replica:
    return Replica(name=lease.holder, namespace=lease.labels.get(NAMESPACE_LABEL, ""))
