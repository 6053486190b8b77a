"""Keeps one cache equal to one collection of an API server: list, watch, and list again.

A reflector survives server restarts, connections that die silently, resource versions that expired
(410), etcds that were restored from a backup, and objects that cannot be read. Only `stop` ends it.
Source: client-go's Reflector.
"""

import logging
import math
import random
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from common.errors import ApiServerUnavailable
from signer.fairness.backoff import Backoff
from signer.fairness.cpu_budget import CpuBudget
from signer.kinds.decode import Source
from signer.kube.pages import Page, Pager
from signer.kube.transport.client import Expired, PageTooLarge, Response, is_outage
from signer.kube.transport.interruption import Interrupted, Interruption
from signer.kube.watches.cache import Cache
from signer.kube.watches.cache_writer import CacheWriter, StartThread
from signer.kube.watches.outage import Outage
from signer.kube.watches.watch_event import read_event

_logger = logging.getLogger(__name__)
V = TypeVar("V")

_WATCH_SECONDS: Final = 300
"""Seconds after which the server ends a watch. Spread a little, so that watches end one by one."""
_BACKOFF: Final = Backoff(initial=0.25, maximum=10.0)
_MAX_FAILURES: Final = 6
"""Failures after which everything is listed again: the server may never have had the version."""
_ABSENT: Final = Backoff(initial=2.0, maximum=60.0)
"""Seconds until the next request for a kind that the API server does not have. For some moments
after its start it does not know all of its kinds."""
_MISSING_SECONDS: Final = 60.0
"""How long a kind that had objects must be missing until they count as deleted."""
_RELIST_SECONDS: Final = 3600.0
"""Seconds after which everything is listed again, whatever the watches have missed."""
_LONG_WATCH: Final = 30.0
"""A watch that lasted this long ended normally, even if it delivered no event."""
_VALUES_PER_TURN: Final = 100
"""Values of a list until other threads may compute: when they are read, and when their handlers are
called."""
_FORBIDDEN: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


class ListerWatcher(Protocol):
    """The part of an API server that a reflector needs."""

    @property
    def name(self) -> str:
        """Return the cluster's name in logs."""

    def get_page(self, path: str, query: Mapping[str, str]) -> Response:
        """Read one page of a list. Raises `Expired` or `PageTooLarge`."""

    def watch(self, path: str, query: Mapping[str, str]) -> Generator[bytes, None, None]:
        """Yield `b""` when the server accepts the watch, then its events. Raises `Expired`."""

    def yield_cpu(self) -> None:
        """Let other threads compute, and wait while the tenant is above its CPU share."""

    def close(self) -> None:
        """Give back what is held of the last answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceSpec(Generic[V]):
    """Which objects are watched, and what is kept of each."""

    plural: str
    """For logs."""
    path: str | Callable[[], str | None]
    """The collection's path, or a function that returns it before each list, since versions of an
    API come and go; it may block. `None` when the API server has no such kind: then there are no
    objects."""
    read: Callable[[Source], V | None]
    """Returns the value of an object; `None` for one that is not kept."""
    query: Mapping[str, str] = field(default_factory=dict)
    page_size: int = 100
    """Objects of the first answer."""


class Reflector(Generic[V]):
    """Lists and watches one collection; `run` is for a thread of its own."""

    def __init__(  # noqa: PLR0913 - the last three are options
        self,
        source: ListerWatcher,
        resource: ResourceSpec[V],
        cache: Cache[V],
        *,
        interruption: Interruption,
        start: StartThread,
        cpu: CpuBudget | None = None,
        interrupted: Callable[[], None] = lambda: None,
    ) -> None:
        """Charge each object to its namespace in `cpu`, unless its bytes are charged before.

        `interruption` is that of the thread; `start` starts another one for objects that wait for
        CPU time. Call `interrupted` once per outage, when the connection was lost or the server
        failed: it may have been restored.
        """
        self._source = source
        self._cache = cache
        self._resource = resource
        self._interruption = interruption
        self._sleep = interruption.sleep
        self._path = ""
        """Empty while the API server does not have the kind."""
        self._missing_since: float | None = None
        """Since when the API server has lacked the kind that it had."""
        self._absences = 0
        """How often in a row it did not have the kind."""
        self._version: str | None = None
        """Where the next watch continues; `None` when everything has to be listed."""
        self._is_doubtful = False
        """Whether the API server may have gone back to an earlier version."""
        self._interrupted = interrupted
        self._is_interrupted = False
        """Whether this outage was reported as an interruption."""
        self._listed_at = -math.inf
        self._failures = 0
        self.failure: ApiServerUnavailable | None = None
        """Why the last list or watch failed; `None` once one has succeeded."""
        self._outage = Outage()
        fields = {"cluster": source.name, "objects": resource.plural}
        self._writer = CacheWriter(cache, resource.read, log_fields=fields, cpu=cpu, start=start)

    @property
    def plural(self) -> str:
        """Return the plural of the watched kind."""
        return self._resource.plural

    def run(self) -> None:
        """Keep the cache equal to the collection until `stop`."""
        try:
            while True:
                try:
                    self._run_once()
                    # Also after a watch that ended well: a server may end each one at once.
                    self._sleep(_BACKOFF.delay(self._failures, random.random()))  # noqa: S311 # spreads load
                    self._failures += 1
                except Interrupted:
                    self._interruption.begin_again()
                    self._version = None
        except Interrupted:
            pass  # stopped
        finally:
            self._writer.close()
            self._source.close()

    def stop(self) -> None:
        """End `run`, without waiting for its end; for any thread."""
        self._interruption.end()

    def list_again(self) -> None:
        """Let nothing be read until everything has been listed again; for any thread.

        The present list or watch ends.
        """
        self._writer.distrust()
        self._interruption.interrupt()

    def _run_once(self) -> None:
        try:
            self._list_and_watch()
        except Expired:
            self._version = None
            self._cache.note_failure()
        except ApiServerUnavailable as error:
            self._cache.note_failure()
            self._note_failure(error)
        except Exception:
            # A bug of ours, or an answer that no test has: neither ends the reflector.
            _logger.exception("watch failed", extra=self._fields())
            self._version = None
            self._cache.note_failure()

    def _note_failure(self, error: ApiServerUnavailable) -> None:
        self.failure, self._is_doubtful = error, True
        if is_outage(error) and not self._is_interrupted:
            self._is_interrupted = True
            self._interrupted()
        message, more = self._message(error), {}
        if self._cache.is_outdated:
            message = f"nothing is decided from {self.plural} until they can be read: {message}"
            more = {"seconds": int(self._cache.failing_seconds), "alarm": True}
        if self._outage.add_failure(message, time.monotonic()):
            fields = self._fields(message=message, detail=error.detail, **more)
            _logger.warning("watch interrupted", extra=fields)
        if self._failures >= _MAX_FAILURES or self._cache.is_outdated:
            self._version = None

    def _list_and_watch(self) -> None:
        if self._version is not None and self._is_doubtful:
            self._require_reached(self._version)
        if self._version is None:
            self._version = self._list()
            self._listed_at = time.monotonic()
        self._is_doubtful = False
        if self._version is None:
            self._sleep(_ABSENT.delay(self._absences, random.random()))  # noqa: S311 # spreads load
            self._absences += 1
        else:
            self._watch(self._version)

    def _list(self) -> str | None:
        """Fill the cache; return the resource version to watch from, `None` for no such kind."""
        path = self._find_path()
        if path is None:
            self._path = ""
            self._writer.begin_list()
            for _ in self._writer.finish_list():
                pass
            self._note_success()
            return None
        self._path = path
        try:
            version = self._load()
        except Expired as error:
            failure = ApiServerUnavailable("the list changed while it was read")
            failure.status = HTTPStatus.GONE
            raise failure from error
        self._note_success()
        return version

    def _find_path(self) -> str | None:
        """Return the path, `None` if the API server has no such kind.

        Raises `ApiServerUnavailable` if it had the kind a short time ago: unknown is not absent.
        """
        path = self._resource.path
        found = path if isinstance(path, str) else path()
        if found is not None:
            self._missing_since, self._absences = None, 0
        elif self._path:
            now = time.monotonic()
            self._missing_since = self._missing_since or now
            if now - self._missing_since < _MISSING_SECONDS:
                raise ApiServerUnavailable(f"the API server has no {self._resource.plural} now")
        return found

    def _load(self) -> str:
        """Store a list in the cache; return its version."""
        self._writer.begin_list()
        version = ""
        for page in self._pages(self._resource.page_size):
            version = self._store_page(page)
            # The next page is not read while this one is in memory: many lists are read at once.
            del page
        for number, _ in enumerate(self._writer.finish_list(), 1):
            if number % _VALUES_PER_TURN == 0:
                self._source.yield_cpu()
        return version

    def _store_page(self, page: Page) -> str:
        """Store the objects of a page; return the version of its list."""
        for number, item in enumerate(page.items or (), 1):
            if number % _VALUES_PER_TURN == 0:
                self._source.yield_cpu()
            self._store_listed(item)
        version = page.metadata.resource_version
        if not version:
            raise ApiServerUnavailable("the API server's list has no resource version")
        return version

    def _store_listed(self, item: msgspec.Raw) -> None:
        try:
            self._writer.store_listed(item)
        except ValueError as error:
            message = "an object of the API server has no name"
            raise ApiServerUnavailable(message, detail=str(error)[:500]) from error

    def _pages(self, page_size: int) -> Generator[Page, None, None]:
        pager = Pager(page_size, self._resource.query)
        while (query := pager.next_query()) is not None:
            try:
                page = pager.read(self._source.get_page(self._path, query))
            except PageTooLarge as error:
                pager.shrink(error)
            else:
                yield page
                del page

    def _require_reached(self, version: str) -> None:
        """Raise `Expired` if the API server has not reached a version that it had before.

        It goes back if etcd is restored from a backup, or a virtual machine from a snapshot. A
        watch from a later version than the present one brings no event and no error (seen with
        kube-apiserver 1.37). Versions can be compared as numbers (KEP-5504).
        """
        with closing(self._pages(page_size=1)) as pages:
            present = (next(pages)).metadata.resource_version or ""
        if (len(present), present) < (len(version), version):
            fields = {"version": version, "present": present, "alarm": True}
            _logger.warning(
                "API server went back to an earlier state", extra=self._fields(**fields)
            )
            raise Expired

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
        is_silent = True
        with closing(self._source.watch(self._path, query)) as lines:
            for line in lines:
                if line:
                    self._version = self._apply_event(line)
                    self._failures = 0
                    is_silent = False
                self._note_success()
        self._note_success()
        self._is_doubtful = is_silent
        if time.monotonic() - started > _LONG_WATCH:
            self._failures = 0
        relist_at = self._listed_at + _RELIST_SECONDS * random.uniform(0.8, 1.0)  # noqa: S311 # spreads load
        if self._writer.needs_list or time.monotonic() > relist_at:
            self._version = None

    def _apply_event(self, line: bytes) -> str:
        """Apply one event; return the version to continue from."""
        self._writer.begin()
        try:
            event = read_event(line)
        except ValueError as error:
            message = "an event of the API server cannot be read"
            raise ApiServerUnavailable(message, detail=str(error)[:500]) from error
        if event.type == "ERROR":
            # Almost always 410. Continuing from the same version would bring the error again.
            raise Expired
        if event.type == "DELETED":
            self._writer.delete(event.key)
        elif event.key:
            self._writer.store(event.key, event.object)
        return event.version

    def _note_success(self) -> None:
        self.failure, self._is_interrupted = None, False
        self._cache.note_success()
        if failures := self._outage.end(time.monotonic()):
            _logger.info("watch works again", extra=self._fields(failures=failures))

    def _message(self, error: ApiServerUnavailable) -> str:
        if error.status in _FORBIDDEN:
            return f"the API server forbids the signer to list and watch {self._resource.plural}"
        return error.message

    def _fields(self, **more: object) -> dict[str, Any]:
        fields = {"cluster": self._source.name, "objects": self._resource.plural, **more}
        return {"fields": fields}
