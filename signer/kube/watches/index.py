"""An index of a cache: the keys of the values that have an index key."""

from collections.abc import Hashable, Iterable, Sequence


class Index:
    """Keys of values by index key; its cache holds a lock around each call.

    Most index keys belong to one value, such as a provider ID to a Machine. Such an entry is the
    key of the value itself: a mapping for each of them would take a fifth of the cache's memory.
    """

    def __init__(self) -> None:
        self._keys: dict[Hashable, str | dict[str, None]] = {}

    def add(self, index_key: Hashable, key: str) -> None:
        """Add a value that has this index key."""
        keys = self._keys.setdefault(index_key, key)
        if isinstance(keys, dict):
            keys[key] = None
        elif keys != key:
            self._keys[index_key] = {keys: None, key: None}

    def remove(self, index_key: Hashable, key: str) -> None:
        """Remove a value that `add` added with this index key."""
        keys = self._keys[index_key]
        if isinstance(keys, dict) and len(keys) > 1:
            del keys[key]
        else:
            del self._keys[index_key]

    def get(self, index_key: Hashable) -> Iterable[str]:
        """Return the keys of the values that have this index key, in the order of `add`."""
        keys = self._keys.get(index_key, {})
        return (keys,) if isinstance(keys, str) else keys

    def index_keys(self) -> Sequence[Hashable]:
        """Return every index key."""
        return tuple(self._keys)
