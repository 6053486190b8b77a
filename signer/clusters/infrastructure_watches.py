"""Watches of infrastructure objects: of those kinds only that are used, served and allowed.

Machines and Clusters name the kinds, and tenants write Machines and Clusters. So a kind is watched
only while its API group is configured, the API server serves it (only administrators install
kinds), and an object refers to it. One thread starts and ends the watches.
"""

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from threading import Event, Lock, Thread
from typing import Final, TypeVar

from common.errors import ApiServerUnavailable
from signer.fairness.memory_budget import MemoryBudget
from signer.inventory.cluster_api.references import (
    InfrastructureObject,
    Reference,
    read_infrastructure,
)
from signer.inventory.unreadable_kinds import INFRASTRUCTURE, UNREADABLE
from signer.kinds.resources import Kind, Resource
from signer.kube.discovery import DiscoveryClient, served_resources
from signer.kube.unreadable import Unreadable
from signer.kube.watches.cache import Cache
from signer.kube.watches.watch import ResourceSpec
from signer.kube.watches.watch_threads import Watch, WatchThreads

_logger = logging.getLogger(__name__)
V = TypeVar("V")

_MAX_KINDS: Final = 64
"""Kinds that are watched, each over one connection; a provider has about five."""
_INTERVAL: Final = 60.0
"""Seconds until the served kinds are read again and unused watches are ended."""
_MISSING_SECONDS: Final = 60.0
"""How long a watched kind must be missing until its objects count as deleted."""
_MAX_SECONDS: Final = 900.0
"""Seconds for one reading: one request for each version of each API group."""
_MIN_INTERVAL: Final = 1.0
"""Minimum seconds between two readings, for any number of unknown kinds."""


@dataclass(frozen=True, slots=True)
class _KindWatch:
    cache: Cache[InfrastructureObject]
    watch: Watch


class InfrastructureWatches:
    """A cache for each infrastructure kind in use."""

    def __init__(  # noqa: PLR0913 - the last three are options
        self,
        api: DiscoveryClient,
        starter: WatchThreads,
        stop: Event,
        *,
        groups: Iterable[str],
        used_kinds: Callable[[], AbstractSet[Kind]],
        changed: Callable[[Reference], None],
        budget: MemoryBudget,
    ) -> None:
        """Watch the `used_kinds` of Machines and Clusters.

        Call `changed` with each object that has changed, on the thread of its watch.
        """
        self._api = api
        self._starter = starter
        self._stop = stop
        self._groups = frozenset(groups)
        self._used_kinds = used_kinds
        self._changed = changed
        self._budget = budget
        self._lock = Lock()
        self._watches: dict[Kind, _KindWatch] = {}
        self._served: Mapping[Kind, Resource] | None = None
        self._missing_since: Mapping[Kind, float] = {}
        """Since when the API server has lacked watched kinds."""
        self._requested = Event()
        self._began = math.inf
        """When the thread began to read the served kinds; infinite while it waits."""
        self._thread = Thread(target=self._run, name="infrastructure kinds", daemon=True)

    def start(self) -> None:
        """Start the thread that starts and ends watches."""
        self._thread.start()

    def is_watching(self) -> bool:
        """Return whether the thread makes progress, and no watch has been lost."""
        with self._lock:
            watches = tuple(self._watches.values())
        late = time.monotonic() - self._began > _MAX_SECONDS
        return self._thread.is_alive() and not late and not any(w.watch.has_ended for w in watches)

    def get(self, reference: Reference) -> InfrastructureObject | None:
        """Return an object; `None` if it does not exist, or if its API group is not configured.

        Raises `ApiServerUnavailable` until the objects of its kind have been listed.
        """
        kind = (reference.group, reference.kind)
        with self._lock:
            watch, served = self._watches.get(kind), self._served
        if watch is not None:
            return watch.cache.get(reference.key)
        if reference.group not in self._groups or (served is not None and kind not in served):
            return None
        self._requested.set()
        raise ApiServerUnavailable(f"{reference.kind}s are not known yet")

    def request(self, reference: Reference) -> None:
        """Ask the thread of the watches to watch this kind, if its API group is configured."""
        kind = (reference.group, reference.kind)
        with self._lock:
            known = kind in self._watches
        if reference.group in self._groups and not known:
            self._requested.set()

    def require_complete(self, namespace: str) -> None:
        """Raise `ApiServerUnavailable` while objects of a namespace exceed its memory budget."""
        for cache in self.caches():
            cache.require_complete(namespace)

    def caches(self) -> Sequence[Cache[InfrastructureObject]]:
        """Return the cache of each watched kind."""
        with self._lock:
            return tuple(watch.cache for watch in self._watches.values())

    def unreadable(self) -> Iterator[tuple[str, Unreadable]]:
        """Yield each object that cannot be read, with the plural of its kind."""
        for cache in self.caches():
            yield from ((cache.plural, each) for each in cache.unreadable)

    def list_again(self) -> None:
        """Let nothing be read until everything has been listed again."""
        with self._lock:
            watches = tuple(self._watches.values())
        for each in watches:
            each.watch.list_again()

    def sync(self) -> None:
        """Start the watches of kinds that are used and served; end all others.

        Raises `ApiServerUnavailable` when the served kinds cannot be read, or are not all there.
        """
        served = {
            resource.group_kind: resource
            for group in sorted(self._groups)
            for resource in served_resources(self._api, group).values()
        }
        self._require_served(self._watches.keys() - served.keys())
        with self._lock:
            self._served = served
        used = sorted(self._used_kinds() & served.keys())
        if len(used) > _MAX_KINDS:
            fields = {"kinds": len(used), "watched": _MAX_KINDS, "alarm": True}
            _logger.warning("too many infrastructure kinds", extra={"fields": fields})
        watched = used[:_MAX_KINDS]
        for kind in self._watches.keys() - set(watched):
            self._end(kind)
        for kind in watched:
            if kind not in self._watches:
                self._begin(kind)

    def _require_served(self, missing: AbstractSet[Kind]) -> None:
        """Raise `ApiServerUnavailable` if a watched kind is missing for a short time only.

        For some moments after its start, an API server does not know all of its kinds.
        """
        now = time.monotonic()
        self._missing_since = {kind: self._missing_since.get(kind, now) for kind in missing}
        if any(now - since < _MISSING_SECONDS for since in self._missing_since.values()):
            raise ApiServerUnavailable("the API server does not have all infrastructure kinds now")

    def _run(self) -> None:
        while not self._stop.is_set():
            # Cleared first: a request that comes during `sync` is for the next one.
            self._requested.clear()
            self._began = time.monotonic()
            try:
                self.sync()
            except ApiServerUnavailable as error:
                fields = {"message": error.message, "detail": error.detail}
                _logger.warning("infrastructure kinds not read", extra={"fields": fields})
            except Exception:
                # Also when the thread of a watch cannot be started: the next round tries again.
                _logger.exception("infrastructure kinds not watched")
            self._began = math.inf
            self._stop.wait(_MIN_INTERVAL)
            self._requested.wait(_INTERVAL)
        for kind in tuple(self._watches):
            self._end(kind)

    def _begin(self, kind: Kind) -> None:
        _, name = kind
        plural = f"{name}s"
        cache: Cache[InfrastructureObject] = Cache(
            plural, budget=self._budget, unreadable=UNREADABLE[INFRASTRUCTURE]
        )
        cache.add_event_handler(partial(self._object_changed, kind))
        resource = ResourceSpec(
            plural=plural, path=partial(self._path, kind), read=read_infrastructure
        )
        watch = self._starter.start(resource, cache)
        # Last: a watch that did not start is begun again by the next `sync`.
        with self._lock:
            self._watches[kind] = _KindWatch(cache, watch)

    def _end(self, kind: Kind) -> None:
        with self._lock:
            ended = self._watches.pop(kind)
        ended.watch.stop()
        ended.cache.close()

    def _path(self, kind: Kind) -> str | None:
        with self._lock:
            resource = None if self._served is None else self._served.get(kind)
        return None if resource is None else resource.collection_path()

    def _object_changed(
        self,
        kind: Kind,
        key: str,
        _before: InfrastructureObject | None,
        _after: InfrastructureObject | None,
    ) -> None:
        group, name = kind
        namespace, _, object_name = key.partition("/")
        self._changed(Reference(group=group, kind=name, namespace=namespace, name=object_name))
