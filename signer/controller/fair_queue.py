"""Ready items in fair order, and how many workers each owner and each cluster may hold.

Turns: owners (namespaces of the management cluster) take turns, then the clusters of an owner, then
the kinds of requests of a cluster, then the requesters of a kind. A flood of one requester delays
the other items of that requester, one slow cluster delays its own items.

Kinds: a challenge must be answered and verified within 15 minutes (C1). If 10,000 offers had their
turns before the first answer, the signer could write more challenges than it has time to verify
answers. Since answers take turns with offers, it writes challenges only as fast as it verifies
answers, whatever its speed. Requests of nodes take turns with those of other requesters, so that a
renewal does not wait for all nodes that join. A requester who pretends to answer gets the turns of
one requester among those who answer.

Workers: an item starts only while `owner.busy + cluster.busy < free workers`. So one owner holds at
most half of the workers, two owners a third each, and a worker is left for the next owner as long
as there are fewer hostile owners than workers. The same rule leaves room for the other clusters of
an owner. It needs no share to be configured, and an owner who is alone is hardly limited by it.
This is the dynamic threshold of A. Choudhury and E. Hahne, "Dynamic queue length thresholds for
shared-memory packet switches" (1998), with a second level.

A cluster whose calls hang is limited further, by its circuit breaker.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from common.names import NODE_USER_PREFIX
from signer.circuit_breaker import BreakerState, CircuitBreaker
from signer.model import ClusterKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One CSR of one cluster."""

    cluster: ClusterKey
    requester: str
    name: str
    seems_answer: bool = False
    """Whether the request seems to answer a challenge. A wrong guess changes only its turn."""

    @property
    def kind(self) -> tuple[bool, bool]:
        """Return what takes turns in a cluster: answers and offers, of nodes and of others."""
        return self.seems_answer, self.requester.startswith(NODE_USER_PREFIX)


_Requesters = OrderedDict[str, OrderedDict[Item, None]]


@dataclass(slots=True)
class _Cluster:
    """Ready items of one cluster by kind and requester, in order, and its busy workers."""

    kinds: OrderedDict[tuple[bool, bool], _Requesters] = field(default_factory=OrderedDict)
    busy: int = 0


@dataclass(slots=True)
class _Owner:
    """Clusters of one namespace that have ready items or busy workers."""

    clusters: OrderedDict[ClusterKey, _Cluster] = field(default_factory=OrderedDict)
    busy: int = 0


class FairQueue:
    """Ready items and busy workers. Not thread-safe: the work queue calls it under its lock."""

    def __init__(self, *, workers: int, max_workers_per_cluster: int) -> None:
        self._free = workers
        self._per_cluster = max_workers_per_cluster
        self._owners: OrderedDict[str, _Owner] = OrderedDict()
        self._breakers: dict[ClusterKey, CircuitBreaker] = {}
        """Those that differ from a new one."""

    def push(self, item: Item) -> None:
        """Make an item ready; one that is ready already keeps its place."""
        owner = self._owners.setdefault(item.cluster.namespace, _Owner())
        cluster = owner.clusters.setdefault(item.cluster, _Cluster())
        requesters = cluster.kinds.setdefault(item.kind, OrderedDict())
        requesters.setdefault(item.requester, OrderedDict())[item] = None

    def discard(self, item: Item) -> None:
        """Drop an item if it is ready."""
        owner = self._owners.get(item.cluster.namespace)
        cluster = owner.clusters.get(item.cluster) if owner else None
        requesters = cluster.kinds.get(item.kind, _Requesters()) if cluster else _Requesters()
        if cluster is not None and item in requesters.get(item.requester, ()):
            self._remove(item, cluster)
            self._drop_idle(item.cluster)

    def has_next(self, now: float) -> bool:
        """Return whether `pop` would return an item."""
        return self._next(now) is not None

    def pop(self, now: float) -> Item | None:
        """Return the item whose turn it is, and count a busy worker for it."""
        item = self._next(now)
        if item is None:
            return None
        owner = self._owners[item.cluster.namespace]
        cluster = owner.clusters[item.cluster]
        self._owners.move_to_end(item.cluster.namespace)
        owner.clusters.move_to_end(item.cluster)
        cluster.kinds.move_to_end(item.kind)
        cluster.kinds[item.kind].move_to_end(item.requester)
        self._remove(item, cluster)
        owner.busy += 1
        cluster.busy += 1
        self._free -= 1
        return item

    def release(self, item: Item) -> None:
        """Give back the worker of an item that `pop` returned."""
        owner = self._owners[item.cluster.namespace]
        owner.busy -= 1
        owner.clusters[item.cluster].busy -= 1
        self._free += 1
        self._drop_idle(item.cluster)

    def record_call(self, cluster: ClusterKey, *, slow: bool, now: float) -> CircuitBreaker | None:
        """Count a call to a cluster's API server; return its breaker if the call opened it."""
        breaker = self._breakers.get(cluster) or CircuitBreaker()
        opened = breaker.record(failed=slow, now=now)
        self._breakers[cluster] = breaker
        if breaker.is_pristine:
            del self._breakers[cluster]
        return breaker if opened else None

    def reset_breaker(self, cluster: ClusterKey) -> None:
        """Replace the circuit breaker of a cluster by a new one, which is closed."""
        self._breakers.pop(cluster, None)

    def open_breakers(self, now: float) -> Iterator[ClusterKey]:
        """Yield the clusters whose circuit breaker is open or half-open."""
        for cluster, breaker in self._breakers.items():
            if breaker.state(now) is not BreakerState.CLOSED:
                yield cluster

    def busy_by_owner(self) -> dict[str, int]:
        """Return how many workers each namespace holds, where it holds any."""
        return {namespace: owner.busy for namespace, owner in self._owners.items() if owner.busy}

    def _next(self, now: float) -> Item | None:
        for owner in self._owners.values():
            if owner.busy >= self._free:
                continue
            for key, cluster in owner.clusters.items():
                if cluster.kinds and self._may_start(key, owner, cluster, now):
                    requesters = next(iter(cluster.kinds.values()))
                    return next(iter(next(iter(requesters.values()))))
        return None

    def _may_start(self, key: ClusterKey, owner: _Owner, cluster: _Cluster, now: float) -> bool:
        breaker = self._breakers.get(key)
        most = self._per_cluster if breaker is None else breaker.max_workers(self._per_cluster, now)
        return cluster.busy < most and owner.busy + cluster.busy < self._free

    @staticmethod
    def _remove(item: Item, cluster: _Cluster) -> None:
        requesters = cluster.kinds[item.kind]
        ready = requesters[item.requester]
        del ready[item]
        if not ready:
            del requesters[item.requester]
        if not requesters:
            del cluster.kinds[item.kind]

    def _drop_idle(self, key: ClusterKey) -> None:
        """Forget a cluster without items and workers, and an owner without clusters."""
        owner = self._owners[key.namespace]
        cluster = owner.clusters[key]
        if not cluster.kinds and not cluster.busy:
            del owner.clusters[key]
        if not owner.clusters:
            del self._owners[key.namespace]
