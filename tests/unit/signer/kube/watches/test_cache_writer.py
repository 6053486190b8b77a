"""Objects of a tenant above its share of CPU time wait, and those of all others do not."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import msgspec
import pytest

from common.errors import ApiServerUnavailable
from signer.fairness.cpu_budget import CpuBudget
from signer.fairness.memory_budget import MemoryBudget
from signer.kube.decode import Fields, Source, decode
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
            self.cache, self.read, log_fields={}, cpu=budget, sleep=self.sleep
        )

    def read(self, source: Source) -> str | None:
        value = decode(source, Thing).value
        self.reads.append(value)
        if value.startswith("costly"):
            self.cpu += COSTLY
        return value

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)

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


async def until_idle() -> None:
    """Wait until no other task is left."""
    current = asyncio.current_task()
    await asyncio.gather(*(task for task in asyncio.all_tasks() if task is not current))


def run(test: Callable[[World], Awaitable[None]], world: World | None = None) -> World:
    world = world or World()

    async def play() -> None:
        await test(world)

    asyncio.run(play())
    return world


def test_objects_that_are_costly_to_read_do_not_delay_those_of_another_tenant() -> None:
    """One Machine changed every five seconds stopped the watch of all tenants."""

    async def play(world: World) -> None:
        world.list()
        for version in range(20):
            world.event("bad/a", f"costly {version}")
            world.event("good/b", str(version))
        assert world.reads == ["costly 0", *map(str, range(20))]
        assert (world.cache.get("bad/a"), world.cache.get("good/b")) == ("costly 0", "19")
        await until_idle()
        assert world.reads[21:] == ["costly 19"]
        assert world.cache.get("bad/a") == "costly 19"

    run(play)


def test_share_of_a_tenant_limits_what_is_read_for_it() -> None:
    """Forty seconds of work take 400 seconds at a tenth of the time."""

    async def play(world: World) -> None:
        world.list()
        for number in range(11):
            world.event(f"bad/{number}", "costly")
        await until_idle()
        assert len(world.reads) == 11
        assert world.now - 100.0 == pytest.approx((10 * COSTLY - 2.0) / 0.1)

    run(play)


def test_nothing_is_decided_while_an_object_of_the_list_waits() -> None:
    """An object that is not cached must not look like one that does not exist."""

    async def play(world: World) -> None:
        world.list(("bad/a", "costly"), ("bad/b", "x"), ("good/c", "y"))
        assert world.cache.has_synced
        assert world.cache.get("bad/b") is None
        world.cache.require_complete("good")
        with pytest.raises(ApiServerUnavailable, match="Things of namespace bad exceed its CPU"):
            world.cache.require_complete("bad")
        await until_idle()
        world.cache.require_complete("bad")
        assert world.cache.get("bad/b") == "x"

    run(play)


def test_object_that_is_cached_keeps_its_value_while_its_change_waits() -> None:
    async def play(world: World) -> None:
        world.list(("bad/a", "old"))
        world.event("bad/b", "costly")
        world.event("bad/a", "new")
        assert world.cache.get("bad/a") == "old"
        world.cache.require_complete("bad")
        world.list(("bad/a", "newest"), ("bad/b", "costly"))
        assert world.cache.get("bad/a") == "old"
        await until_idle()
        assert world.cache.get("bad/a") == "newest"

    run(play)


def test_object_that_is_deleted_while_it_waits_stays_deleted() -> None:
    """By an event, or because a list does not have it."""

    async def play(world: World) -> None:
        world.list(("bad/a", "1"), ("bad/b", "1"))
        world.event("bad/c", "costly")
        world.event("bad/a", "2")
        world.event("bad/b", "2")
        world.delete("bad/a")
        world.list(("bad/c", "3"))
        await until_idle()
        assert world.cache.all() == ("3",)

    world = run(play)
    assert world.reads == ["1", "1", "costly", "3"]


def test_objects_that_wait_count_for_the_memory_of_their_tenant() -> None:
    async def play(world: World) -> None:
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

    run(play, World(memory=MemoryBudget(per_tenant=100_000)))


def test_cluster_scoped_objects_never_wait() -> None:
    """Operators and the signer write EndorsementKeys: a ban counts immediately."""

    async def play(world: World) -> None:
        world.list()
        for number in range(3):
            world.event("key", f"costly {number}")
            assert world.cache.get("key") == f"costly {number}"

    run(play)


def test_event_handler_that_fails_for_an_object_that_waited_is_followed_by_a_list() -> None:
    async def play(world: World) -> None:
        world.list()
        world.event("bad/a", "costly")
        world.event("bad/b", "x")

        def fail(*_: object) -> None:
            raise RuntimeError

        world.cache.add_event_handler(fail)
        assert not world.writer.needs_list
        await until_idle()
        assert world.writer.needs_list

    run(play)
