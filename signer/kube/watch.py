"""Keeps one cache equal to one collection of an API server: list, watch, and list again.

A reflector survives server restarts, connections that die silently, resource versions that expired
(410) and objects that cannot be read. Only `stop` ends it. Source: client-go's Reflector.
"""

import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from threading import Event
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from common.errors import ApiServerUnavailable
from signer.backoff import Backoff
from signer.kube.cache import Cache
from signer.kube.client import Expired, Response
from signer.kube.decode import Fields, Source, Text, decode, object_key
from signer.kube.pages import list_pages

_logger = logging.getLogger(__name__)
V = TypeVar("V")

_WATCH_SECONDS: Final = 300
"""After which the server ends a watch. Spread a little, so that not all watches end together."""
_BACKOFF: Final = Backoff(initial=0.25, maximum=10.0)
_MAX_FAILURES: Final = 6
"""After which everything is listed again: the server may never have had the version."""
_ABSENT_SECONDS: Final = 60.0
"""Until the next request for a kind that the API server does not have."""
_LONG_WATCH: Final = 30.0
"""Seconds after which the end of a watch is no failure, even if it brought no event."""
_FORBIDDEN: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


class ListerWatcher(Protocol):
    """The part of an API server that a reflector needs."""

    @property
    def name(self) -> str:
        """Return the cluster's name in logs."""

    def get_page(self, path: str, query: Mapping[str, str]) -> Response:
        """Read one page of a list. Raises `Expired` or `PageTooLarge`."""

    def watch(self, path: str, query: Mapping[str, str]) -> Iterator[bytes]:
        """Yield events. Raises `Expired`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceSpec(Generic[V]):
    """Which objects are watched, and what is kept of each."""

    plural: str
    """For logs."""
    path: Callable[[], str | None]
    """Returns the collection's path, before each list, since versions of an API come and go.
    `None` when the API server has no such kind: then there are no objects."""
    read: Callable[[Source], V | None]
    """Returns the value of an object; `None` for one that is not kept."""
    query: Mapping[str, str] = field(default_factory=dict)
    page_size: int = 100
    """Objects of one answer."""


class _EventMeta(Fields):
    resource_version: Text


class _EventObject(Fields):
    metadata: _EventMeta


class _WatchEvent(Fields):
    type: Text
    object: msgspec.Raw


class Reflector(Generic[V]):
    """Lists and watches one collection; `run` is the body of a thread."""

    def __init__(
        self, source: ListerWatcher, resource: ResourceSpec[V], cache: Cache[V], stop: Event
    ) -> None:
        self._source = source
        self._resource = resource
        self._cache = cache
        self._stop = stop
        self._path = ""
        self._version: str | None = None
        """Where the next watch continues; `None` when everything has to be listed."""
        self._failures = 0
        self.failure: ApiServerUnavailable | None = None
        """Why the last list or watch failed; `None` once one has succeeded."""
        self._over_budget: set[str] = set()
        """Owners of whom an object exceeded the budget, since the last list."""
        self._decode_failed = False
        """Whether an object could not be read, since the last list."""

    @property
    def plural(self) -> str:
        """Return the plural of the watched kind."""
        return self._resource.plural

    def run(self) -> None:
        """Keep the cache equal to the collection until `stop` is set."""
        while not self._stop.is_set():
            try:
                self._list_and_watch()
            except Expired:
                self._version = None
            except ApiServerUnavailable as e:
                self.failure = e
                fields = {"message": self._message(e), "detail": e.detail}
                _logger.warning("watch interrupted", extra=self._fields(**fields))
                if self._failures >= _MAX_FAILURES:
                    self._version = None
            except Exception:
                # A bug of ours, or an answer that no test has: neither ends the reflector.
                _logger.exception("watch failed", extra=self._fields())
                self._version = None
            # Also after a watch that ended well: a server may end each one at once.
            self._stop.wait(_BACKOFF.delay(self._failures, random.random()))  # noqa: S311 # spreads load
            self._failures += 1

    def _list_and_watch(self) -> None:
        if self._version is None:
            self._version = self._list()
        if self._version is None:
            self._stop.wait(_ABSENT_SECONDS)
        else:
            self._watch(self._version)

    def _list(self) -> str | None:
        """Fill the cache; return the resource version to watch from, `None` for no such kind."""
        path = self._resource.path()
        if path is None:
            self._cache.replace({})
            self.failure = None
            return None
        self._path = path
        self._over_budget.clear()
        self._decode_failed = False
        versions: list[str] = []
        self._cache.load(self._listed(versions))
        self._report_refusals()
        self.failure = None
        return versions[-1]

    def _listed(self, versions: list[str]) -> Iterator[tuple[str, V]]:
        """Yield the objects of a list with their keys; append each page's version to `versions`."""
        query, limit = self._resource.query, self._resource.page_size
        for page in list_pages(self._source, self._path, limit, query):
            if self._stop.is_set():
                raise ApiServerUnavailable("the watch is being stopped")
            for item in page.items or ():
                entry = self._read(item)
                if entry is not None:
                    yield entry
            if not page.metadata.resource_version:
                raise ApiServerUnavailable("the API server's list has no resource version")
            versions.append(page.metadata.resource_version)

    def _watch(self, version: str) -> None:
        """Apply events until the server ends the watch."""
        seconds = int(_WATCH_SECONDS * random.uniform(0.8, 1.0))  # noqa: S311 # spreads load
        query = {
            **self._resource.query,
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        started = time.monotonic()
        for line in self._source.watch(self._path, query):
            if self._stop.is_set():
                break
            self._version = self._apply_event(line)
            self._failures, self.failure = 0, None
        self.failure = None
        if time.monotonic() - started > _LONG_WATCH:
            self._failures = 0
        if self._over_budget:
            # The budget may have room at the next list.
            self._version = None

    def _apply_event(self, line: bytes) -> str:
        """Apply one event; return the version to continue from."""
        try:
            event = decode(line, _WatchEvent)
            if event.type == "ERROR":
                # Almost always 410. Continuing from the same version would bring the error again.
                raise Expired
            version = decode(event.object, _EventObject).metadata.resource_version
            key = None if event.type == "BOOKMARK" else object_key(event.object)
        except ValueError as e:
            message = "an event of the API server cannot be read"
            raise ApiServerUnavailable(message, detail=str(e)[:500]) from e
        if event.type == "DELETED" and key is not None:
            self._cache.delete(key)
        elif key is not None:
            self._store(key, event.object)
        return version

    def _store(self, key: str, body: msgspec.Raw) -> None:
        entry = self._read(body)
        if entry is None:
            self._cache.delete(key)
        elif not self._cache.upsert(*entry):
            self._report_refusals()

    def _read(self, body: msgspec.Raw) -> tuple[str, V] | None:
        """Return an object's key and value; `None` for one that is not kept or cannot be read.

        The log names unreadable objects once per list, so that a hostile cluster cannot fill it.
        """
        try:
            value = self._resource.read(body)
            return None if value is None else (object_key(body), value)
        except Exception:
            if not self._decode_failed:
                _logger.exception("unreadable object", extra=self._fields())
            self._decode_failed = True
            return None

    def _report_refusals(self) -> None:
        """Log each owner, once per list, whose objects exceed its budget of memory."""
        for owner in self._cache.incomplete - self._over_budget:
            fields = {"namespace": owner, "alarm": True}
            _logger.warning("objects exceed the memory budget", extra=self._fields(**fields))
            self._over_budget.add(owner)

    def _message(self, error: ApiServerUnavailable) -> str:
        if error.status in _FORBIDDEN:
            return f"the API server forbids the signer to list and watch {self._resource.plural}"
        return error.message

    def _fields(self, **more: object) -> dict[str, Any]:
        fields = {"cluster": self._source.name, "objects": self._resource.plural, **more}
        return {"fields": fields}
