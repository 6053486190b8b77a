"""What a watch has brought, as values with indexes: reading asks nobody.

A listener hears of a value only when it really changed, so that a node's heartbeats, which change
nothing that the signer knows, wake nobody. A cache of a workload cluster has room for so much and
no more: that cluster may be hostile, and the others are not to pay for it.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Generic, TypeVar

from common.errors import ApiServerUnavailable

V = TypeVar("V")
Indexes = Mapping[str, Callable[[V], Iterable[Hashable]]]
"""Under which keys a value is found, by the index's name."""
EventHandler = Callable[[str, V | None, V | None], None]
"""Hears of a value: its key, as it was and as it is, `None` where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity(Generic[V]):
    """How much a cache may hold."""

    size: int
    size_of: Callable[[V], int]
    """How much of the size one value takes."""


class Cache(Generic[V]):
    """Values by key, for any number of readers and one writer, its watch."""

    def __init__(
        self, what: str, *, indexes: Indexes[V] | None = None, room: Capacity[V] | None = None
    ) -> None:
        self._what = what
        self._room = room
        self._taken = 0
        self._lock = Lock()
        self._values: dict[str, V] = {}
        self._functions: Indexes[V] = indexes or {}
        self._indexes: dict[str, dict[Hashable, dict[str, V]]] = {n: {} for n in self._functions}
        self._listeners: list[EventHandler[V]] = []
        self._filled = False

    def add_event_handler(self, listener: EventHandler[V]) -> None:
        """Call `listener` after each change, on the watch's thread."""
        self._listeners.append(listener)

    @property
    def has_synced(self) -> bool:
        """Tell whether everything has been seen once."""
        return self._filled

    def get(self, key: str) -> V | None:
        """Return the value of that key.

        Raises `ApiServerUnavailable`, as all reading does, while not everything has been seen once.
        """
        with self._lock:
            self._require_filled()
            return self._values.get(key)

    def all(self) -> Sequence[V]:
        """Return every value."""
        with self._lock:
            self._require_filled()
            return tuple(self._values.values())

    def by_index(self, index: str, key: Hashable) -> Sequence[V]:
        """Return the values that an index has under a key."""
        with self._lock:
            self._require_filled()
            return tuple(self._indexes[index].get(key, {}).values())

    def weight(self, value: V) -> int:
        """Return how much room a value takes."""
        return 0 if self._room is None else self._room.size_of(value)

    def fits(self, taken: int) -> bool:
        """Tell whether values of so much weight have room together."""
        return self._room is None or taken <= self._room.size

    def replace(self, values: Mapping[str, V]) -> None:
        """Take a list that is complete, or has no more room, at once: the rest is gone."""
        with self._lock:
            gone = [key for key in self._values if key not in values]
            changes: list[tuple[str, V | None, V | None]]
            changes = [(key, self._store(key, None), None) for key in gone]
            changes += [(key, self._store(key, value), value) for key, value in values.items()]
            self._filled = True
        for key, before, after in changes:
            self._tell(key, before, after)

    def upsert(self, key: str, value: V) -> bool:
        """Take one value, new or changed; tell whether there was room."""
        with self._lock:
            before = self._store(key, None)
            kept = self.fits(self._taken + self.weight(value))
            if kept:
                self._store(key, value)
        self._tell(key, before, value if kept else None)
        return kept

    def delete(self, key: str) -> None:
        """Forget the value of that key."""
        with self._lock:
            before = self._store(key, None)
        self._tell(key, before, None)

    def _require_filled(self) -> None:
        if not self._filled:
            raise ApiServerUnavailable(f"{self._what} are not known yet")

    def _store(self, key: str, value: V | None) -> V | None:
        """Keep the value, `None` for none, in all indexes; return what was there before."""
        before = self._values.pop(key, None)
        if before is not None:
            self._taken -= self.weight(before)
            for index, under in self._under(before):
                entries = index[under]
                entries.pop(key, None)
                if not entries:
                    del index[under]
        if value is not None:
            self._values[key] = value
            self._taken += self.weight(value)
            for index, under in self._under(value):
                index.setdefault(under, {})[key] = value
        return before

    def _under(self, value: V) -> Iterable[tuple[dict[Hashable, dict[str, V]], Hashable]]:
        """Yield each index with each key that it has the value under, once."""
        for name, function in self._functions.items():
            yield from ((self._indexes[name], under) for under in set(function(value)))

    def _tell(self, key: str, before: V | None, after: V | None) -> None:
        if before != after:
            for listener in self._listeners:
                listener(key, before, after)
