"""Turns of owners, clusters and requesters, and the workers that each of them may hold."""

from collections import Counter
from dataclasses import dataclass, field

from signer.controller import controller
from signer.controller.fair_queue import FairQueue, Item
from signer.model import ClusterKey

BLUE = ClusterKey(namespace="n", name="blue")
GREEN = ClusterKey(namespace="n", name="green")
OTHER = ClusterKey(namespace="other", name="blue")


def item(name: str, requester: str = "r", cluster: ClusterKey = BLUE) -> Item:
    return Item(cluster=cluster, requester=requester, name=name)


@dataclass(slots=True)
class Turns:
    """A queue with the limits of the product. It returns the items in the order of their turns."""

    workers: int = controller._WORKERS
    per_cluster: int = controller._MAX_WORKERS_PER_CLUSTER
    now: float = 0.0
    queue: FairQueue = field(init=False)

    def __post_init__(self) -> None:
        self.queue = FairQueue(workers=self.workers, max_workers_per_cluster=self.per_cluster)

    def push(self, *items: Item) -> None:
        for each in items:
            self.queue.push(each)

    def pop_all(self) -> list[Item]:
        items = []
        while (popped := self.queue.pop(self.now)) is not None:
            items.append(popped)
        return items

    def names(self) -> list[str]:
        return [popped.name for popped in self.pop_all()]


def test_owners_clusters_and_requesters_take_turns() -> None:
    turns = Turns(workers=1000, per_cluster=1000)
    turns.push(*(item(f"flood{n}", "attacker") for n in range(3)))
    turns.push(item("honest", "node"), item("green", "node", GREEN), item("other", "node", OTHER))
    assert turns.names() == ["flood0", "other", "green", "honest", "flood1", "flood2"]


def test_a_tenant_with_many_clusters_gets_no_more_turns_than_one_with_one() -> None:
    """Turns by cluster alone would give ten clusters of a tenant ten turns out of eleven."""
    turns = Turns(workers=1000, per_cluster=1000)
    for n in range(10):
        turns.push(item("hostile", cluster=ClusterKey(namespace="hostile", name=str(n))))
    turns.push(*(item(f"honest{n}", cluster=OTHER) for n in range(10)))
    first = [popped.cluster.namespace for popped in turns.pop_all()[:10]]
    assert Counter(first) == {"hostile": 5, "other": 5}


def test_a_cluster_holds_no_more_workers_than_its_limit() -> None:
    turns = Turns(per_cluster=2)
    turns.push(*(item(f"slow{n}") for n in range(4)), item("quick", cluster=GREEN))
    assert sorted(turns.names()) == ["quick", "slow0", "slow1"]
    turns.queue.release(item("slow0"))
    assert turns.names() == ["slow2"]


def hanging(namespace: str, clusters: int) -> list[Item]:
    keys = [ClusterKey(namespace=namespace, name=f"hanging-{n}") for n in range(clusters)]
    return [item(name, cluster=key) for name in "abcdefgh" for key in keys]


def test_eight_silent_clusters_of_one_tenant_leave_workers_to_others() -> None:
    """Their 4 workers each were all 32 workers, and honest clusters got none."""
    turns = Turns()
    turns.push(*hanging("hostile", 8))
    assert len(turns.pop_all()) <= controller._WORKERS / 2
    turns.push(*(item(str(n), cluster=OTHER) for n in range(controller._WORKERS)))
    assert len(turns.pop_all()) >= controller._WORKERS / 8


def test_many_hostile_tenants_leave_workers_to_one_more() -> None:
    turns = Turns()
    for n in range(15):
        turns.push(*hanging(f"hostile-{n}", 8))
    turns.pop_all()
    turns.push(item("quick"))
    assert turns.names() == ["quick"]


def test_clusters_of_one_owner_that_hang_leave_workers_to_its_other_clusters() -> None:
    """An outage takes several clusters away at once, and all Clusters may be in one namespace."""
    turns = Turns()
    turns.push(*hanging("n", 7))
    assert len(turns.pop_all()) < controller._WORKERS
    turns.push(item("quick"))
    assert turns.names() == ["quick"]


def test_an_owner_that_is_blocked_keeps_its_turn() -> None:
    turns = Turns(per_cluster=1)
    turns.push(item("a"), item("b"), item("other", cluster=OTHER))
    assert turns.names() == ["a", "other"]
    turns.push(item("other2", cluster=OTHER))
    turns.queue.release(item("a"))
    turns.queue.release(item("other", cluster=OTHER))
    assert turns.names() == ["b", "other2"]


def test_a_silent_cluster_gets_one_probing_worker_after_three_slow_calls() -> None:
    turns = Turns()
    turns.push(*(item(str(n)) for n in range(3 * controller._MAX_WORKERS_PER_CLUSTER)))
    for popped in turns.pop_all():
        turns.queue.release(popped)
        turns.queue.record_call(BLUE, slow=True, now=turns.now)
    assert turns.names() == []
    assert list(turns.queue.open_breakers(turns.now)) == [BLUE]
    turns.now += 2.0
    (probe,) = turns.pop_all()
    turns.queue.release(probe)
    turns.queue.record_call(BLUE, slow=False, now=turns.now)
    assert len(turns.pop_all()) == controller._MAX_WORKERS_PER_CLUSTER


def test_a_discarded_item_is_gone_and_nothing_stays_behind() -> None:
    turns = Turns()
    turns.push(item("a"), item("b"))
    turns.queue.discard(item("a"))
    turns.queue.discard(item("never", cluster=OTHER))
    assert turns.queue.busy_by_owner() == {}
    assert turns.names() == ["b"]
    assert turns.queue.busy_by_owner() == {"n": 1}
    turns.queue.release(item("b"))
    assert turns.queue._owners == {}
    turns.queue.record_call(BLUE, slow=True, now=0.0)
    turns.queue.record_call(BLUE, slow=False, now=0.0)
    assert turns.queue._breakers == {}
