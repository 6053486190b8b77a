"""A cache: it can be read once it is complete, and calls its handlers for changes only."""

from collections.abc import Iterator

import pytest

from common.errors import ApiServerUnavailable
from signer.fairness.memory_budget import MemoryBudget
from signer.kube.watches.cache import MAX_FAILING_SECONDS, Cache


def words() -> Cache[str]:
    return Cache("words", indexes={"letter": list})


def test_nothing_can_be_read_before_the_first_list_is_complete() -> None:
    """Otherwise *not listed yet* would look like *absent*."""
    cache = words()
    cache.upsert("a", "one")
    for read in (lambda: cache.get("a"), cache.all, lambda: cache.by_index("letter", "o")):
        with pytest.raises(ApiServerUnavailable, match="words are not known yet"):
            read()
    cache.replace({"a": "one"})
    assert cache.get("a") == "one"
    assert cache.get("b") is None


def test_indexes_follow_changes() -> None:
    cache = words()
    cache.replace({"1": "ab", "2": "bb"})
    assert cache.by_index("letter", "b") == ("ab", "bb")
    cache.upsert("1", "cd")
    assert cache.by_index("letter", "b") == ("bb",)
    assert cache.by_index("letter", "c") == ("cd",)
    cache.delete("2")
    assert cache.by_index("letter", "b") == ()
    cache.delete("2")
    assert cache.all() == ("cd",)


def test_list_replaces_all_values() -> None:
    cache = words()
    cache.replace({"1": "a", "2": "b"})
    cache.replace({"2": "b", "3": "c"})
    assert set(cache.all()) == {"b", "c"}
    assert cache.by_index("letter", "a") == ()


def test_handlers_are_called_for_changes_only() -> None:
    """A node's heartbeats change nothing that is kept: they must start no work."""
    cache = words()
    calls: list[tuple[str, str | None, str | None]] = []
    cache.add_event_handler(lambda *change: calls.append(change))
    cache.replace({"1": "a"})
    cache.replace({"1": "a", "2": "b"})
    cache.upsert("2", "b")
    cache.upsert("2", "c")
    cache.delete("1")
    cache.delete("1")
    assert calls == [
        ("1", None, "a"),
        ("2", None, "b"),
        ("2", "b", "c"),
        ("1", "a", None),
    ]


def test_handler_can_read_the_whole_list() -> None:
    """With half a list of Machines, the others would look deleted."""
    cache = words()
    found: list[int] = []
    cache.add_event_handler(lambda *_: found.append(len(cache.all())))
    cache.replace({"1": "a", "2": "b", "3": "c"})
    assert found == [3, 3, 3]


def test_value_over_the_budget_is_not_stored() -> None:
    budget = MemoryBudget(per_tenant=size("n/1", "a" * 1000) + size("n/2", "b" * 100))
    cache = Cache[str]("words", budget=budget)
    cache.replace({"n/1": "a" * 1000})
    calls: list[tuple[str, str | None, str | None]] = []
    cache.add_event_handler(lambda *change: calls.append(change))
    assert cache.upsert("n/2", "b")
    assert not cache.upsert("n/3", "c" * 1000)
    assert cache.incomplete == {"n"}
    with pytest.raises(ApiServerUnavailable, match="words of namespace n exceed its memory budget"):
        cache.require_complete("n")
    cache.require_complete("m")
    assert cache.upsert("n/1", "d")
    assert cache.upsert("n/3", "c" * 600)
    assert not cache.upsert("n/2", "b" * 1000)
    assert set(cache.all()) == {"d", "c" * 600}
    assert calls == [
        ("n/2", None, "b"),
        ("n/1", "a" * 1000, "d"),
        ("n/3", None, "c" * 600),
        ("n/2", "b", None),
    ]
    cache.replace({})
    cache.require_complete("n")
    assert budget.used() == {}


def test_values_of_a_fixed_tenant_count_for_it() -> None:
    budget = MemoryBudget()
    cache = Cache[str]("nodes", budget=budget, tenant="team-a")
    cache.upsert("node-1", "x")
    assert budget.used().keys() == {"team-a"}


def test_closed_cache_gives_its_memory_back() -> None:
    """The watch of a closed cluster may still deliver an event."""
    budget = MemoryBudget()
    cache = Cache[str]("words", budget=budget)
    cache.replace({"n/1": "a"})
    cache.close()
    assert not cache.upsert("n/2", "b")
    assert budget.used() == {}
    with pytest.raises(ApiServerUnavailable):
        cache.get("n/1")


def test_list_that_fails_half_way_deletes_nothing() -> None:
    cache = words()
    cache.replace({"1": "a", "2": "b"})

    def broken() -> Iterator[tuple[str, str]]:
        yield "3", "c"
        raise ApiServerUnavailable("gone")

    with pytest.raises(ApiServerUnavailable):
        cache.load(broken())
    assert set(cache.all()) == {"a", "b", "c"}


def test_first_list_that_fails_half_way_is_not_lost_for_handlers() -> None:
    cache = words()
    calls: list[str] = []
    cache.add_event_handler(lambda key, _before, _after: calls.append(key))

    def broken() -> Iterator[tuple[str, str]]:
        yield "1", "a"
        raise ApiServerUnavailable("gone")

    with pytest.raises(ApiServerUnavailable):
        cache.load(broken())
    assert calls == []
    cache.replace({"1": "a"})
    assert calls == ["1"]


def size(key: str, value: str) -> int:
    """Return the bytes that the cache charges for an entry."""
    budget = MemoryBudget()
    Cache[str]("words", budget=budget).upsert(key, value)
    return budget.used()["n"]


def test_values_share_an_index_key_until_the_last_one_leaves() -> None:
    cache: Cache[str] = Cache("words", indexes={"initial": lambda word: [word[0]]})
    cache.replace({"1": "ask", "2": "aid", "3": "bid"})
    cache.delete("1")
    assert cache.by_index("initial", "a") == ("aid",)
    cache.upsert("4", "and")
    assert cache.by_index("initial", "a") == ("aid", "and")
    for key in ("2", "4"):
        cache.delete(key)
    assert (cache.by_index("initial", "a"), cache.index_keys("initial")) == ((), ("b",))


def test_nothing_is_read_of_a_collection_that_has_failed_for_over_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node whose Machine was deleted renewed twice, from a cache that stood still."""
    cache, seconds = words(), 100.0
    monkeypatch.setattr("time.monotonic", lambda: seconds)
    cache.replace({"1": "a"})
    cache.note_failure()
    seconds += MAX_FAILING_SECONDS
    cache.note_failure()
    assert cache.get("1") == "a"
    seconds += 1
    for read in (
        lambda: cache.get("1"),
        cache.all,
        lambda: cache.by_index("letter", "a"),
        lambda: cache.index_keys("letter"),
    ):
        with pytest.raises(ApiServerUnavailable, match="words could not be read"):
            read()
    assert (cache.has_synced, cache.failing_seconds) == (False, MAX_FAILING_SECONDS + 1)
    cache.note_success()
    assert (cache.get("1"), cache.failing_seconds) == ("a", 0.0)
