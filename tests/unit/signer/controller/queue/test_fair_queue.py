"""Turns of tenants, clusters and requesters, and the workers that each of them may hold."""

import heapq
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import pytest

from signer.controller.queue.fair_queue import FairQueue, Item
from signer.controller.workers import MAX_WORKERS_PER_CLUSTER, WORKERS
from signer.fairness.circuit_breaker import BreakerState, CircuitBreaker
from signer.kinds.cluster import ClusterKey
from signer.verify.answer import CHALLENGE_MAX_AGE

BLUE = ClusterKey(namespace="n", name="blue")
GREEN = ClusterKey(namespace="n", name="green")
OTHER = ClusterKey(namespace="other", name="blue")


def item(name: str, requester: str = "r", cluster: ClusterKey = BLUE) -> Item:
    return Item(cluster=cluster, requester=requester, name=name)


@dataclass(slots=True)
class Turns:
    """A queue with the limits of the product. It returns the items in the order of their turns."""

    workers: int = WORKERS
    per_cluster: int = MAX_WORKERS_PER_CLUSTER
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


def test_tenants_clusters_and_requesters_take_turns() -> None:
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
    assert len(turns.pop_all()) <= WORKERS / 2
    turns.push(*(item(str(n), cluster=OTHER) for n in range(WORKERS)))
    assert len(turns.pop_all()) >= WORKERS / 8


def test_many_hostile_tenants_leave_workers_to_one_more() -> None:
    turns = Turns()
    for n in range(15):
        turns.push(*hanging(f"hostile-{n}", 8))
    turns.pop_all()
    turns.push(item("quick"))
    assert turns.names() == ["quick"]


def test_clusters_of_one_tenant_that_hang_leave_workers_to_its_other_clusters() -> None:
    """An outage takes several clusters away at once, and all Clusters may be in one namespace."""
    turns = Turns()
    turns.push(*hanging("n", 7))
    assert len(turns.pop_all()) < WORKERS
    turns.push(item("quick"))
    assert turns.names() == ["quick"]


def test_an_tenant_that_is_blocked_keeps_its_turn() -> None:
    turns = Turns(per_cluster=1)
    turns.push(item("a"), item("b"), item("other", cluster=OTHER))
    assert turns.names() == ["a", "other"]
    turns.push(item("other2", cluster=OTHER))
    turns.queue.release(item("a"))
    turns.queue.release(item("other", cluster=OTHER))
    assert turns.names() == ["b", "other2"]


def test_a_silent_cluster_gets_one_probing_worker_after_three_calls() -> None:
    turns = Turns()
    turns.push(*(item(str(n)) for n in range(3 * MAX_WORKERS_PER_CLUSTER)))
    for popped in turns.pop_all():
        turns.queue.release(popped)
        turns.queue.record_call(BLUE, seconds=math.inf, now=turns.now)
    assert turns.names() == []
    assert list(turns.queue.open_breakers(turns.now)) == [BLUE]
    turns.now += 2.0
    (probe,) = turns.pop_all()
    turns.queue.release(probe)
    turns.queue.record_call(BLUE, seconds=0.1, now=turns.now)
    assert len(turns.pop_all()) == MAX_WORKERS_PER_CLUSTER


def test_a_slow_cluster_gets_fewer_workers_and_no_pause() -> None:
    turns = Turns()
    turns.push(*(item(str(n)) for n in range(3 * MAX_WORKERS_PER_CLUSTER)))
    assert len(turns.pop_all()) == MAX_WORKERS_PER_CLUSTER
    for n in range(MAX_WORKERS_PER_CLUSTER):
        turns.queue.release(item(str(n)))
        turns.queue.record_call(BLUE, seconds=6.0, now=turns.now)
    assert turns.queue.slow_clusters() == {BLUE: 6.0}
    assert list(turns.queue.open_breakers(turns.now)) == []
    assert len(turns.pop_all()) == MAX_WORKERS_PER_CLUSTER // 2


def test_slow_clusters_of_many_tenants_leave_half_of_the_workers_to_the_others() -> None:
    """Each holds one worker for half a minute, and would never be paused."""
    turns = Turns()
    slow = [item("a", cluster=ClusterKey(namespace=f"n{n}", name="slow")) for n in range(100)]
    for each in slow:
        turns.queue.record_call(each.cluster, seconds=29.0, now=turns.now)
    turns.push(*slow)
    assert len(turns.pop_all()) == WORKERS // 2
    turns.push(item("quick"))
    assert turns.names() == ["quick"]
    turns.queue.release(slow[0])
    turns.queue.release(item("quick"))
    assert len(turns.names()) == 1, "a slow one, as soon as more than half are free"


def test_slow_clusters_of_one_tenant_are_not_looked_at_for_each_item_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns, looks = Turns(), Counter[str]()
    slow = hanging("slow", clusters=500)
    for each in slow:
        turns.queue.record_call(each.cluster, seconds=29.0, now=turns.now)
    turns.push(*slow)
    started = turns.pop_all()
    max_workers = CircuitBreaker.max_workers

    def count(breaker: CircuitBreaker, most: int, now: float) -> int:
        looks["breaker"] += 1
        return max_workers(breaker, most, now)

    monkeypatch.setattr(CircuitBreaker, "max_workers", count)
    for n in range(10):
        turns.push(item(str(n), cluster=OTHER))
    assert len(turns.names()) == 10
    assert not looks
    for n in range(10):
        turns.queue.release(item(str(n), cluster=OTHER))
    turns.queue.release(started[0])
    assert len(turns.names()) == 1


def test_silent_clusters_of_one_tenant_are_not_looked_at_for_each_item_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each step of each item took 0.7 ms more while 500 circuit breakers of a tenant were open."""
    turns, looks = Turns(), Counter[str]()
    silent = hanging("silent", clusters=500)
    for each in silent:
        for _ in range(3):
            turns.queue.record_call(each.cluster, seconds=math.inf, now=turns.now)
    turns.push(*silent)
    state = CircuitBreaker.state

    def count(breaker: CircuitBreaker, now: float) -> BreakerState:
        looks["state"] += 1
        return state(breaker, now)

    assert turns.names() == []
    monkeypatch.setattr(CircuitBreaker, "state", count)
    for n in range(10):
        turns.push(item(str(n), cluster=OTHER))
    assert len(turns.names()) == 10
    assert not looks
    turns.now = 2.0
    assert len(turns.names()) > 1, "the breakers are half-open"


def test_a_discarded_item_leaves_no_state() -> None:
    turns = Turns()
    turns.push(item("a"), item("b"))
    turns.queue.discard(item("a"))
    turns.queue.discard(item("never", cluster=OTHER))
    assert turns.queue.busy_by_tenant() == {}
    assert turns.names() == ["b"]
    assert turns.queue.busy_by_tenant() == {"n": 1}
    turns.queue.release(item("b"))
    assert turns.queue._turns._waiting == {}
    turns.queue.record_call(BLUE, seconds=math.inf, now=0.0)
    turns.queue.record_call(BLUE, seconds=0.1, now=0.0)
    assert turns.queue._breakers == {}


def test_answers_and_offers_of_nodes_and_of_others_take_turns() -> None:
    turns = Turns(workers=1000, per_cluster=1000)
    for n in range(3):
        turns.push(
            item(f"join{n}", f"token{n}"),
            item(f"renewal{n}", f"system:node:{n}"),
            answer(f"answer{n}", f"token{n}"),
            answer(f"renewed{n}", f"system:node:{n}"),
        )
    assert turns.names() == [
        name for n in range(3) for name in (f"join{n}", f"renewal{n}", f"answer{n}", f"renewed{n}")
    ]


def test_a_flood_of_pretended_answers_delays_neither_offers_nor_answers() -> None:
    turns = Turns(workers=1000, per_cluster=1000)
    turns.push(*(answer(f"flood{n}", "attacker") for n in range(100)))
    turns.push(*(item(f"join{n}", f"token{n}") for n in range(2)), answer("answer", "token9"))
    assert turns.names()[:5] == ["flood0", "join0", "answer", "join1", "flood1"]


def test_a_discarded_answer_leaves_no_trace() -> None:
    turns = Turns()
    turns.push(answer("a", "token"))
    turns.queue.discard(answer("a", "token"))
    assert turns.names() == []
    assert turns.queue._turns._waiting == {}


def answer(name: str, requester: str) -> Item:
    return Item(cluster=BLUE, requester=requester, name=name, is_probable_answer=True)


JOINS: Final = 10_000
RENEWS: Final = "system:node:renews"


@dataclass(slots=True)
class Storm:
    """Nodes that join one cluster at once, and one that renews; the signer's time is simulated."""

    rate: float
    """Certificates a second. An offer takes 40 % of the time of a certificate, as measured."""
    now: float = 0.0
    queue: FairQueue = field(default_factory=lambda: Turns().queue)
    challenged: dict[str, float] = field(default_factory=dict)
    renewal_filed: float = 0.0
    ages: dict[str, float] = field(default_factory=dict)
    """By requester: seconds from the challenge to the verdict on its answer."""

    def run(self) -> None:
        """Reconcile until all nodes have a certificate. A node answers after 2 to 10 seconds."""
        arriving: list[tuple[float, int, Item]] = []
        for n in range(JOINS):
            self.queue.push(item("offer", f"token{n}"))
        while len(self.ages) < JOINS:
            if len(self.ages) == JOINS // 10 and not self.renewal_filed:
                self.renewal_filed = self.now
                self.queue.push(item("offer", RENEWS))
            while arriving and arriving[0][0] <= self.now:
                self.queue.push(heapq.heappop(arriving)[-1])
            popped = self.queue.pop(self.now)
            if popped is None:
                self.now = arriving[0][0]
                continue
            self.queue.release(popped)
            requester = popped.requester
            if popped.name == "answer":
                self.now += 0.6 / self.rate
                self.ages[requester] = self.now - self.challenged[requester]
            else:
                self.now += 0.4 / self.rate
                self.challenged[requester] = self.now
                number = len(self.challenged)
                arrives_at = self.now + 2.0 + number % 9
                heapq.heappush(arriving, (arrives_at, number, answer("answer", requester)))


@pytest.mark.parametrize("rate", [2.0, 10.0, 80.0])
def test_no_answer_of_ten_thousand_nodes_expires(rate: float) -> None:
    """All offers had their turns first: at rate 2, answers were verified 33 to 50 minutes late."""
    storm = Storm(rate)
    storm.run()
    assert max(storm.ages.values()) < CHALLENGE_MAX_AGE.total_seconds() / 10


def test_a_renewal_does_not_wait_for_all_nodes_that_join() -> None:
    storm = Storm(rate=10.0)
    storm.run()
    renewed = storm.challenged[RENEWS] + storm.ages[RENEWS]
    assert renewed - storm.renewal_filed < 30.0 < storm.now - renewed
