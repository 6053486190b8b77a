"""Objects of a tenant above its share of CPU time wait, and those of all others do not."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import pytest

from common.errors import ApiServerUnavailable
from signer.fairness.cpu_budget import CpuBudget
from signer.fairness.memory_budget import MemoryBudget
from signer.kinds.decode import Fields, Source, decode
from signer.kube.watches.cache import Cache
from signer.kube.watches.cache_writer import CacheWriter

COSTLY = 4.0
"""Seconds of CPU that reading an object with this text takes: twice the burst."""


class Thing(Fields):
    """An object with one text."""

    value: str


@dataclass
class World:
    """A cache, its writer, and the time: sleeping and reading make it pass."""

    memory: MemoryBudget = field(default_factory=MemoryBudget)
    now: float = 100.0
    cpu: float = 10.0
    reads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        budget = CpuBudget(monotonic=lambda: self.now, thread_time=lambda: self.cpu)
        self.cache: Cache[str] = Cache("Things", budget=self.memory)
        self.writer = CacheWriter(
            self.cache, self.read, log_fields={"objects": "Things"}, cpu=budget, start=self.start
        )
        self.writer._sleep = self.sleep
        self.started: list[Callable[[], None]] = []

    def start(self, name: str, function: Callable[[], None]) -> None:
        assert name == "late Things"
        self.started.append(function)

    def read_waiting(self) -> None:
        """Run the thread that reads the objects that wait."""
        [function] = self.started
        self.started.clear()
        function()

    def read(self, source: Source) -> str | None:
        value = decode(source, Thing).value
        self.reads.append(value)
        if value.startswith("costly"):
            self.cpu += COSTLY
        return value

    def sleep(self, timeout: float | None = None) -> bool:
        self.now += timeout or 0.0
        return False

    def list(self, *items: tuple[str, str]) -> None:
        """Store a whole list."""
        self.writer.begin_list()
        for key, value in items:
            self.writer.store_listed(body(key, value))
        for _ in self.writer.finish_list():
            pass

    def event(self, key: str, value: str) -> None:
        self.writer.begin()
        self.writer.store(key, body(key, value))

    def delete(self, key: str) -> None:
        self.writer.begin()
        self.writer.delete(key)


def body(key: str, value: str) -> msgspec.Raw:
    namespace, _, name = key.partition("/")
    metadata = {"namespace": namespace, "name": name}
    return msgspec.Raw(json.dumps({"metadata": metadata, "value": value}).encode())


@pytest.fixture
def world() -> World:
    return World()


def test_objects_that_are_costly_to_read_do_not_delay_those_of_another_tenant(world: World) -> None:
    """One Machine changed every five seconds stopped the watch of all tenants."""
    world.list()
    for version in range(20):
        world.event("bad/a", f"costly {version}")
        world.event("good/b", str(version))
    assert world.reads == ["costly 0", *map(str, range(20))]
    assert (world.cache.get("bad/a"), world.cache.get("good/b")) == ("costly 0", "19")
    world.read_waiting()
    assert world.reads[21:] == ["costly 19"]
    assert world.cache.get("bad/a") == "costly 19"


def test_share_of_a_tenant_limits_what_is_read_for_it(world: World) -> None:
    """Forty seconds of work take 400 seconds at a tenth of the time."""
    world.list()
    for number in range(11):
        world.event(f"bad/{number}", "costly")
    world.read_waiting()
    assert len(world.reads) == 11
    assert world.now - 100.0 == pytest.approx((10 * COSTLY - 2.0) / 0.1)


def test_nothing_is_decided_while_an_object_of_the_list_waits(world: World) -> None:
    """An object that is not cached must not look like one that does not exist."""
    world.list(("bad/a", "costly"), ("bad/b", "x"), ("good/c", "y"))
    assert world.cache.has_synced
    assert world.cache.get("bad/b") is None
    world.cache.require_complete("good")
    with pytest.raises(ApiServerUnavailable, match="Things of namespace bad exceed its CPU"):
        world.cache.require_complete("bad")
    world.read_waiting()
    world.cache.require_complete("bad")
    assert world.cache.get("bad/b") == "x"


def test_object_that_is_cached_keeps_its_value_while_its_change_waits(world: World) -> None:
    world.list(("bad/a", "old"))
    world.event("bad/b", "costly")
    world.event("bad/a", "new")
    assert world.cache.get("bad/a") == "old"
    world.cache.require_complete("bad")
    world.list(("bad/a", "newest"), ("bad/b", "costly"))
    assert world.cache.get("bad/a") == "old"
    world.read_waiting()
    assert world.cache.get("bad/a") == "newest"


def test_object_that_is_deleted_while_it_waits_stays_deleted(world: World) -> None:
    """By an event, or because a list does not have it."""
    world.list(("bad/a", "1"), ("bad/b", "1"))
    world.event("bad/c", "costly")
    world.event("bad/a", "2")
    world.event("bad/b", "2")
    world.delete("bad/a")
    world.list(("bad/c", "3"))
    world.read_waiting()
    assert world.cache.all() == ("3",)
    assert world.reads == ["1", "1", "costly", "3"]


def test_objects_that_wait_count_for_the_memory_of_their_tenant() -> None:
    world = World(memory=MemoryBudget(per_tenant=100_000))
    world.list()
    world.event("bad/a", "costly")
    for number in range(200):
        world.event(f"bad/{number}", "x" * 1000)
    with pytest.raises(ApiServerUnavailable, match="memory"):
        world.cache.require_complete("bad")
    assert world.writer.needs_list
    assert world.memory.used()["bad"] <= 100_000
    world.writer.close()
    world.cache.close()
    assert world.memory.used() == {}


def test_cluster_scoped_objects_never_wait(world: World) -> None:
    """Operators and the signer write EndorsementKeys: a ban counts immediately."""
    world.list()
    for number in range(3):
        world.event("key", f"costly {number}")
        assert world.cache.get("key") == f"costly {number}"


def test_event_handler_that_fails_for_an_object_that_waited_is_followed_by_a_list(
    world: World,
) -> None:
    world.list()
    world.event("bad/a", "costly")
    world.event("bad/b", "x")

    def fail(*_: object) -> None:
        raise RuntimeError

    world.cache.add_event_handler(fail)
    assert not world.writer.needs_list
    world.read_waiting()
    assert world.writer.needs_list
