"""Work queue of the signer: which CSR a worker reconciles next, and when again.

Theory of operation. An item (a CSR) is in one of four places, as in client-go's work queue:

ready       Waits for a worker, in `FairQueue`: tenants, clusters and requesters take turns.
processing  A worker reconciles it. No two workers have the same item.
delayed     Was reconciled and is requeued when its backoff ends, in a heap by time.
done        Forgotten, until its CSR changes or another `add` brings it back.

`add` makes an item ready at once. An `add` during processing is remembered, and `done` then makes
the item ready again. An item that waits for a change (`Requeue.ON_CHANGE`) names topics: node
names, provider IDs and EndorsementKey names. `notify` makes delayed items of a topic ready. A
notification during processing may have come after the worker read the old state, and the topics are
known only at the end. So notifications are remembered while an item is processed, and `done`
compares them with the topics of the result.

Wake-ups. Waking all workers for each event costs more than the work. At most one idle worker waits
with a timeout, for the next delayed item (`_timer`); the others wait without one (`_idle`). A
change wakes one worker if an item may start then. A worker that takes an item wakes the next one,
if there is a further item that may start, or if no worker waits for the delayed items. `done` wakes
no worker, because the worker that calls `done` calls `get` next.
"""

import heapq
import itertools
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from threading import Condition, Lock
from types import MappingProxyType
from typing import Final, NamedTuple

from signer.controller.queue.fair_queue import FairQueue, Item
from signer.fairness.backoff import Backoff
from signer.kinds.cluster import ClusterKey

_logger = logging.getLogger(__name__)

_RETRY_BACKOFF: Final = Backoff(initial=0.25, maximum=15.0)
_WAIT_BACKOFF: Final = Backoff(initial=2.0, maximum=60.0)
"""The protocol promises that a pending exchange is reconciled every minute."""
_MAX_CHANGED_TOPICS: Final = 4096
"""Topics that are remembered while an item is processed; after that, all topics count as changed.
A hostile cluster makes up any number of Nodes."""


class Requeue(Enum):
    """When an item is reconciled again."""

    NEVER = "never"
    BACKOFF = "backoff"
    """Nothing was decided: again after a short backoff."""
    ON_CHANGE = "on change"
    """The CSR waits: again when one of its topics changes, or after a longer backoff."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Result of one reconciliation."""

    requeue: Requeue
    topics: frozenset[str] = frozenset()
    """Node names, provider IDs and EndorsementKey names whose change may decide the CSR."""
    seconds: float | None = None
    """When to reconcile again, instead of after a backoff."""


DONE: Final = Result(requeue=Requeue.NEVER)
RETRY: Final = Result(requeue=Requeue.BACKOFF)


class QueueState(NamedTuple):
    """What metrics show of the queue."""

    pending: dict[ClusterKey, int]
    busy_workers: dict[str, int]
    """By namespace."""
    open_breakers: frozenset[ClusterKey]
    slow_clusters: Mapping[ClusterKey, float] = MappingProxyType({})
    """How long their calls take, in seconds."""
    ready: int = 0
    """Items that wait for a worker."""


@dataclass(slots=True)
class _Pending:
    """State of an item that is neither done nor forgotten."""

    attempts: int = 0
    due: float | None = None
    """When a delayed item becomes ready; `None` for one that is ready or processing."""
    topics: frozenset[str] = frozenset()
    ready_since: float | None = None
    """When it began to wait for a worker; `None` if it does not."""


@dataclass(slots=True)
class _Changes:
    """What happened to an item since its processing began."""

    added: bool = False
    topics: set[int] = field(default_factory=set)
    """Hashes of changed topics of the item's cluster; that of `None` means every topic."""

    def mark_changed(self, topic: str | None) -> None:
        """Remember a topic. Hashes, because a hostile cluster makes up names of any size."""
        full = len(self.topics) >= _MAX_CHANGED_TOPICS
        self.topics.add(hash(None if full else topic))

    def needs_requeue(self, result: Result) -> bool:
        """Return whether the worker may have read a state that has changed since."""
        return self.added or (
            result.requeue is Requeue.ON_CHANGE
            and not self.topics.isdisjoint(map(hash, (None, *result.topics)))
        )


class WorkQueue:
    """Queue of the CSRs of all clusters, for any number of threads."""

    def __init__(
        self,
        *,
        workers: int,
        max_workers_per_cluster: int,
        monotonic: Callable[[], float],
        jitter: Callable[[], float],
        waited: Callable[[float], None] = lambda _: None,
    ) -> None:
        """Share `workers` fairly; `jitter` returns a number from 0 to 1.

        `waited` is called with the seconds for which each item was ready before a worker took it.
        """
        self._monotonic = monotonic
        self._waited = waited
        self._jitter = jitter
        self._lock = Lock()
        self._timer = Condition(self._lock)
        self._timer_attended = False
        self._idle = Condition(self._lock)
        self._idle_workers = 0
        self._ready = FairQueue(
            workers=workers, max_workers_per_cluster=max_workers_per_cluster, monotonic=monotonic
        )
        self._processing: dict[Item, _Changes] = {}
        self._delayed: list[tuple[float, int, Item | None]] = []
        """A heap; `None` for a circuit breaker that becomes half-open."""
        self._order = itertools.count()
        self._pending: dict[ClusterKey, dict[Item, _Pending]] = {}
        self._subscribers: dict[str, dict[ClusterKey, set[Item]]] = {}
        """Delayed items by topic."""
        self._closed = False

    def add(self, item: Item) -> None:
        """Make an item ready, or mark it to be reconciled again if it is processing."""
        with self._lock:
            self._add(item)
            self._wake_for_ready()

    def forget(self, item: Item) -> None:
        """Drop an item whose CSR is deleted or decided. A worker that processes it finishes."""
        with self._lock:
            self._remove(item)
            self._ready.discard(item)

    def reset_circuit_breaker(self, cluster: ClusterKey) -> None:
        """Close the circuit breaker of a cluster whose connection ended."""
        with self._lock:
            self._ready.reset_breaker(cluster)

    def notify(self, cluster: ClusterKey | None, topic: str | None) -> None:
        """Make the items ready that wait for a topic; `None` is any cluster, or any topic."""
        with self._lock:
            for item in list(self._waiting_for(cluster, topic)):
                self._add(item)
            for item, changes in self._processing.items():
                if cluster is None or item.cluster == cluster:
                    changes.mark_changed(topic)
            self._wake_for_ready()

    def get(self) -> Item | None:
        """Wait for the next item and return it; `None` once the queue is shut down."""
        with self._lock:
            while not self._closed:
                self._promote_due()
                item = self._ready.pop(self._monotonic())
                if item is not None:
                    self._processing[item] = _Changes()
                    self._note_taken(self._pending[item.cluster][item])
                    self._wake_next()
                    return item
                self._wait()
            return None

    def done(self, item: Item, result: Result, *, seconds: float | None = None) -> None:
        """End the processing of an item.

        `seconds` says how long the slowest call to the cluster's API server took, infinite without
        an answer; `None` when no call was made. It drives the circuit breaker of the cluster.
        """
        with self._lock:
            changes = self._processing.pop(item)
            self._ready.release(item)
            pending = self._pending.get(item.cluster, {}).get(item)
            if pending is None:
                pass  # forgotten while it was processed
            elif changes.needs_requeue(result):
                self._add(item)
            elif result.requeue is Requeue.NEVER:
                self._remove(item)
            else:
                self._delay(item, pending, result)
            opened = seconds is not None and self._record_call(item.cluster, seconds)
        if opened:
            fields = item.cluster.log_fields() | {"alarm": True}
            _logger.warning(
                "circuit breaker opened: the API server does not answer", extra={"fields": fields}
            )

    def shut_down(self) -> None:
        """Make every `get` return `None`, now and later."""
        with self._lock:
            self._closed = True
            self._timer.notify_all()
            self._idle.notify_all()

    def state(self) -> QueueState:
        """Return what metrics show."""
        with self._lock:
            return QueueState(
                pending={cluster: len(items) for cluster, items in self._pending.items()},
                busy_workers=self._ready.busy_by_tenant(),
                open_breakers=frozenset(self._ready.open_breakers(self._monotonic())),
                slow_clusters=self._ready.slow_clusters(),
                ready=sum(
                    pending.ready_since is not None
                    for items in self._pending.values()
                    for pending in items.values()
                ),
            )

    def longest_wait(self) -> float:
        """Return for how many seconds a tenant without a worker has waited for one."""
        with self._lock:
            return self._ready.longest_wait()

    def __len__(self) -> int:
        """Return the number of items that are neither done nor forgotten."""
        with self._lock:
            return sum(map(len, self._pending.values()))

    # Everything below is called with the lock held.

    def _add(self, item: Item) -> None:
        pending = self._pending.setdefault(item.cluster, {}).setdefault(item, _Pending())
        pending.due = None
        if pending.ready_since is None:
            pending.ready_since = self._monotonic()
        self._unsubscribe(item, pending)
        if item in self._processing:
            self._processing[item].added = True
        else:
            self._ready.push(item)

    def _note_taken(self, pending: _Pending) -> None:
        if pending.ready_since is not None:
            self._waited(self._monotonic() - pending.ready_since)
        pending.ready_since = None

    def _remove(self, item: Item) -> None:
        items = self._pending.get(item.cluster, {})
        pending = items.pop(item, None)
        if pending is not None:
            self._unsubscribe(item, pending)
            if not items:
                del self._pending[item.cluster]

    def _delay(self, item: Item, pending: _Pending, result: Result) -> None:
        pending.topics = result.topics
        for topic in result.topics:
            self._subscribers.setdefault(topic, {}).setdefault(item.cluster, set()).add(item)
        delay = result.seconds
        if delay is None:
            backoff = _RETRY_BACKOFF if result.requeue is Requeue.BACKOFF else _WAIT_BACKOFF
            delay = backoff.delay(pending.attempts, self._jitter())
            pending.attempts += 1
        pending.due = self._monotonic() + delay
        self._push_delayed(pending.due, item)

    def _push_delayed(self, due: float, item: Item | None) -> None:
        entry = (due, next(self._order), item)
        heapq.heappush(self._delayed, entry)
        if self._delayed[0] is entry:
            # The worker that waits for the delayed items has too long a timeout now.
            self._timer.notify()

    def _promote_due(self) -> None:
        now = self._monotonic()
        while self._delayed and self._delayed[0][0] <= now:
            due, _, item = heapq.heappop(self._delayed)
            pending = self._pending.get(item.cluster, {}).get(item) if item else None
            # An item that became ready meanwhile leaves its old entry in the heap.
            if item is not None and pending is not None and pending.due == due:
                self._add(item)

    def _record_call(self, cluster: ClusterKey, seconds: float) -> bool:
        """Count a call; return whether the circuit breaker opened."""
        opened = self._ready.record_call(cluster, seconds=seconds, now=self._monotonic())
        if opened is not None:
            self._push_delayed(opened.retry_at, None)
        return opened is not None

    def _waiting_for(self, cluster: ClusterKey | None, topic: str | None) -> Iterator[Item]:
        if topic is None:
            pending = self._pending
            for key in pending if cluster is None else [cluster]:
                yield from (i for i, p in pending.get(key, {}).items() if p.due is not None)
        else:
            subscribers = self._subscribers.get(topic, {})
            for key in subscribers if cluster is None else [cluster]:
                yield from subscribers.get(key, ())

    def _unsubscribe(self, item: Item, pending: _Pending) -> None:
        for topic in pending.topics:
            by_cluster = self._subscribers[topic]
            by_cluster[item.cluster].discard(item)
            if not by_cluster[item.cluster]:
                del by_cluster[item.cluster]
            if not by_cluster:
                del self._subscribers[topic]
        pending.topics = frozenset()

    def _wait(self) -> None:
        """Wait for the delayed items if no other worker does, else until woken."""
        if self._timer_attended:
            self._idle_workers += 1
            self._idle.wait()
            self._idle_workers -= 1
            return
        self._timer_attended = True
        timeout = max(0.0, self._delayed[0][0] - self._monotonic()) if self._delayed else None
        self._timer.wait(timeout)
        self._timer_attended = False

    def _wake_for_ready(self) -> None:
        """Wake a worker if an item may start. Otherwise the worker would only wait again."""
        if self._ready.has_next(self._monotonic()):
            self._wake_one()

    def _wake_one(self) -> None:
        (self._idle if self._idle_workers else self._timer).notify()

    def _wake_next(self) -> None:
        """Wake another worker if there is an item for it, or if none waits for the delayed."""
        unattended = bool(self._delayed) and not self._timer_attended
        if unattended or self._ready.has_next(self._monotonic()):
            self._wake_one()
