"""Keeps one cache equal to one collection of an API server: list, watch, and again.

Outlives server restarts, connections that die silently, resource versions that expired (410) and
objects that cannot be read. Nothing ends it but `stop`.
"""

import logging
import random
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from threading import Event
from typing import Any, Final, Generic, Protocol, TypeVar

from common.errors import ApiServerUnavailable
from signer.kube.cache import Cache
from signer.kube.client import Expired, Json, Response

_logger = logging.getLogger(__name__)
V = TypeVar("V")

_WATCH_SECONDS: Final = 300
"""After which the server ends a watch; spread a little, so that not all come again at once."""
_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 10.0
_MOST_FAILURES: Final = 6
"""After which everything is listed again: the version may be one that the server never had."""
_MOST_PAGES: Final = 10_000
_ABSENT_PAUSE: Final = 60.0
"""Between looks for a kind that the API server does not have."""


class ListerWatcher(Protocol):
    """The part of an API server that a watch needs."""

    @property
    def name(self) -> str:
        """Return what the cluster is called in logs."""

    def get(self, path: str, query: Mapping[str, str], *, accepted: Container[int]) -> Response:
        """Read a page of a list."""

    def watch(self, path: str, query: Mapping[str, str]) -> Iterator[Json]:
        """Yield events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceSpec(Generic[V]):
    """Which objects are watched, and what is kept of each."""

    plural: str
    """For people, in the plural."""
    path: Callable[[], str | None]
    """Where they are now; asked before each list, since versions of an API come and go.
    `None` when the API server has no such kind: then there are none."""
    read: Callable[[Json], V | None]
    """Makes the value of an object; `None` for one that is not wanted."""
    query: Mapping[str, str] = field(default_factory=dict)
    page: int = 100
    """Objects of one answer; within what is read of it, even when they have 160 KB each."""


@dataclass(slots=True)
class _Pauses:
    """Exponential backoff with jitter, so that a server that comes back is not run over."""

    failures: int = 0

    def succeeded(self) -> None:
        self.failures = 0

    def next(self) -> float:
        pause: float = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(self.failures, 10))
        self.failures += 1
        return pause * random.uniform(0.5, 1.0)  # noqa: S311 # spreads load, hides nothing


def object_key(body: Json) -> str:
    """Return the key of an object in its cache: `namespace/name`, or `name`."""
    metadata = body["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


class Reflector(Generic[V]):
    """One collection's list and watch; `run` is a thread's whole life."""

    def __init__(
        self, source: ListerWatcher, collection: ResourceSpec[V], cache: Cache[V], stop: Event
    ) -> None:
        self._source = source
        self._collection = collection
        self._cache = cache
        self._stop = stop
        self._path = ""
        self._version: str | None = None
        """Where to go on from; `None` when everything has to be listed."""
        self._complete = True
        """Whether everything had room, since the last list."""
        self._readable = True
        """Whether everything could be read, since the last list."""

    def run(self) -> None:
        """Keep the cache equal to the collection until told to stop."""
        pauses = _Pauses()
        while not self._stop.is_set():
            try:
                self._list_and_watch(pauses)
            except Expired:
                self._version = None
            except ApiServerUnavailable as e:
                _logger.warning("watch interrupted", extra=self._fields(e))
                if pauses.failures >= _MOST_FAILURES:
                    self._version = None
            except Exception:
                # A bug of ours, or an answer that nobody thought of: neither ends the watch.
                _logger.exception("watch failed", extra=self._fields())
                self._version = None
            # Also after a watch that ended well: a server that always hangs up is not run over.
            self._stop.wait(pauses.next())

    def _list_and_watch(self, pauses: _Pauses) -> None:
        if self._version is None:
            self._version = self._list()
        if self._version is None:
            self._stop.wait(_ABSENT_PAUSE)
        else:
            self._watch(self._version, pauses)

    def _list(self) -> str | None:
        """Fill the cache; return the resource version to watch from, `None` for no such kind."""
        path = self._collection.path()
        if path is None:
            self._cache.replace({})
            return None
        self._path = path
        self._complete = self._readable = True
        values: dict[str, V] = {}
        version, taken = "", 0
        for page in self._pages():
            for item in page.get("items") or ():
                value = self._read(item)
                if value is None:
                    continue
                taken += self._cache.weight(value)
                if not self._cache.fits(taken):
                    taken -= self._cache.weight(value)
                    self._mark_truncated()
                else:
                    values[object_key(item)] = value
            version = str(page["metadata"]["resourceVersion"])
        self._cache.replace(values)
        return version

    def _pages(self) -> Iterator[Json]:
        """Yield the pages of a list."""
        query = {**self._collection.query, "limit": str(self._collection.page)}
        for _ in range(_MOST_PAGES):
            answer = self._source.get(self._path, query, accepted=(200, 410))
            if answer.status == HTTPStatus.GONE:
                raise Expired
            yield answer.body
            further = answer.body["metadata"].get("continue")
            if not further:
                return
            query["continue"] = further
        raise ApiServerUnavailable("the API server's list has no end")

    def _watch(self, version: str, pauses: _Pauses) -> None:
        """Take events until the server ends the watch."""
        seconds = int(_WATCH_SECONDS * random.uniform(0.8, 1.0))  # noqa: S311 # spreads load
        query = {
            **self._collection.query,
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        for event in self._source.watch(self._path, query):
            if self._stop.is_set():
                break
            self._version = self._apply_event(event)
            pauses.succeeded()
        if not self._complete:
            self._version = None

    def _apply_event(self, event: Json) -> str:
        """Take one event; return where to go on from."""
        body: Mapping[str, Any] = event["object"]
        if event["type"] == "ERROR":
            # Almost always 410. Whatever it is, going on from the same version brings it again.
            raise Expired
        if event["type"] != "BOOKMARK":
            value = None if event["type"] == "DELETED" else self._read(body)
            if value is None:
                self._cache.delete(object_key(body))
            elif not self._cache.upsert(object_key(body), value):
                self._mark_truncated()
        return str(body["metadata"]["resourceVersion"])

    def _mark_truncated(self) -> None:
        """Leave an object out, for which there may be room at the next list."""
        if self._complete:
            _logger.warning("more objects than there is room for", extra=self._fields())
        self._complete = False

    def _fields(self, error: ApiServerUnavailable | None = None) -> dict[str, Any]:
        fields = {"cluster": self._source.name, "objects": self._collection.plural}
        if error is not None:
            fields |= {"message": error.message, "detail": error.detail}
        return {"fields": fields}

    def _read(self, body: Json) -> V | None:
        """Read one object; one that cannot be read is as if it were not there, and told of.

        Once for each list: a hostile cluster must not fill the log.
        """
        try:
            return self._collection.read(body)
        except Exception:
            if self._readable:
                _logger.exception("unreadable object", extra=self._fields())
            self._readable = False
            return None
