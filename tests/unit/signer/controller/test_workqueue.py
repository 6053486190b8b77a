"""Who is looked at next: fairly, once, and again when there is a reason."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from signer.controller import controller
from signer.controller.workqueue import DONE, RETRY, Item, Requeue, Result, WorkQueue
from signer.model import ClusterKey

BLUE = ClusterKey(namespace="n", name="blue")
GREEN = ClusterKey(namespace="n", name="green")


def item(name: str, requester: str = "r", cluster: ClusterKey = BLUE) -> Item:
    return Item(cluster=cluster, requester=requester, name=name)


def waiting(*topics: str) -> Result:
    return Result(requeue=Requeue.ON_CHANGE, topics=frozenset(topics))


@dataclass(slots=True)
class Queued:
    """A queue with a clock of its own, which is emptied without waiting."""

    per_cluster: int = 100
    seconds: float = 0.0
    queue: WorkQueue = field(init=False)

    def __post_init__(self) -> None:
        self.queue = WorkQueue(
            per_cluster=self.per_cluster, monotonic=lambda: self.seconds, jitter=lambda: 1.0
        )

    def ready(self) -> Item | None:
        """Take what is ready, `None` when nothing is."""
        with self.queue._changed:
            self.queue._promote_due()
            nothing = self.queue._next_cluster() is None
        return None if nothing else self.queue.get()

    def names(self) -> list[str]:
        """Take all that is ready, and leave it in work."""
        taken = []
        while (found := self.ready()) is not None:
            taken.append(found.name)
        return taken

    def look(self, wanted: Item, look: Result) -> None:
        """Take an item, which is the only one that is ready, and finish it."""
        assert self.ready() == wanted
        self.queue.done(wanted, look)


def test_requesters_and_clusters_take_turns() -> None:
    """A flood delays who makes it."""
    queued = Queued()
    for n in range(3):
        queued.queue.add(item(f"flood{n}", "attacker"))
    queued.queue.add(item("honest", "node"))
    queued.queue.add(item("other", "node", GREEN))
    assert queued.names() == ["flood0", "other", "honest", "flood1", "flood2"]


def test_an_item_is_there_once() -> None:
    queued = Queued()
    for _ in range(3):
        queued.queue.add(item("a"))
    assert queued.names() == ["a"]


def test_what_changes_during_a_look_is_looked_at_again() -> None:
    queued = Queued()
    queued.queue.add(item("a"))
    assert queued.names() == ["a"]
    queued.queue.add(item("a"))
    assert queued.names() == []
    queued.queue.done(item("a"), DONE)
    assert queued.names() == ["a"]
    queued.queue.done(item("a"), DONE)
    assert queued.names() == []
    assert len(queued.queue) == 0


def test_a_cluster_occupies_no_more_than_its_share() -> None:
    """A workload cluster that hangs would otherwise hold every worker."""
    queued = Queued(per_cluster=2)
    for n in range(4):
        queued.queue.add(item(f"slow{n}"))
    queued.queue.add(item("quick", cluster=GREEN))
    assert sorted(queued.names()) == ["quick", "slow0", "slow1"]
    queued.queue.done(item("slow0"), DONE)
    assert queued.names() == ["slow2"]


def test_clusters_that_hang_leave_workers_for_the_others() -> None:
    """An outage takes several clusters away at once."""
    queued = Queued(per_cluster=service._MAX_WORKERS_PER_CLUSTER)
    for n in range(7):
        hanging = ClusterKey(namespace="n", name=f"hanging-{n}")
        for name in "abcdefgh":
            queued.queue.add(item(f"hanging {name}", cluster=hanging))
    assert len(queued.names()) < service._WORKERS
    queued.queue.add(item("quick"))
    assert queued.names() == ["quick"]


def test_a_retry_comes_later_each_time_up_to_a_limit() -> None:
    queued = Queued()
    queued.queue.add(item("a"))
    delays = []
    for _ in range(12):
        queued.look(item("a"), RETRY)
        assert queued.ready() is None
        delays.append(queued.queue._later[0][0] - queued.seconds)
        queued.seconds = queued.queue._later[0][0]
    assert delays[:3] == [0.25, 0.5, 1.0]
    assert delays[-1] == 15.0


def test_a_waiting_item_is_woken_by_its_topics() -> None:
    queued = Queued()
    queued.queue.add(item("a"))
    queued.look(item("a"), waiting("node-1", "metal://1"))
    queued.queue.notify(BLUE, "node-2")
    queued.queue.notify(GREEN, "node-1")
    assert queued.ready() is None
    queued.queue.notify(BLUE, "metal://1")
    queued.look(item("a"), waiting("node-1"))
    queued.queue.notify(BLUE, "metal://1")
    assert queued.ready() is None
    queued.queue.notify(None, "node-1")
    queued.look(item("a"), waiting())
    queued.queue.notify(BLUE, None)
    queued.look(item("a"), DONE)


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
def test_a_topic_that_is_touched_during_a_look_is_not_missed(
    cluster: ClusterKey | None,
    topic: str | None,
    again: bool,  # noqa: FBT001 # a parameter of the case
) -> None:
    """The look may have read what was there before; which topics count is known at its end."""
    queued = Queued()
    queued.queue.add(item("a"))
    assert queued.names() == ["a"]
    queued.queue.notify(cluster, topic)
    queued.queue.done(item("a"), waiting("node-1", "metal://1"))
    assert queued.names() == (["a"] if again else [])


def test_a_flood_of_topics_during_a_look_takes_no_room() -> None:
    """A hostile cluster makes up Nodes while it lets a look hang."""
    queued = Queued()
    queued.queue.add(item("a"))
    assert queued.names() == ["a"]
    for n in range(5000):
        queued.queue.notify(BLUE, str(n) + "x" * 1000)
    (work,) = queued.queue._in_work.values()
    assert len(pickle.dumps(work.touched)) < 100_000
    queued.queue.done(item("a"), waiting("node-1"))
    assert queued.names() == ["a"]


def test_what_was_touched_during_a_look_counts_for_that_look() -> None:
    queued = Queued()
    queued.queue.add(item("a"))
    assert queued.names() == ["a"]
    queued.queue.notify(BLUE, "node-1")
    queued.queue.done(item("a"), waiting("node-1"))
    queued.look(item("a"), waiting("node-1"))
    assert queued.names() == []


def test_a_touched_topic_changes_no_decision_and_no_backoff() -> None:
    queued = Queued()
    for name, look in (("decided", DONE), ("undecided", RETRY)):
        queued.queue.add(item(name))
        assert queued.names() == [name]
        queued.queue.notify(BLUE, None)
        queued.queue.done(item(name), look)
        assert queued.names() == []
    queued.seconds += 0.25
    assert queued.names() == ["undecided"]


def test_a_waiting_item_is_looked_at_each_minute_whatever_happens() -> None:
    queued = Queued()
    queued.queue.add(item("a"))
    for _ in range(10):
        queued.look(item("a"), waiting("node-1"))
        queued.seconds += 60.0


def test_an_item_that_was_woken_is_not_due_as_well() -> None:
    queued = Queued()
    queued.queue.add(item("a"))
    queued.look(item("a"), waiting("x"))
    queued.queue.notify(BLUE, "x")
    queued.look(item("a"), DONE)
    queued.seconds += 1000.0
    assert queued.ready() is None


def test_a_forgotten_item_does_not_come_back() -> None:
    queued = Queued()
    for name in ("ready", "waiting", "in work"):
        queued.queue.add(item(name, name))
    queued.queue.forget(item("ready", "ready"))
    assert queued.names() == ["waiting", "in work"]
    queued.queue.done(item("waiting", "waiting"), waiting("x"))
    queued.queue.forget(item("waiting", "waiting"))
    queued.queue.add(item("in work", "in work"))
    queued.queue.forget(item("in work", "in work"))
    queued.queue.notify(BLUE, "y")
    queued.queue.done(item("in work", "in work"), waiting("y"))
    queued.queue.notify(None, "x")
    queued.seconds += 1000.0
    assert queued.names() == []
    assert len(queued.queue) == 0


def test_workers_share_the_work_and_leave_when_it_is_closed() -> None:
    queue = WorkQueue(per_cluster=4, monotonic=lambda: 0.0, jitter=lambda: 1.0)
    seen: list[str] = []

    def work() -> None:
        while (taken := queue.get()) is not None:
            seen.append(taken.name)
            queue.done(taken, DONE)
            if len(seen) == 100:
                queue.shut_down()

    with ThreadPoolExecutor(4) as pool:
        workers = [pool.submit(work) for _ in range(4)]
        for n in range(100):
            queue.add(item(str(n), str(n % 7)))
        for worker in workers:
            worker.result()
    assert sorted(seen, key=int) == [str(n) for n in range(100)]
    assert queue.get() is None
