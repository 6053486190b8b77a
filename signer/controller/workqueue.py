"""Which CSR a worker looks at next: each once, fairly by cluster and requester, later ones later.

One requester's flood delays that requester's own requests, one slow cluster its own: clusters take
turns, in each the requesters take turns, and no cluster may occupy more than its share of the
workers. What happens to an item while it is in work, or to a topic that its look then names, may
have come too late for that look: it is looked at once more.
"""

import heapq
import itertools
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from threading import Condition
from typing import Final

from signer.model import ClusterKey

_FIRST_RETRY: Final = 0.25
_FIRST_WAIT: Final = 2.0
_LONGEST_RETRY: Final = 15.0
_LONGEST_WAIT: Final = 60.0
"""Seconds between two looks at most: a pending exchange is looked at every minute."""
_MOST_TOUCHED: Final = 4096
"""Topics that are told apart while a look goes on; more are as good as all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One CSR of one cluster."""

    cluster: ClusterKey
    requester: str
    name: str


class Requeue(Enum):
    """What becomes of an item after a look."""

    NEVER = "done"
    BACKOFF = "retry"
    """Could not be decided: again soon, with backoff."""
    ON_CHANGE = "wait"
    """May become true: again when one of its topics is touched, else later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a look ended."""

    requeue: Requeue
    topics: frozenset[str] = frozenset()
    """Names whose change may settle it: node names, provider IDs, EndorsementKey names."""


DONE: Final = Result(requeue=Requeue.NEVER)
RETRY: Final = Result(requeue=Requeue.BACKOFF)


@dataclass(slots=True)
class _Pending:
    """What is remembered of an item between looks."""

    looks: int = 0
    due: float | None = None
    topics: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Work:
    """What has happened since a look began."""

    asked_for: bool = False
    touched: set[int] = field(default_factory=set)
    """Hashes of topics of the item's cluster; that of `None` is for all of them."""

    def mark_changed(self, topic: str | None) -> None:
        """Take note of a topic, in bounded room: a hostile cluster makes up any size and number."""
        self.touched.add(hash(topic if len(self.touched) < _MOST_TOUCHED else None))

    def needs_requeue(self, look: Result) -> bool:
        """Tell whether something may have come too late for a look that ended like this."""
        return self.asked_for or (
            look.requeue is Requeue.ON_CHANGE
            and not self.touched.isdisjoint(map(hash, (None, *look.topics)))
        )


@dataclass(slots=True)
class _ClusterQueue:
    """The ready items of one cluster: requesters in turn, each with its items in order."""

    requesters: OrderedDict[str, OrderedDict[Item, None]] = field(default_factory=OrderedDict)
    busy: int = 0


class WorkQueue:
    """The queue of all clusters, for any number of threads."""

    def __init__(
        self, *, per_cluster: int, monotonic: Callable[[], float], jitter: Callable[[], float]
    ) -> None:
        """Let `per_cluster` items of a cluster be in work at once; `jitter` gives 0 to 1."""
        self._per_cluster = per_cluster
        self._monotonic = monotonic
        self._jitter = jitter
        self._changed = Condition()
        self._clusters: OrderedDict[ClusterKey, _ClusterQueue] = OrderedDict()
        self._pending: dict[Item, _Pending] = {}
        self._waiting: dict[str, set[Item]] = {}
        """Which items wait for a topic."""
        self._in_work: dict[Item, _Work] = {}
        self._later: list[tuple[float, int, Item]] = []
        self._order = itertools.count()
        self._closed = False

    def add(self, item: Item) -> None:
        """Have an item looked at now."""
        with self._changed:
            self._add(item)
            self._changed.notify()

    def forget(self, item: Item) -> None:
        """Drop an item: its CSR is gone or settled. One that is in work is finished."""
        with self._changed:
            self._remove(item)
            turns = self._clusters.get(item.cluster)
            ready = turns.requesters.get(item.requester) if turns else None
            if turns is not None and ready is not None:
                ready.pop(item, None)
                if not ready:
                    del turns.requesters[item.requester]

    def notify(self, cluster: ClusterKey | None, topic: str | None) -> None:
        """Have those looked at that wait for a topic; `None` is any cluster, or any topic."""
        with self._changed:
            waiting = self._pending if topic is None else self._waiting.get(topic, ())
            for item in [i for i in waiting if cluster is None or i.cluster == cluster]:
                if self._pending[item].due is not None:
                    self._add(item)
                    self._changed.notify()
            for item, work in self._in_work.items():
                if cluster is None or item.cluster == cluster:
                    work.mark_changed(topic)

    def get(self) -> Item | None:
        """Return the item whose turn it is, waiting for one; `None` once the queue is closed."""
        with self._changed:
            while not self._closed:
                self._promote_due()
                item = self._next()
                if item is not None:
                    self._in_work[item] = _Work()
                    self._clusters[item.cluster].busy += 1
                    return item
                self._changed.wait(self._until_due())
            return None

    def done(self, item: Item, look: Result) -> None:
        """Take note of how a look at an item ended."""
        with self._changed:
            work = self._in_work.pop(item)
            self._clusters[item.cluster].busy -= 1
            pending = self._pending.get(item)
            if pending is not None and work.needs_requeue(look):
                self._add(item)
            elif look.requeue is Requeue.NEVER:
                self._remove(item)
            elif pending is not None:
                self._delay(item, pending, look)
            self._changed.notify_all()

    def shut_down(self) -> None:
        """Let every `take` return; nothing is handed out any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        """Count what is neither done nor forgotten."""
        with self._changed:
            return len(self._pending)

    def _add(self, item: Item) -> None:
        pending = self._pending.setdefault(item, _Pending())
        pending.due = None
        self._unsubscribe(item, pending)
        if item in self._in_work:
            self._in_work[item].asked_for = True
            return
        turns = self._clusters.setdefault(item.cluster, _ClusterQueue())
        turns.requesters.setdefault(item.requester, OrderedDict())[item] = None

    def _remove(self, item: Item) -> None:
        pending = self._pending.pop(item, None)
        if pending is not None:
            self._unsubscribe(item, pending)

    def _unsubscribe(self, item: Item, pending: _Pending) -> None:
        for topic in pending.topics:
            waiting = self._waiting[topic]
            waiting.discard(item)
            if not waiting:
                del self._waiting[topic]
        pending.topics = frozenset()

    def _delay(self, item: Item, pending: _Pending, look: Result) -> None:
        retried = look.requeue is Requeue.BACKOFF
        first, longest = (_FIRST_RETRY, _LONGEST_RETRY) if retried else (_FIRST_WAIT, _LONGEST_WAIT)
        delay = min(longest, first * 2.0 ** min(pending.looks, 16))
        pending.looks += 1
        pending.topics = look.topics
        for topic in look.topics:
            self._waiting.setdefault(topic, set()).add(item)
        pending.due = self._monotonic() + delay * (0.5 + self._jitter() / 2)
        heapq.heappush(self._later, (pending.due, next(self._order), item))

    def _promote_due(self) -> None:
        now = self._monotonic()
        while self._later and self._later[0][0] <= now:
            due, _, item = heapq.heappop(self._later)
            pending = self._pending.get(item)
            if pending is not None and pending.due == due:
                self._add(item)

    def _until_due(self) -> float | None:
        return max(0.0, self._later[0][0] - self._monotonic()) if self._later else None

    def _next_cluster(self) -> ClusterKey | None:
        for cluster, turns in self._clusters.items():
            if turns.requesters and turns.busy < self._per_cluster:
                return cluster
        return None

    def _next(self) -> Item | None:
        cluster = self._next_cluster()
        if cluster is None:
            return None
        turns = self._clusters[cluster]
        requester, ready = next(iter(turns.requesters.items()))
        item, _ = ready.popitem(last=False)
        # Whoever had a turn goes to the end.
        turns.requesters.move_to_end(requester)
        if not ready:
            del turns.requesters[requester]
        self._clusters.move_to_end(cluster)
        return item
