"""A reflector keeps its cache right, whatever the API server does."""

import itertools
import tracemalloc
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, NoReturn
from unittest.mock import patch

import msgspec
import pytest

from common.errors import ApiServerUnavailable
from signer.fairness.memory_budget import MemoryBudget
from signer.kinds.decode import Fields, Json, Source, decode
from signer.kube import pages
from signer.kube.pages import read_page
from signer.kube.transport.client import Expired, PageTooLarge, Response
from signer.kube.transport.interruption import Interrupted, Interruption
from signer.kube.watches import cache as cache_module
from signer.kube.watches import outage, watch
from signer.kube.watches.cache import Cache
from signer.kube.watches.watch import Reflector, ResourceSpec
from tests.builders.unreadable import STORED_LEVELS, nested

Step = Json | Exception
"""The server's next answer, or an exception."""


def thing(name: str, version: int, value: str = "") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "n", "resourceVersion": str(version)}
    return {"metadata": metadata, "value": value}


def page(version: int, *items: Json, more: str = "") -> Json:
    return {"metadata": {"resourceVersion": str(version), "continue": more}, "items": list(items)}


def event(kind: str, body: Json) -> Json:
    return {"type": kind, "object": body}


def written(step: Json) -> bytes:
    return msgspec.json.encode(step)


class Server:
    """Plays the steps of `lists` and `watches` one after another, then stops the reflector."""

    name = "fake"

    def __init__(self, lists: Iterable[Step], watches: Iterable[Iterable[Step]]) -> None:
        self._lists = iter(lists)
        self._watches = iter(watches)
        self.queries: list[dict[str, str]] = []
        self.interruption = Interruption()
        self.closed = False
        self.turns = 0

    def stop(self) -> NoReturn:
        self.interruption.end()
        raise Interrupted

    def get_page(self, path: str, query: Mapping[str, str]) -> Response:
        assert path == "/things"
        self.queries.append(dict(query))
        step = next(self._lists, None)
        if step is None:
            self.stop()
        if isinstance(step, Exception):
            raise step
        return Response(status=200, content=written(step))

    def watch(self, path: str, query: Mapping[str, str]) -> Generator[bytes, None, None]:
        assert path == "/things"
        self.queries.append(dict(query))
        steps = next(self._watches, None)
        if steps is None:
            self.stop()
        for step in steps:
            if isinstance(step, Exception):
                raise step
            yield written(step)

    def yield_cpu(self) -> None:
        self.turns += 1

    def close(self) -> None:
        self.closed = True


def run(server: Server, resource: ResourceSpec[str], cache: Cache[str]) -> list[float]:
    """Run a reflector until the server has no more steps; return the seconds of its pauses."""
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) > MAX_PAUSES:
            server.stop()

    with patch.object(server.interruption, "sleep", sleep):
        reflector_of(server, resource, cache).run()
    return pauses


def reflector_of(
    server: Server,
    resource: ResourceSpec[str],
    cache: Cache[str],
    interrupted: Callable[[], None] = lambda: None,
) -> Reflector[str]:
    return Reflector(
        server,
        resource,
        cache,
        interruption=server.interruption,
        start=lambda *_: None,
        interrupted=interrupted,
    )


SECONDS = 60.0
MAX_PAUSES = 20
"""After which a test ends although the server has more steps."""


class Played:
    """A reflector that has run until the server had no more steps."""

    def __init__(
        self,
        lists: Iterable[Step],
        watches: Iterable[Iterable[Step]],
        budget: MemoryBudget | None = None,
    ) -> None:
        self.server = Server(lists, watches)
        self.cache: Cache[str] = Cache("things", budget=budget)
        collection = ResourceSpec(plural="things", path="/things", read=_read, page_size=2)
        self.pauses = run(self.server, collection, self.cache)

    @property
    def versions(self) -> list[str | None]:
        """Return the resource version that each watch continued from; `None` for a list."""
        return [query.get("resourceVersion") for query in self.server.queries]


class Thing(Fields):
    """An object with one text."""

    value: str


def _read(source: Source) -> str | None:
    value = decode(source, Thing).value
    if value == "unreadable":
        raise ValueError
    return value or None


THINGS = ResourceSpec(plural="things", path="/things", read=_read)


def test_events_after_the_list_are_applied() -> None:
    played = Played(
        [page(5, thing("a", 1, "1"), thing("b", 2, "2"))],
        [
            [
                event("ADDED", thing("c", 6, "3")),
                event("MODIFIED", thing("a", 7, "4")),
                event("DELETED", thing("b", 8, "2")),
            ]
        ],
    )
    assert dict(zip("ac", map(played.cache.get, ("n/a", "n/c")), strict=True)) == {
        "a": "4",
        "c": "3",
    }
    assert played.cache.get("n/b") is None
    assert played.versions == [None, "5", "8"]


def test_object_that_is_no_longer_kept_is_deleted() -> None:
    played = Played([page(5, thing("a", 1, "1"))], [[event("MODIFIED", thing("a", 6, ""))]])
    assert played.cache.all() == ()


def test_list_is_read_in_pages() -> None:
    played = Played([page(5, thing("a", 1, "1"), more="next"), page(5, thing("b", 2, "2"))], [])
    assert set(played.cache.all()) == {"1", "2"}
    assert played.server.queries[:2] == [{"limit": "2"}, {"limit": "8", "continue": "next"}]


def test_page_is_not_kept_while_the_next_one_is_read() -> None:
    """With 500 clusters, 327 lists were read at once, and each kept its first page."""
    padding = "x" * (4 << 20)
    traced = []

    def lists() -> Iterator[Json]:
        for name, more in (("a", "next"), ("b", "next"), ("c", "")):
            traced.append(tracemalloc.get_traced_memory()[0])
            yield page(5, {**thing(name, 1, name), "padding": padding}, more=more)

    tracemalloc.start()
    try:
        played = Played(lists(), [])
    finally:
        tracemalloc.stop()
    assert set(played.cache.all()) == {"a", "b", "c"}
    assert max(traced) - traced[0] < len(padding)


def test_bookmark_advances_the_version() -> None:
    bookmark = event("BOOKMARK", {"metadata": {"resourceVersion": "99"}})
    played = Played([page(5)], [[bookmark]])
    assert played.versions == [None, "5", "99"]
    assert played.server.queries[1]["allowWatchBookmarks"] == "true"
    assert 240 <= int(played.server.queries[1]["timeoutSeconds"]) <= 300


def test_interrupted_watch_continues_from_its_version() -> None:
    played = Played(
        [page(5), page(6)], [[event("ADDED", thing("a", 6, "1")), ApiServerUnavailable("gone")], []]
    )
    assert played.versions == [None, "5", None, "6", None]
    assert [q.get("limit") for q in played.server.queries] == ["2", None, "1", None, "1"]


INTERRUPTED = event("ADDED", thing("a", 100, "1")), ApiServerUnavailable("gone")


@pytest.mark.parametrize("before", [INTERRUPTED, ()], ids=["interrupted", "silent"])
@pytest.mark.parametrize("present", ["99", "9"])
def test_everything_is_listed_again_after_a_restore_of_etcd(
    before: Iterable[Step], present: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A watch from a version that the server has not reached brings neither events nor errors."""
    restored = page(int(present), thing("b", 8, "2"))
    played = Played([page(100, thing("a", 1, "1")), restored, restored], [before])
    assert played.versions == [None, "100", None, None, present]
    assert played.cache.all() == ("2",)
    [warning] = [r for r in caplog.records if "earlier state" in r.message]
    assert vars(warning)["fields"]["version"] == "100"


class Hanging(Server):
    """A server whose watches bring no event; `act` is called in the first one."""

    act: Callable[[], None]

    def watch(self, path: str, query: Mapping[str, str]) -> Generator[bytes, None, None]:
        for _ in super().watch(path, query):
            raise AssertionError(query)
        self.act()
        self.interruption.sleep(SECONDS)
        yield b"no interruption"


def test_restore_that_the_versions_do_not_show_ends_the_watch_and_lists_everything() -> None:
    """The restored API server has passed the version of the watch: it brings later events alone."""
    server = Hanging([page(100, thing("a", 1, "1")), page(101, thing("b", 8, "2"))], [[]])
    cache: Cache[str] = Cache("things")
    reflector = reflector_of(server, THINGS, cache)
    readable: list[bool] = []

    def restore() -> None:
        reflector.list_again()
        readable.append(cache.has_synced)

    server.act = restore
    reflector.run()
    assert readable == [False]
    assert cache.all() == ("2",)
    assert [query.get("resourceVersion") for query in server.queries] == [None, "100", None, "101"]


def test_list_that_began_before_a_restore_makes_nothing_readable() -> None:
    """Its thread ends the list, while another one has noticed the restore."""
    readable: list[bool] = []

    class Restored(Server):
        def yield_cpu(self) -> None:
            if not self.turns:
                reflector.list_again()
            self.turns += 1

        def watch(self, path: str, query: Mapping[str, str]) -> Generator[bytes, None, None]:
            readable.append(cache.has_synced)
            self.interruption.check()
            yield from super().watch(path, query)

    before = [thing(str(n), 1, "old") for n in range(watch._VALUES_PER_TURN)]
    server = Restored([page(100, *before), page(101, thing("b", 8, "new"))], [])
    cache: Cache[str] = Cache("things")
    reflector = reflector_of(server, THINGS, cache)
    reflector.run()
    assert readable == [False, True]
    assert cache.all() == ("new",)


def test_second_restore_before_the_list_does_not_end_the_reflector() -> None:
    """It ended for good, and no request was decided until the process started again."""
    server = Hanging([page(100), page(101)], [[]])
    reflector = reflector_of(server, THINGS, Cache("things"))
    reflector.list_again()

    def restore() -> None:
        reflector.list_again()
        reflector.list_again()

    server.act = restore
    reflector.run()
    assert [query.get("resourceVersion") for query in server.queries] == [None, "100", None, "101"]


def test_reflector_that_is_stopped_while_it_lists_again_ends() -> None:
    server = Hanging([page(100), page(101)], [[]])
    reflector = reflector_of(server, THINGS, Cache("things"))

    def stop() -> None:
        reflector.list_again()
        reflector.stop()

    server.act = stop
    reflector.run()
    assert server.closed
    assert len(server.queries) == 2


def test_everything_is_listed_again_after_an_hour() -> None:
    """A watch may have missed what nothing shows."""
    with patch.object(watch, "_RELIST_SECONDS", -1.0):
        played = Played([page(5, thing("a", 1, "1")), page(5, thing("b", 2, "2"))], [[]])
    assert played.cache.all() == ("2",)
    assert played.versions == [None, "5", None, "5"]


def failed(status: int) -> ApiServerUnavailable:
    failure = ApiServerUnavailable("failed")
    failure.status = status
    return failure


@pytest.mark.parametrize(
    ("lists", "count"),
    [
        ([failed(0)], 1),
        ([failed(503)], 1),
        ([failed(403)], 0),
        ([failed(429)], 0),
        ([failed(403), failed(0)], 1),
        ([failed(500), failed(0), failed(500)], 1),
        ([failed(500), page(5), failed(500)], 2),
        ([page(5, thing("a", 1, "1"), more="next"), Expired()], 0),
    ],
)
def test_each_outage_is_reported_once_and_a_refusal_is_not(lists: list[Step], count: int) -> None:
    """Verdicts wait after each report: a kind that stays broken held them up half of the time."""
    lost: list[None] = []
    server = Server(lists, [[Expired()]])
    with patch.object(server.interruption, "sleep", lambda _: None):
        reflector_of(server, THINGS, Cache("things"), lambda: lost.append(None)).run()
    assert len(lost) == count


@pytest.mark.parametrize("failure", [failed(500), failed(0), failed(403), Expired(), {"items": 1}])
def test_kind_that_cannot_be_listed_is_outdated_until_it_is_listed(
    failure: Step, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing told old objects from present ones, for as long as the list failed."""
    monkeypatch.setattr(cache_module, "MAX_FAILING_SECONDS", -1.0)
    cache: Cache[str] = Cache("things")
    outdated: list[bool] = []

    def lists() -> Iterator[Step]:
        for step in (failure, page(7, thing("a", 6, "1"))):
            outdated.append(cache.is_outdated)
            yield step

    run(Server(lists(), []), ResourceSpec(plural="things", path="/things", read=_read), cache)
    assert outdated == [False, True]
    assert cache.all() == ("1",)
    [alarm] = [vars(r)["fields"] for r in caplog.records]
    assert (alarm["objects"], alarm["seconds"], alarm["alarm"]) == ("things", 0, True)
    assert alarm["message"].startswith("nothing is decided from things until they can be read")


def test_outdated_kind_is_listed_before_it_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch could continue, but the events of the last minute come after its begin."""
    monkeypatch.setattr(cache_module, "MAX_FAILING_SECONDS", -1.0)
    played = Played([page(5, thing("a", 1, "1")), page(6, thing("b", 6, "2"))], [[failed(0)]])
    assert [query.get("limit") for query in played.server.queries] == ["2", None, "2", None]
    assert played.cache.all() == ("2",)


@pytest.mark.parametrize("end", [Expired(), event("ADDED", thing("a", 6, "a bug"))])
def test_kind_whose_watch_ended_early_is_outdated_while_its_list_takes_long(
    end: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "MAX_FAILING_SECONDS", -1.0)
    cache: Cache[str] = Cache("things")
    outdated: list[bool] = []

    def lists() -> Iterator[Step]:
        yield page(5)
        outdated.append(cache.is_outdated)
        yield page(7)

    def handler(_key: str, _before: str | None, after: str | None) -> None:
        if after is not None:
            raise ZeroDivisionError

    cache.add_event_handler(handler)
    server = Server(lists(), [[end]])
    run(server, ResourceSpec(plural="things", path="/things", read=_read), cache)
    assert outdated == [True]
    assert cache.has_synced


def test_watch_that_is_accepted_and_silent_is_not_outdated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many kinds have no event for hours, and then no bookmark either."""
    monkeypatch.setattr(cache_module, "MAX_FAILING_SECONDS", -1.0)
    cache: Cache[str] = Cache("things")
    readable: list[bool] = []

    class Silent(Server):
        def watch(self, path: str, query: Mapping[str, str]) -> Generator[bytes, None, None]:
            readable.append(cache.has_synced)
            yield b""
            readable.append(cache.has_synced)
            yield from super().watch(path, query)

    server = Silent([page(5, thing("a", 1, "1")), page(5)], [[failed(0)], []])
    run(server, ResourceSpec(plural="things", path="/things", read=_read), cache)
    assert readable[:4] == [True, True, True, True]


def test_silent_watch_continues_at_the_same_or_a_later_state() -> None:
    played = Played([page(99, thing("a", 1, "1")), page(99), page(100)], [[], [], []])
    assert played.versions == [None, "99", None, "99", None, "99", None]
    assert played.cache.all() == ("1",)


def test_watch_with_an_event_continues_without_a_list() -> None:
    played = Played([page(5)], [[event("ADDED", thing("a", 6, "1"))], []])
    assert played.versions[:3] == [None, "5", "6"]


def error(code: int) -> Json:
    return event("ERROR", {"kind": "Status", "code": code, "metadata": {}})


@pytest.mark.parametrize("expired", [Expired(), error(410), error(500)])
def test_expired_version_is_listed_again(expired: Step) -> None:
    """Servers report it as a status, or as an event of a watch."""
    lists = [page(5, thing("a", 1, "1")), page(9, thing("b", 8, "2"))]
    played = Played(lists, [[expired]])
    assert played.versions == [None, "5", None, "9"]
    assert played.cache.all() == ("2",)


def test_version_that_the_server_never_had_is_abandoned() -> None:
    """Another server, to which a load balancer leads, may lag behind and refuse it every time."""
    refused: list[list[Step]] = [[ApiServerUnavailable("504")] for _ in range(7)]
    lists = [page(500, thing("a", 1, "1")), *[page(500)] * 6, page(9, thing("b", 8, "2"))]
    played = Played(lists, refused)
    assert played.versions == [None, *["500", None] * 7, "9"]
    assert played.cache.all() == ("2",)


def test_list_that_expires_between_pages_starts_again() -> None:
    lists: list[Step] = [
        page(5, thing("a", 1, "1"), more="next"),
        Expired(),
        page(9, thing("b", 8, "2")),
    ]
    played = Played(lists, [])
    assert played.cache.all() == ("2",)


def test_list_that_fails_is_retried() -> None:
    played = Played([ApiServerUnavailable("away"), page(5, thing("a", 1, "1"))], [])
    assert played.versions == [None, None, "5"]
    assert played.cache.all() == ("1",)


def test_malformed_answers_do_not_end_the_reflector(caplog: pytest.LogCaptureFixture) -> None:
    lists = [{"items": 1}, page(5, thing("a", 1, "1")), page(6, thing("a", 1, "1"))]
    played = Played(lists, [[{"unexpected": 1}]])
    assert played.cache.has_synced
    messages = [vars(r)["fields"]["message"] for r in caplog.records]
    assert messages[:2] == [
        "the API server's answer cannot be read",
        "an event of the API server cannot be read",
    ]


def test_log_has_the_begin_and_the_end_of_an_outage(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each retry had a line of its own, and none said that the watch works again."""
    monkeypatch.setattr(outage, "_STEADY_SECONDS", -1.0)
    caplog.set_level("INFO")
    away = [ApiServerUnavailable("away")] * 7
    Played([*away, page(5)], [[event("ADDED", thing("a", 6, "1"))]])
    lines = [(r.message, vars(r)["fields"]) for r in caplog.records]
    assert [message for message, _ in lines] == ["watch interrupted"] * 3 + ["watch works again"]
    assert lines[-1][1]["failures"] == 7


def test_unreadable_object_is_left_out_alone() -> None:
    played = Played(
        [page(5, thing("a", 1, "unreadable"), thing("b", 2, "2"))],
        [[event("MODIFIED", thing("b", 6, "unreadable")), event("ADDED", thing("c", 7, "3"))]],
    )
    assert played.cache.all() == ("3",)


def test_unreadable_objects_are_logged_once_per_list(caplog: pytest.LogCaptureFixture) -> None:
    bad = [thing(str(n), 1, "unreadable") for n in range(10)]
    Played([page(5, *bad)], [[event("ADDED", thing("x", 6, "unreadable"))]])
    [record] = [r for r in caplog.records if r.message == "unreadable object"]
    assert record.fields == {  # type: ignore[attr-defined]
        "cluster": "fake",
        "objects": "things",
        "namespace": "n",
        "object": "n/0",
        "alarm": True,
    }


def size(key: str, value: str) -> int:
    """Return the bytes that the cache charges for an entry."""
    budget = MemoryBudget()
    Cache[str]("things", budget=budget).upsert(key, value)
    return budget.used()["n"]


def test_objects_over_the_budget_are_left_out_and_listed_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A hostile cluster's objects must not cost the others the signer's memory."""
    budget = MemoryBudget(per_tenant=3 * size("n/a", "x" * 1000))
    played = Played(
        [
            page(5, thing("a", 1, "a" * 1000), thing("b", 2, "b" * 2500), thing("c", 3, "c")),
            page(9, thing("d", 8, "d" * 1000)),
        ],
        [
            [
                event("ADDED", thing("e", 6, "e" * 1000)),
                event("DELETED", thing("a", 7, "a" * 1000)),
                event("ADDED", thing("f", 8, "f" * 2500)),
            ]
        ],
        budget,
    )
    assert played.versions == [None, "5", None, "9"]
    assert played.cache.all() == ("d" * 1000,)
    refusals = [vars(r)["fields"] for r in caplog.records if "budget" in r.message]
    assert refusals == [{"cluster": "fake", "objects": "things", "namespace": "n", "alarm": True}]
    assert budget.refused() == {"n": 2}
    assert budget.used() == {"n": size("n/d", "d" * 1000)}


def test_page_that_is_too_large_is_asked_for_in_smaller_pages() -> None:
    """A few large CSRs must not keep the others of a cluster from being listed."""
    lists: list[Step] = [PageTooLarge(), page(5, thing("a", 1, "1"), more="next"), page(5)]
    played = Played(lists, [])
    assert played.cache.all() == ("1",)
    limits = [query.get("limit") for query in played.server.queries]
    assert limits == ["2", "1", "1", None]


def test_object_that_is_too_large_alone_interrupts_the_list(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lists: list[Step] = [PageTooLarge(), PageTooLarge(), page(9, thing("a", 8, "1"))]
    assert Played(lists, []).cache.all() == ("1",)
    [record] = [r for r in caplog.records if r.message == "watch interrupted"][:1]
    assert vars(record)["fields"]["message"] == "an object of the API server is too large"


def test_list_of_many_tiny_items_is_refused_before_they_take_memory() -> None:
    """A list of a 4 MiB answer could have two million."""
    content = b'{"metadata":{"resourceVersion":"1"},"items":[' + b"0," * (1 << 18) + b"0]}"
    response = Response(status=200, content=content)
    tracemalloc.start()
    with pytest.raises(ApiServerUnavailable, match="answer cannot be read"):
        response.read(read_page)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 1 << 20


def test_list_without_an_end_is_abandoned() -> None:
    endless = itertools.chain(
        (page(5, more="next") for _ in range(3)), [page(9, thing("a", 8, "1"))]
    )
    with patch.object(pages, "_MAX_PAGES", 3):
        played = Played(endless, [])
    assert played.cache.all() == ("1",)
    assert played.versions == [None] * 4 + ["9"]


def test_kind_that_is_not_served_has_no_objects() -> None:
    """Not every management cluster has MachinePools; *unknown* would block every request."""
    cache: Cache[str] = Cache("things")
    collection = ResourceSpec(plural="things", path=lambda: None, read=_read)
    pauses = run(Server([], []), collection, cache)
    assert cache.all() == ()
    assert pauses[0] <= watch._ABSENT.initial


def test_kind_that_is_missing_for_a_moment_keeps_its_objects() -> None:
    """An API server that starts does not know all of its kinds. All Clusters were closed then."""
    paths = iter(["/things", None, None, "/things"])
    cache: Cache[str] = Cache("things")
    deleted: list[str] = []
    cache.add_event_handler(lambda key, _, after: deleted.append(key) if after is None else None)
    collection = ResourceSpec(plural="things", path=lambda: next(paths), read=_read)
    lists: list[Step] = [page(5, thing("a", 5, "1")), page(6, thing("a", 6, "2"))]
    pauses = run(Server(lists, [[Expired()]]), collection, cache)
    assert cache.all() == ("2",)
    assert deleted == []
    assert max(pauses) <= watch._BACKOFF.maximum


def test_kind_that_stays_missing_loses_its_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_MISSING_SECONDS", 0.0)
    paths = itertools.chain(["/things"], itertools.repeat(None))
    cache: Cache[str] = Cache("things")
    collection = ResourceSpec(plural="things", path=lambda: next(paths), read=_read)
    run(Server([page(5, thing("a", 5, "1"))], [[Expired()]]), collection, cache)
    assert cache.all() == ()


def test_watch_that_ends_at_once_is_restarted_after_a_pause() -> None:
    """A server or proxy that closes each watch must not get requests without a pause."""
    played = Played([page(5)] * 3, [[], [], []])
    assert len(played.pauses) == 3
    assert min(played.pauses) >= watch._BACKOFF.initial / 2


def test_path_that_discovery_returns_is_listed() -> None:
    """Versions of an API come and go, so it is asked for before each list."""
    paths = iter(["/things", "/things"])
    cache: Cache[str] = Cache("things")
    collection = ResourceSpec(plural="things", path=lambda: next(paths), read=_read)
    lists: list[Step] = [page(5), page(6, thing("a", 6, "1"))]
    run(Server(lists, [[Expired()]]), collection, cache)
    assert cache.all() == ("1",)
    assert next(paths, None) is None


def test_reflector_that_is_stopped_gives_back_what_it_holds() -> None:
    assert Played([page(5)], []).server.closed


def test_other_threads_compute_during_a_long_list() -> None:
    """Few threads compute at a time: 100,000 values would hold a place for seconds.

    They get it while the values are read, and while their handlers are called.
    """
    count = 3 * watch._VALUES_PER_TURN
    things = [thing(str(n), 1, str(n)) for n in range(count)]
    assert Played([page(5, *things)], []).server.turns == 2 * 3


DEEP: Json = {**thing("deep", 6), "spec": nested(STORED_LEVELS), "value": ["refused"]}
"""Refused by each Python: by its depth, or by the type of its value."""


def test_watch_goes_on_after_an_object_that_cannot_be_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One PATCH by a tenant stopped the joins of all tenants, and no log named anybody."""
    played = Played(
        [page(5, thing("a", 1, "1"), thing("deep", 2, "2"))],
        [[event("MODIFIED", DEEP), event("MODIFIED", thing("a", 7, "new"))], []],
    )
    assert played.versions == [None, "5", "7", None]
    assert played.cache.all() == ("new",)
    [alarm] = [vars(r)["fields"] for r in caplog.records if r.message == "unreadable object"]
    assert (alarm["namespace"], alarm["object"], alarm["alarm"]) == ("n", "n/deep", True)
    with pytest.raises(ApiServerUnavailable, match="things: n/deep cannot be read"):
        played.cache.require_complete("n")
    played.cache.require_complete("other")


def test_list_with_an_object_that_cannot_be_read_has_all_others() -> None:
    """After a restart, the signer was not ready until somebody had found the object."""
    played = Played([page(5, thing("a", 1, "1"), DEEP, thing("c", 3, "3"))], [])
    assert set(played.cache.all()) == {"1", "3"}
    assert [each.key for each in played.cache.unreadable] == ["n/deep"]


@pytest.mark.parametrize("end", [event("DELETED", DEEP), event("MODIFIED", thing("deep", 8, "2"))])
def test_object_that_is_deleted_or_corrected_is_forgotten(end: Json) -> None:
    played = Played([page(5, DEEP)], [[end]])
    played.cache.require_complete("n")
    assert not played.cache.unreadable


def test_object_that_a_later_list_lacks_is_forgotten() -> None:
    played = Played([page(5, DEEP), page(9)], [[Expired()]])
    played.cache.require_complete("n")
    assert not played.cache.unreadable
