"""Work queue: each item once, again when there is a reason, and no worker woken without one."""

import math
import pickle
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from signer.controller.queue.fair_queue import Item
from signer.controller.queue.workqueue import DONE, RETRY, Requeue, Result, WorkQueue
from signer.kinds.cluster import ClusterKey

BLUE = ClusterKey(namespace="n", name="blue")
GREEN = ClusterKey(namespace="n", name="green")


def item(name: str, requester: str = "r", cluster: ClusterKey = BLUE) -> Item:
    return Item(cluster=cluster, requester=requester, name=name)


def waiting(*topics: str) -> Result:
    return Result(requeue=Requeue.ON_CHANGE, topics=frozenset(topics))


@dataclass(slots=True)
class QueueFixture:
    """A queue and its clock. Getting an item never waits."""

    seconds: float = 0.0
    workers: int = 1000
    queue: WorkQueue = field(init=False)
    waits: list[float] = field(default_factory=list)
    """How long each item that was taken had waited for a worker."""

    def __post_init__(self) -> None:
        self.queue = WorkQueue(
            workers=self.workers,
            max_workers_per_cluster=self.workers,
            monotonic=lambda: self.seconds,
            jitter=lambda: 0.0,
            waited=self.waits.append,
        )

    def get_ready(self) -> Item | None:
        """Get the next ready item, `None` while no item is ready."""
        with self.queue._lock:
            self.queue._promote_due()
            ready = self.queue._ready.has_next(self.seconds)
        return self.queue.get() if ready else None

    def ready_names(self) -> list[str]:
        """Take all ready items, and leave them processing."""
        names = []
        while (ready := self.get_ready()) is not None:
            names.append(ready.name)
        return names

    def reconcile(self, expected: Item, result: Result) -> None:
        """Take an item, which must be the only ready one, and end its processing."""
        assert self.get_ready() == expected
        self.queue.done(expected, result)


def test_an_item_is_ready_once() -> None:
    fixture = QueueFixture()
    for _ in range(3):
        fixture.queue.add(item("a"))
    assert fixture.ready_names() == ["a"]


def test_wait_for_a_worker_begins_when_the_item_is_ready() -> None:
    """Neither the time of the processing nor that of the backoff counts."""
    fixture = QueueFixture(workers=1)
    fixture.queue.add(item("a"))
    fixture.queue.add(item("b"))
    fixture.seconds = 2.0
    fixture.queue.add(item("a"))
    assert fixture.ready_names() == ["a"]
    assert fixture.queue.state().ready == 1
    fixture.seconds = 5.0
    fixture.queue.done(item("a"), RETRY)
    assert fixture.ready_names() == ["b"]
    fixture.seconds = 100.0
    fixture.queue.done(item("b"), DONE)
    assert fixture.ready_names() == ["a"]
    assert fixture.waits == [2.0, 5.0, 0.0]
    assert fixture.queue.state().ready == 0


def test_an_item_that_changes_while_it_is_processed_is_processed_again() -> None:
    fixture = QueueFixture()
    fixture.queue.add(item("a"))
    assert fixture.ready_names() == ["a"]
    fixture.queue.add(item("a"))
    assert fixture.ready_names() == []
    fixture.queue.done(item("a"), DONE)
    assert fixture.ready_names() == ["a"]
    fixture.queue.done(item("a"), DONE)
    assert fixture.ready_names() == []
    assert len(fixture.queue) == 0


def test_backoff_grows_up_to_a_limit() -> None:
    fixture = QueueFixture()
    fixture.queue.add(item("a"))
    delays = []
    for _ in range(12):
        fixture.reconcile(item("a"), RETRY)
        assert fixture.get_ready() is None
        delays.append(fixture.queue._delayed[0][0] - fixture.seconds)
        fixture.seconds = fixture.queue._delayed[0][0]
    assert delays[:3] == [0.25, 0.5, 1.0]
    assert delays[-1] == 15.0


def test_a_topic_makes_the_items_ready_that_wait_for_it() -> None:
    fixture = QueueFixture()
    fixture.queue.add(item("a"))
    fixture.reconcile(item("a"), waiting("node-1", "metal://1"))
    fixture.queue.notify(BLUE, "node-2")
    fixture.queue.notify(GREEN, "node-1")
    assert fixture.get_ready() is None
    fixture.queue.notify(BLUE, "metal://1")
    fixture.reconcile(item("a"), waiting("node-1"))
    fixture.queue.notify(BLUE, "metal://1")
    assert fixture.get_ready() is None
    fixture.queue.notify(None, "node-1")
    fixture.reconcile(item("a"), waiting())
    fixture.queue.notify(BLUE, None)
    fixture.reconcile(item("a"), DONE)
    assert fixture.queue._subscribers == {}


@pytest.mark.parametrize(
    ("cluster", "topic", "again"),
    [
        (BLUE, "node-1", True),
        (None, "metal://1", True),
        (BLUE, None, True),
        (None, None, True),
        (BLUE, "node-2", False),
        (GREEN, "node-1", False),
        (GREEN, None, False),
    ],
)
def test_a_topic_that_changes_while_an_item_is_processed_is_not_missed(
    cluster: ClusterKey | None,
    topic: str | None,
    again: bool,  # noqa: FBT001 # a parameter of the case
) -> None:
    """The worker may have read the old state; the topics are known only at the end."""
    fixture = QueueFixture()
    fixture.queue.add(item("a"))
    assert fixture.ready_names() == ["a"]
    fixture.queue.notify(cluster, topic)
    fixture.queue.done(item("a"), waiting("node-1", "metal://1"))
    assert fixture.ready_names() == (["a"] if again else [])


def test_memory_for_changed_topics_is_bounded() -> None:
    """A hostile cluster makes up Nodes while one of its items is processed."""
    fixture = QueueFixture()
    fixture.queue.add(item("a"))
    assert fixture.ready_names() == ["a"]
    for n in range(5000):
        fixture.queue.notify(BLUE, str(n) + "x" * 1000)
    (changes,) = fixture.queue._processing.values()
    assert len(pickle.dumps(changes.topics)) < 100_000
    fixture.queue.done(item("a"), waiting("node-1"))
    assert fixture.ready_names() == ["a"]


def test_changed_topics_are_forgotten_after_the_processing() -> None:
    fixture = QueueFixture()
    fixture.queue.add(item("a"))
    assert fixture.ready_names() == ["a"]
    fixture.queue.notify(BLUE, "node-1")
    fixture.queue.done(item("a"), waiting("node-1"))
    fixture.reconcile(item("a"), waiting("node-1"))
    assert fixture.ready_names() == []


def test_a_changed_topic_changes_no_decision_and_no_backoff() -> None:
    fixture = QueueFixture()
    for name, result in (("decided", DONE), ("undecided", RETRY)):
        fixture.queue.add(item(name))
        assert fixture.ready_names() == [name]
        fixture.queue.notify(BLUE, None)
        fixture.queue.done(item(name), result)
        assert fixture.ready_names() == []
    fixture.seconds += 0.25
    assert fixture.ready_names() == ["undecided"]


def test_a_waiting_item_is_processed_each_minute_without_any_change() -> None:
    fixture = QueueFixture()
    fixture.queue.add(item("a"))
    for _ in range(10):
        fixture.reconcile(item("a"), waiting("node-1"))
        fixture.seconds += 60.0


def test_an_item_that_was_notified_is_not_processed_again_when_its_backoff_ends() -> None:
    fixture = QueueFixture()
    fixture.queue.add(item("a"))
    fixture.reconcile(item("a"), waiting("x"))
    fixture.queue.notify(BLUE, "x")
    fixture.reconcile(item("a"), DONE)
    fixture.seconds += 1000.0
    assert fixture.get_ready() is None


def test_a_forgotten_item_does_not_come_back() -> None:
    fixture = QueueFixture()
    for name in ("ready", "waiting", "processing"):
        fixture.queue.add(item(name, name))
    fixture.queue.forget(item("ready", "ready"))
    assert fixture.ready_names() == ["waiting", "processing"]
    fixture.queue.done(item("waiting", "waiting"), waiting("x"))
    fixture.queue.forget(item("waiting", "waiting"))
    fixture.queue.add(item("processing", "processing"))
    fixture.queue.forget(item("processing", "processing"))
    fixture.queue.notify(BLUE, "y")
    fixture.queue.done(item("processing", "processing"), waiting("y"))
    fixture.queue.notify(None, "x")
    fixture.seconds += 1000.0
    assert fixture.ready_names() == []
    assert len(fixture.queue) == 0
    assert fixture.queue._pending == {}


def test_a_cluster_whose_calls_are_slow_is_probed_when_its_breaker_becomes_half_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log names the cluster and its tenant."""
    fixture = QueueFixture()
    for n in range(5):
        fixture.queue.add(item(str(n)))
    assert len(fixture.ready_names()) == 5
    for n in range(5):
        fixture.queue.done(item(str(n)), RETRY, seconds=math.inf)
        fixture.queue.add(item(str(n)))
    (record,) = [r for r in caplog.records if r.message.startswith("circuit breaker opened")]
    assert vars(record)["fields"] == {"cluster": "n/blue", "namespace": "n", "alarm": True}
    assert fixture.queue.state().open_breakers == {BLUE}
    assert fixture.ready_names() == []
    assert fixture.queue._delayed[0][0] <= fixture.seconds + 2.0  # a worker wakes up for it
    fixture.seconds += 2.0
    assert fixture.ready_names() == ["0"]
    fixture.queue.done(item("0"), DONE, seconds=0.1)
    assert fixture.ready_names() == ["1", "2", "3", "4"]
    assert fixture.queue.state().open_breakers == frozenset()


def test_the_state_names_pending_clusters_and_tenants_of_workers() -> None:
    fixture = QueueFixture()
    fixture.queue.add(item("a"))
    fixture.queue.add(item("b"))
    assert fixture.get_ready() == item("a")
    state = fixture.queue.state()
    assert (state.pending, state.busy_workers) == ({BLUE: 2}, {"n": 1})


class Workers:
    """Threads that take items from a queue and count how often each of them is woken."""

    def __init__(self, queue: WorkQueue, count: int, handle: Callable[[Item], Result]) -> None:
        self._queue = queue
        self._handle = handle
        self.wake_ups = 0
        self._wait = queue._wait
        queue._wait = self._count_wait  # type: ignore[method-assign]
        self._pool = ThreadPoolExecutor(count)
        self._futures = [self._pool.submit(self._work) for _ in range(count)]

    def _count_wait(self) -> None:
        self._wait()
        self.wake_ups += 1

    def _work(self) -> None:
        while (ready := self._queue.get()) is not None:
            self._queue.done(ready, self._handle(ready))

    def join(self) -> None:
        for future in self._futures:
            future.result(timeout=60)
        self._pool.shutdown()


def test_workers_share_the_items_and_return_after_the_shutdown() -> None:
    queue = WorkQueue(
        workers=4, max_workers_per_cluster=4, monotonic=lambda: 0.0, jitter=lambda: 0.0
    )
    seen: list[str] = []

    def handle(ready: Item) -> Result:
        seen.append(ready.name)
        if len(seen) == 100:
            queue.shut_down()
        return DONE

    workers = Workers(queue, 4, handle)
    for n in range(100):
        queue.add(item(str(n), str(n % 7)))
    workers.join()
    assert sorted(seen, key=int) == [str(n) for n in range(100)]
    assert queue.get() is None


def test_one_event_wakes_one_worker_and_not_all_of_them() -> None:
    """In a flood, waking 32 workers for each event took 13 % of the CPU."""
    queue = WorkQueue(
        workers=32, max_workers_per_cluster=4, monotonic=lambda: 0.0, jitter=lambda: 0.0
    )
    handled = threading.Semaphore(0)

    def handle(_: Item) -> Result:
        handled.release()
        return DONE

    workers = Workers(queue, 32, handle)
    for n in range(200):
        queue.add(item(str(n)))
        assert handled.acquire(timeout=60)
    before_shutdown = workers.wake_ups
    queue.shut_down()
    workers.join()
    assert before_shutdown < 3 * 200


def test_an_item_that_may_not_start_wakes_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a storm all workers of a cluster are busy, and each change woke an idle one in vain."""
    fixture = QueueFixture(workers=1)
    woken: list[None] = []
    monkeypatch.setattr(fixture.queue, "_wake_one", lambda: woken.append(None))
    fixture.queue.add(item("a"))
    assert len(woken) == 1
    assert fixture.ready_names() == ["a"]
    fixture.queue.add(item("a"))
    fixture.queue.add(item("b"))
    assert len(woken) == 1
    fixture.queue.done(item("a"), DONE)
    fixture.queue.add(item("c"))
    assert len(woken) == 2


def test_another_worker_waits_for_the_delayed_items_when_one_takes_an_item() -> None:
    """Else an item would be late for as long as the worker is busy that waited for it."""
    jitter = iter([1.0, 0.0])
    queue = WorkQueue(
        workers=8,
        max_workers_per_cluster=8,
        monotonic=time.monotonic,
        jitter=lambda: next(jitter, 0.0),
    )
    attempts: Counter[str] = Counter()
    late_again = threading.Event()
    in_time: list[bool] = []

    def handle(ready: Item) -> Result:
        attempts[ready.name] += 1
        if attempts[ready.name] == 1:
            return RETRY
        if ready.name == "early":
            in_time.append(late_again.wait(30))
            queue.shut_down()
        else:
            late_again.set()
        return DONE

    queue.add(item("early"))
    queue.add(item("late"))
    workers = Workers(queue, 2, handle)
    workers.join()
    assert in_time == [True]
