"""A cache: complete before it is read, changed at once, and quiet while nothing changes."""

import pytest

from common.errors import ApiServerUnavailable
from signer.kube.cache import Cache, Room


def words() -> Cache[str]:
    return Cache("words", indexes={"letter": list})


def test_nothing_is_known_before_everything_was_seen_once() -> None:
    """Else *not there yet* would be taken for *not there*."""
    cache = words()
    cache.put("a", "one")
    for read in (lambda: cache.get("a"), cache.all, lambda: cache.by("letter", "o")):
        with pytest.raises(ApiServerUnavailable, match="words are not known yet"):
            read()
    cache.fill({"a": "one"})
    assert cache.get("a") == "one"
    assert cache.get("b") is None


def test_indexes_follow() -> None:
    cache = words()
    cache.fill({"1": "ab", "2": "bb"})
    assert cache.by("letter", "b") == ("ab", "bb")
    cache.put("1", "cd")
    assert cache.by("letter", "b") == ("bb",)
    assert cache.by("letter", "c") == ("cd",)
    cache.drop("2")
    assert cache.by("letter", "b") == ()
    cache.drop("2")
    assert cache.all() == ("cd",)


def test_a_list_replaces_what_was_there() -> None:
    cache = words()
    cache.fill({"1": "a", "2": "b"})
    cache.fill({"2": "b", "3": "c"})
    assert set(cache.all()) == {"b", "c"}
    assert cache.by("letter", "a") == ()


def test_listeners_hear_of_changes_only() -> None:
    """A node's heartbeats change nothing that is kept: they must wake nobody."""
    cache = words()
    heard: list[tuple[str, str | None, str | None]] = []
    cache.listen(lambda *change: heard.append(change))
    cache.fill({"1": "a"})
    cache.fill({"1": "a", "2": "b"})
    cache.put("2", "b")
    cache.put("2", "c")
    cache.drop("1")
    cache.drop("1")
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
    cache.listen(lambda *_: found.append(len(cache.all())))
    cache.fill({"1": "a", "2": "b", "3": "c"})
    assert found == [3, 3, 3]


def test_what_has_no_room_is_not_kept() -> None:
    cache = Cache("words", room=Room(size=5, weigh=len))
    cache.fill({"1": "aaa"})
    heard: list[tuple[str, str | None, str | None]] = []
    cache.listen(lambda *change: heard.append(change))
    assert cache.put("2", "bb")
    assert not cache.put("3", "c")
    assert cache.put("1", "a")
    assert cache.put("3", "c")
    assert not cache.put("2", "bbbb")
    assert set(cache.all()) == {"a", "c"}
    assert heard == [
        ("2", None, "bb"),
        ("1", "aaa", "a"),
        ("3", None, "c"),
        ("2", "bb", None),
    ]
