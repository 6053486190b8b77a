"""A cache: complete before it is read, changed at once, and quiet while nothing changes."""

import pytest

from common.errors import ApiServerUnavailable
from signer.kube.cache import Cache, Capacity


def words() -> Cache[str]:
    return Cache("words", indexes={"letter": list})


def test_nothing_is_known_before_everything_was_seen_once() -> None:
    """Else *not there yet* would be taken for *not there*."""
    cache = words()
    cache.upsert("a", "one")
    for read in (lambda: cache.get("a"), cache.all, lambda: cache.by_index("letter", "o")):
        with pytest.raises(ApiServerUnavailable, match="words are not known yet"):
            read()
    cache.replace({"a": "one"})
    assert cache.get("a") == "one"
    assert cache.get("b") is None


def test_indexes_follow() -> None:
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


def test_a_list_replaces_what_was_there() -> None:
    cache = words()
    cache.replace({"1": "a", "2": "b"})
    cache.replace({"2": "b", "3": "c"})
    assert set(cache.all()) == {"b", "c"}
    assert cache.by_index("letter", "a") == ()


def test_listeners_hear_of_changes_only() -> None:
    """A node's heartbeats change nothing that is kept: they must wake nobody."""
    cache = words()
    heard: list[tuple[str, str | None, str | None]] = []
    cache.add_event_handler(lambda *change: heard.append(change))
    cache.replace({"1": "a"})
    cache.replace({"1": "a", "2": "b"})
    cache.upsert("2", "b")
    cache.upsert("2", "c")
    cache.delete("1")
    cache.delete("1")
    assert heard == [
        ("1", None, "a"),
        ("2", None, "b"),
        ("2", "b", "c"),
        ("1", "a", None),
    ]


def test_a_listener_finds_the_whole_list() -> None:
    """Half a list of Machines would make the other half look gone."""
    cache = words()
    found: list[int] = []
    cache.add_event_handler(lambda *_: found.append(len(cache.all())))
    cache.replace({"1": "a", "2": "b", "3": "c"})
    assert found == [3, 3, 3]


def test_what_has_no_room_is_not_kept() -> None:
    cache = Cache("words", room=Capacity(size=5, size_of=len))
    cache.replace({"1": "aaa"})
    heard: list[tuple[str, str | None, str | None]] = []
    cache.add_event_handler(lambda *change: heard.append(change))
    assert cache.upsert("2", "bb")
    assert not cache.upsert("3", "c")
    assert cache.upsert("1", "a")
    assert cache.upsert("3", "c")
    assert not cache.upsert("2", "bbbb")
    assert set(cache.all()) == {"a", "c"}
    assert heard == [
        ("2", None, "bb"),
        ("1", "aaa", "a"),
        ("3", None, "c"),
        ("2", "bb", None),
    ]
