"""Ready items in fair order, and how many workers each tenant and each cluster may hold.

Turns: tenants (namespaces of the management cluster) take turns, then the clusters of a tenant,
then the kinds of requests of a cluster, then the requesters of a kind. A flood of one requester
delays the other items of that requester, and a slow cluster delays only its own items.

Kinds: a challenge must be answered and verified within 15 minutes (C1). If 10,000 offers had their
turns before the first answer, the signer could write more challenges than it has time to verify
answers. Since answers take turns with offers, it writes challenges only as fast as it verifies
answers, whatever its speed. Requests of nodes take turns with those of other requesters, so that a
renewal does not wait for all nodes that join. A requester who pretends to answer gets the turns of
one requester among those who answer.

Workers: the rule of `signer.fairness.turns` has a second level here. An item starts only while `its
tenant's workers + its cluster's workers < free workers`, which leaves room for the other clusters
of a tenant.

A cluster whose calls are slow gets fewer workers (`CircuitBreaker`), and only while more than half
of all workers are free: many clusters that take half a minute for each answer leave the rest to the
others. Calls without an answer pause it.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from common.names import NODE_USER_PREFIX
from signer.fairness.circuit_breaker import SLOW_SECONDS, BreakerState, CircuitBreaker
from signer.fairness.turns import Turns
from signer.kinds.cluster import ClusterKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One CSR of one cluster."""

    cluster: ClusterKey
    requester: str
    name: str
    is_probable_answer: bool = False
    """Whether the request seems to answer a challenge. A wrong guess changes only its turn."""

    @property
    def kind(self) -> tuple[bool, bool]:
        """Return what takes turns in a cluster: answers and offers, of nodes and of others."""
        return self.is_probable_answer, self.requester.startswith(NODE_USER_PREFIX)


_Requesters = OrderedDict[str, OrderedDict[Item, None]]


@dataclass(slots=True)
class _Cluster:
    """Ready items of one cluster by kind and requester, in order, and its busy workers."""

    kinds: OrderedDict[tuple[bool, bool], _Requesters] = field(default_factory=OrderedDict)
    busy: int = 0


_Clusters = OrderedDict[ClusterKey, _Cluster]
"""Clusters of one tenant that have ready items or busy workers."""


class FairQueue:
    """Ready items and busy workers. Not thread-safe: the work queue calls it under its lock."""

    def __init__(
        self,
        *,
        workers: int,
        max_workers_per_cluster: int,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_cluster = max_workers_per_cluster
        self._reserve = workers // 2
        """Workers that clusters with slow calls leave to the others."""
        self._turns: Turns[_Clusters] = Turns(workers, OrderedDict, monotonic=monotonic)
        self._breakers: dict[ClusterKey, CircuitBreaker] = {}
        """Those that differ from a new one."""
        self._blocked_until: dict[str, float] = {}
        """Tenants of whom no item may start, and until when."""
        self._await_reserve: set[str] = set()
        """Those of them whose slow clusters wait until more than half of the workers are free."""

    def push(self, item: Item) -> None:
        """Make an item ready; one that is ready already keeps its place."""
        self._blocked_until.pop(item.cluster.namespace, None)
        clusters = self._turns.waiting(item.cluster.namespace)
        cluster = clusters.setdefault(item.cluster, _Cluster())
        requesters = cluster.kinds.setdefault(item.kind, OrderedDict())
        requesters.setdefault(item.requester, OrderedDict())[item] = None

    def discard(self, item: Item) -> None:
        """Drop an item if it is ready."""
        clusters = self._turns.waiting(item.cluster.namespace)
        cluster = clusters.get(item.cluster, _Cluster())
        if item in cluster.kinds.get(item.kind, _Requesters()).get(item.requester, ()):
            self._remove(item, cluster)
            self._forget_idle(item.cluster, clusters)
        self._blocked_until.pop(item.cluster.namespace, None)
        self._turns.forget_idle(item.cluster.namespace)

    def has_next(self, now: float) -> bool:
        """Return whether `pop` would return an item."""
        return self._next(now) is not None

    def pop(self, now: float) -> Item | None:
        """Return the item whose turn it is, and count a busy worker for it."""
        item = self._next(now)
        if item is None:
            return None
        clusters = self._turns.waiting(item.cluster.namespace)
        cluster = clusters[item.cluster]
        self._turns.take(item.cluster.namespace)
        clusters.move_to_end(item.cluster)
        cluster.kinds.move_to_end(item.kind)
        cluster.kinds[item.kind].move_to_end(item.requester)
        self._remove(item, cluster)
        cluster.busy += 1
        return item

    def release(self, item: Item) -> None:
        """Give back the worker of an item that `pop` returned."""
        clusters = self._turns.waiting(item.cluster.namespace)
        clusters[item.cluster].busy -= 1
        self._forget_idle(item.cluster, clusters)
        self._blocked_until.pop(item.cluster.namespace, None)
        self._turns.release(item.cluster.namespace)
        if self._turns.free > self._reserve:
            for tenant in self._await_reserve:
                self._blocked_until.pop(tenant, None)
            self._await_reserve.clear()

    def record_call(
        self, cluster: ClusterKey, *, seconds: float, now: float
    ) -> CircuitBreaker | None:
        """Count a call to a cluster's API server; return its breaker if the call opened it.

        `seconds` is infinite for a call without an answer.
        """
        breaker = self._breakers.get(cluster) or CircuitBreaker()
        opened = breaker.record(failed=math.isinf(seconds), now=now, seconds=seconds)
        self._blocked_until.pop(cluster.namespace, None)
        self._breakers[cluster] = breaker
        if breaker.is_pristine:
            del self._breakers[cluster]
        return breaker if opened else None

    def reset_breaker(self, cluster: ClusterKey) -> None:
        """Replace the circuit breaker of a cluster by a new one, which is closed."""
        self._breakers.pop(cluster, None)
        self._blocked_until.pop(cluster.namespace, None)

    def open_breakers(self, now: float) -> Iterator[ClusterKey]:
        """Yield the clusters whose circuit breaker is open or half-open."""
        for cluster, breaker in self._breakers.items():
            if breaker.state(now) is not BreakerState.CLOSED:
                yield cluster

    def longest_wait(self) -> float:
        """Return for how many seconds a tenant without a worker has waited for one."""

        def may_start(clusters: _Clusters) -> bool:
            # A cluster with slow calls is held back by them.
            return any(each.kinds and key not in self._breakers for key, each in clusters.items())

        return self._turns.longest_wait(may_start)

    def slow_clusters(self) -> dict[ClusterKey, float]:
        """Return how long the calls take of the clusters that get fewer workers for that."""
        slow = self._breakers.items()
        return {cluster: b.seconds for cluster, b in slow if b.seconds > SLOW_SECONDS}

    def busy_by_tenant(self) -> dict[str, int]:
        """Return how many workers each namespace holds, where it holds any."""
        return dict(self._turns.busy)

    def _next(self, now: float) -> Item | None:
        for tenant, clusters in self._turns.next():
            if now >= self._blocked_until.get(tenant, now):
                item = self._next_of_tenant(tenant, clusters, now)
                if item is not None:
                    return item
        return None

    def _next_of_tenant(self, tenant: str, clusters: _Clusters, now: float) -> Item | None:
        """Return the item of a tenant whose turn it is; note how long the tenant has none.

        Otherwise each item of any tenant would cost a look at hundreds of silent clusters.
        """
        until = math.inf
        for key, cluster in clusters.items():
            if not cluster.kinds:
                continue
            breaker, most, reserve = self._breakers.get(key), self._per_cluster, 0
            if breaker is not None:
                most, reserve = breaker.max_workers(most, now), self._reserve
            if cluster.busy < most:
                if self._turns.busy[tenant] + cluster.busy + reserve < self._turns.free:
                    requesters = next(iter(cluster.kinds.values()))
                    return next(iter(next(iter(requesters.values()))))
                if reserve:
                    self._await_reserve.add(tenant)
                else:
                    until = now
            elif breaker is not None and breaker.state(now) is BreakerState.OPEN:
                until = min(until, breaker.retry_at)
        self._blocked_until[tenant] = until
        return None

    @staticmethod
    def _remove(item: Item, cluster: _Cluster) -> None:
        requesters = cluster.kinds[item.kind]
        ready = requesters[item.requester]
        del ready[item]
        if not ready:
            del requesters[item.requester]
        if not requesters:
            del cluster.kinds[item.kind]

    @staticmethod
    def _forget_idle(key: ClusterKey, clusters: _Clusters) -> None:
        """Forget a cluster without items and workers."""
        if not clusters[key].kinds and not clusters[key].busy:
            del clusters[key]
