"""An informer's store: the values of a collection by key, with indexes; reading makes no request.

Its event handlers are called only when a value really changes: a node's heartbeats change nothing
that is kept. With a budget, a value that exceeds it is not stored, since a workload cluster may be
hostile and must not cost the other clusters their memory.

A collection that has not been listed, watched or read for a minute is outdated: reading raises
until it has been listed again.
"""

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from threading import Lock
from typing import Final, Generic, TypeVar

from common.errors import ApiServerUnavailable
from signer.fairness.memory_budget import MemoryBudget, deep_size
from signer.kube.unreadable import Effect, Unreadable
from signer.kube.watches.index import Index

V = TypeVar("V")
Indexes = Mapping[str, Callable[[V], Iterable[Hashable]]]
"""For each index, by its name: the index keys of a value."""
EventHandler = Callable[[str, V | None, V | None], None]
"""Called with a key, its value before and its value now; `None` means no value."""

MAX_FAILING_SECONDS: Final = 60.0
"""How long values are read while the collection cannot be listed, watched or read."""
_ENTRY_BYTES: Final = 200
"""Bytes of an entry in the cache (two mappings) or in one index, without its key and value."""


_NEXT_STEP: Final = "correct or delete it"


class Cache(Generic[V]):
    """Values by key, for any number of readers and one writer, its reflector."""

    def __init__(
        self,
        plural: str,
        *,
        indexes: Indexes[V] | None = None,
        budget: MemoryBudget | None = None,
        tenant: str | None = None,
        unreadable: Effect = Effect.NAMESPACE,
    ) -> None:
        """Count the values for `tenant`, or each for its own namespace where no tenant is given.

        `unreadable` says what an object means that cannot be read.
        """
        self.plural = plural
        self._budget = budget
        self._tenant = tenant
        self._lock = Lock()
        self._values: dict[str, V] = {}
        self._sizes: dict[str, int] = {}
        self._functions: Indexes[V] = indexes or {}
        self._indexes = {name: Index() for name in self._functions}
        self._handlers: list[EventHandler[V]] = []
        self._incomplete: set[str] = set()
        self._late: set[str] = set()
        """Tenants of whom an object that is not stored yet waits to be read."""
        self._effect = unreadable
        self._unreadable: dict[str, dict[str, Unreadable]] = {}
        """Objects that cannot be read, by tenant and key."""
        self._synced = False
        self._distrusted = 0
        """How often nothing of what had been listed could be trusted any more."""
        self._closed = False
        self._failing_since: float | None = None

    def add_event_handler(self, handler: EventHandler[V]) -> None:
        """Call `handler` after each change, on the thread of the watches: it must not block."""
        self._handlers.append(handler)

    @property
    def has_synced(self) -> bool:
        """Return whether the collection has been listed once, and is not outdated."""
        return self._synced and not self.is_outdated

    @property
    def is_outdated(self) -> bool:
        """Return whether the collection has failed for too long to decide anything from it."""
        return self._failing_since is not None and self.failing_seconds > MAX_FAILING_SECONDS

    @property
    def failing_seconds(self) -> float:
        """Return since how many seconds it cannot be listed, watched or read; 0 if it can."""
        since = self._failing_since
        return 0.0 if since is None else time.monotonic() - since

    def note_failure(self) -> None:
        """Note that the collection cannot be listed, watched or read now."""
        if self._failing_since is None:
            self._failing_since = time.monotonic()

    def note_success(self) -> None:
        """Note that the values are those of the API server, or become so at once."""
        self._failing_since = None

    def require_synced(self) -> None:
        """Raise `ApiServerUnavailable` if no value can be read."""
        if not self._synced:
            raise ApiServerUnavailable(f"{self.plural} are not known yet")
        if self.is_outdated:
            raise ApiServerUnavailable(
                f"{self.plural} could not be read from the API server for over a minute"
            )

    def get(self, key: str) -> V | None:
        """Return the value of that key.

        Raises `ApiServerUnavailable`, as all reading does, until the collection has been listed,
        while it is outdated, and for an object that cannot be read where its name is undecided.
        """
        with self._lock:
            self.require_synced()
            found = self._unreadable.get(self.tenant_of(key), {}).get(key)
            if found is not None and self._effect in {Effect.KIND, Effect.NAME}:
                self._raise_unreadable({key: found})
            return self._values.get(key)

    def all(self) -> Sequence[V]:
        """Return every value."""
        with self._lock:
            self._require_all()
            return tuple(self._values.values())

    def by_index(self, index: str, key: Hashable) -> Sequence[V]:
        """Return the values that have this key in an index."""
        with self._lock:
            self._require_all()
            return tuple(self._values[k] for k in self._indexes[index].get(key))

    def index_keys(self, index: str) -> Sequence[Hashable]:
        """Return every key of an index."""
        with self._lock:
            self._require_all()
            return self._indexes[index].index_keys()

    def tenant_of(self, key: str) -> str:
        """Return the tenant for whom the value of that key counts."""
        return key.rpartition("/")[0] if self._tenant is None else self._tenant

    @property
    def incomplete(self) -> frozenset[str]:
        """Return the tenants of whom values exceed the budget."""
        with self._lock:
            return frozenset(self._incomplete)

    @property
    def is_complete(self) -> bool:
        """Return whether all values of all tenants are stored."""
        with self._lock:
            return not self._incomplete and not self._late and not self._unreadable

    @property
    def unreadable(self) -> Sequence[Unreadable]:
        """Return the objects that cannot be read."""
        with self._lock:
            return [each for objects in self._unreadable.values() for each in objects.values()]

    def require_readable(self) -> None:
        """Raise `ApiServerUnavailable` while any object cannot be read."""
        with self._lock:
            self._require_readable()

    def is_complete_for(self, tenant: str) -> bool:
        """Return whether a value of the tenant that is not stored does not exist."""
        try:
            self.require_complete(tenant)
        except ApiServerUnavailable:
            return False
        return True

    def require_complete(self, tenant: str) -> None:
        """Raise `ApiServerUnavailable` while some of the tenant's values are not stored."""
        with self._lock:
            if tenant in self._incomplete:
                raise ApiServerUnavailable(
                    f"{self.plural} of namespace {tenant} exceed its memory budget: delete some"
                )
            if tenant in self._late:
                raise ApiServerUnavailable(
                    f"{self.plural} of namespace {tenant} exceed its CPU budget: change fewer"
                )
            if self._effect is Effect.NAMESPACE:
                self._raise_unreadable(self._unreadable.get(tenant, {}))

    def replace(self, values: Mapping[str, V]) -> None:
        """Make these all values of the cache."""
        self.load(values.items())

    def load(self, entries: Iterable[tuple[str, V]]) -> None:
        """Store each entry of a list as it comes; then delete what was not in the list.

        Nothing can be read of the first list until it is whole. An exception out of `entries`
        deletes nothing.
        """
        loading = self.begin_load()
        for key, value in entries:
            loading.store(key, value)
        for _ in loading.finish():
            pass

    def begin_load(self) -> "Loading[V]":
        """Return a list that is stored step by step, as `load` does."""
        return Loading(self, self._distrusted)

    def finish_load(
        self, listed: AbstractSet[str], refused: set[str], distrusted: int
    ) -> Iterator[None]:
        """Delete what was not in a list; see `Loading.finish`."""
        with self._lock:
            self._incomplete = refused
            absent = self._values.keys() - listed
            for objects in self._unreadable.values():
                absent |= objects.keys() - listed
        for key in absent:
            self.delete(key)
            yield
        with self._lock:
            if self._closed or distrusted != self._distrusted:
                return
            added = () if self._synced else tuple(self._values.items())
            self._synced = True
        for key, value in added:
            self._notify(key, None, value)
            yield

    def distrust(self) -> None:
        """Let nothing be read until a list that begins now or later has ended; for any thread."""
        with self._lock:
            self._synced = False
            self._distrusted += 1

    def upsert(self, key: str, value: V) -> bool:
        """Store one value; return whether the budget allows it. Delete the key if it does not."""
        with self._lock:
            before = self._values.get(key)
            if before == value:
                return True
            self._remove(key)
            stored = self._insert(key, value)
            if not stored:
                self._incomplete.add(self.tenant_of(key))
            synced = self._synced
        if synced:
            self._notify(key, before, value if stored else None)
        return stored

    def refuse(self, key: str, unreadable: Unreadable) -> None:
        """Note that an object cannot be read. Its value is deleted: it is not the present one."""
        tenant = self.tenant_of(key)
        with self._lock:
            before = self._remove(key)
            if not self._count(key, unreadable):
                self._incomplete.add(tenant)
            elif not self._closed:
                self._unreadable.setdefault(tenant, {})[key] = unreadable
            synced = self._synced
        if synced:
            self._notify(key, before, None)

    def delete(self, key: str) -> None:
        """Delete the value of that key."""
        with self._lock:
            before = self._remove(key)
            synced = self._synced
        if synced:
            self._notify(key, before, None)

    def hold(self, key: str, size: int) -> bool:
        """Count the bytes of an object that waits to be read; return whether the budget allows it.

        Delete the key if it does not.
        """
        tenant = self.tenant_of(key)
        if self._budget is not None and not self._budget.acquire(tenant, size):
            self.delete(key)
            with self._lock:
                self._incomplete.add(tenant)
            return False
        with self._lock:
            if key not in self._values:
                self._late.add(tenant)
        return True

    def release(self, key: str, size: int) -> None:
        """Give back the bytes of an object that waits no more."""
        if self._budget is not None:
            self._budget.release(self.tenant_of(key), size)

    def end_wait(self, tenant: str) -> None:
        """Note that no object of the tenant waits."""
        with self._lock:
            self._late.discard(tenant)

    def close(self) -> None:
        """Delete every value permanently, and return the memory to the budget."""
        with self._lock:
            self._closed = True
            self._synced = False
            unreadable = [key for objects in self._unreadable.values() for key in objects]
            for key in (*self._values, *unreadable):
                self._remove(key)

    def _require_all(self) -> None:
        self.require_synced()
        if self._effect is Effect.KIND:
            self._require_readable()

    def _require_readable(self) -> None:
        for objects in self._unreadable.values():
            self._raise_unreadable(objects)

    def _raise_unreadable(self, objects: Mapping[str, Unreadable]) -> None:
        for key in objects:
            also = f" and {len(objects) - 1} more" if len(objects) > 1 else ""
            raise ApiServerUnavailable(f"{self.plural}: {key}{also} cannot be read: {_NEXT_STEP}")

    def _insert(self, key: str, value: V) -> bool:
        if self._closed:
            return False
        index_keys = list(self._index_keys(value))
        if not self._count(key, value, index_keys):
            return False
        self._values[key] = value
        for name, index_key in index_keys:
            self._indexes[name].add(index_key, key)
        return True

    def _count(self, key: str, value: object, index_keys: Sequence[object] = ()) -> bool:
        """Count an entry for its tenant; return whether the budget allows it."""
        if self._budget is not None:
            entries = _ENTRY_BYTES * (1 + len(index_keys))
            size = entries + deep_size((key, value, index_keys))
            if not self._budget.acquire(self.tenant_of(key), size):
                return False
            self._sizes[key] = size
        return True

    def _remove(self, key: str) -> V | None:
        tenant = self.tenant_of(key)
        value = self._values.pop(key, None)
        objects = self._unreadable.get(tenant, {})
        if objects.pop(key, None) is not None and not objects:
            del self._unreadable[tenant]
        if self._budget is not None and key in self._sizes:
            self._budget.release(tenant, self._sizes.pop(key))
        if value is None:
            return None
        for name, index_key in self._index_keys(value):
            self._indexes[name].remove(index_key, key)
        return value

    def _index_keys(self, value: V) -> Iterable[tuple[str, Hashable]]:
        """Yield the name of each index with each key that it has for the value, once."""
        for name, function in self._functions.items():
            yield from ((name, index_key) for index_key in set(function(value)))

    def _notify(self, key: str, before: V | None, after: V | None) -> None:
        if before != after:
            for handler in self._handlers:
                handler(key, before, after)


class Loading(Generic[V]):
    """A list that is stored in a cache step by step."""

    def __init__(self, cache: Cache[V], distrusted: int) -> None:
        self._cache = cache
        self._distrusted = distrusted
        self.listed: set[str] = set()
        """The keys of the list."""
        self._refused: set[str] = set()

    def store(self, key: str, value: V) -> None:
        """Store an entry of the list."""
        self._count(key, stored=self._cache.upsert(key, value))

    def hold(self, key: str, size: int) -> bool:
        """Count an entry of the list that waits to be read; see `Cache.hold`."""
        held = self._cache.hold(key, size)
        self._count(key, stored=held)
        return held

    def refuse(self, key: str, unreadable: Unreadable) -> None:
        """Note an entry of the list that cannot be read; see `Cache.refuse`."""
        self._cache.refuse(key, unreadable)
        self.listed.add(key)

    def _count(self, key: str, *, stored: bool) -> None:
        if stored:
            self.listed.add(key)
        else:
            self._refused.add(self._cache.tenant_of(key))

    def finish(self) -> Iterator[None]:
        """Delete what was not in the list, and call the handlers; yield after each value."""
        return self._cache.finish_load(self.listed, self._refused, self._distrusted)
