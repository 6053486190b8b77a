"""A mapping of a configuration file, read key by key; every problem is noted, none is skipped.

Each reader returns the default where the key is absent or wrong, so that one run tells all
problems; whoever reads must look at the problems before using any value.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from enum import Enum
from typing import Final, TypeVar

E = TypeVar("E", bound=Enum)

_DURATION: Final = re.compile(
    r"(?:(?P<hours>\d{1,6})h)?(?:(?P<minutes>\d{1,6})m)?(?:(?P<seconds>\d{1,6})s)?"
)
"""The part of Go's durations that Kubernetes objects use; six digits cannot overflow."""


class Section:
    """One mapping of the file, known by its path; `finish` tells the keys that nobody asked for."""

    __slots__ = ("_asked", "_path", "_problems", "_values")

    def __init__(self, value: object, path: str, problems: list[str]) -> None:
        """Take `value` when it is a mapping with string keys, else note a problem."""
        self._path = path
        self._problems = problems
        self._asked: set[str] = set()
        self._values: Mapping[str, object] = {}
        if not isinstance(value, dict):
            self.add_problem("must be a mapping")
        elif not all(isinstance(k, str) for k in value):
            self.add_problem("must have strings as keys")
        else:
            self._values = value

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def add_problem(self, text: str, key: str = "") -> None:
        """Note a problem of this mapping or of one of its keys."""
        path = ".".join(p for p in (self._path, key) if p)
        self._problems.append(f"{path}: {text}" if path else text)

    def value(self, key: str) -> object:
        """Return what stands under `key`, unread; `None` where it is absent."""
        self._asked.add(key)
        return self._values.get(key)

    def section(self, key: str) -> "Section":
        """Return the mapping under `key`; an absent one is an empty one."""
        value = self.value(key) if key in self else {}
        path = f"{self._path}.{key}" if self._path else key
        return Section(value, path, self._problems)

    def item(self, key: str, index: int) -> "Section":
        """Return one mapping of the list under `key`, which is known to be long enough."""
        value = self.value(key)
        path = f"{self._path}.{key}[{index}]" if self._path else f"{key}[{index}]"
        return Section(value[index] if isinstance(value, list) else None, path, self._problems)

    def text(self, key: str, default: str = "") -> str:
        """Return a string that is not empty; one without default has to be there."""
        value = self.value(key) if key in self else default
        if isinstance(value, str) and value:
            return value
        self.add_problem("must be a non-empty string", key)
        return default

    def boolean(self, key: str, *, default: bool) -> bool:
        """Return true or false."""
        value = self.value(key) if key in self else default
        if isinstance(value, bool):
            return value
        self.add_problem("must be true or false", key)
        return default

    def choice(self, key: str, default: E) -> E:
        """Return one value of an enumeration."""
        value = self.value(key) if key in self else default.value
        for member in type(default):
            if member.value == value:
                return member
        self.add_problem(f"must be one of {', '.join(m.value for m in type(default))}", key)
        return default

    def strings(self, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """Return a list of different strings; one that is given is not empty."""
        if key not in self:
            return default
        value = self.value(key)
        if not isinstance(value, list) or not value:
            self.add_problem("must be a list that is not empty", key)
        elif not all(isinstance(v, str) and v for v in value):
            self.add_problem("must hold non-empty strings only", key)
        elif len(set(value)) != len(value):
            self.add_problem("has a value twice", key)
        else:
            return tuple(value)
        return default

    def mapping(self, key: str) -> Mapping[str, str]:
        """Return a mapping of strings to strings that is not empty."""
        value = self.value(key)
        if isinstance(value, dict) and value:
            if all(isinstance(k, str) and isinstance(v, str) for k, v in value.items()):
                return dict(value)
            self.add_problem("must map strings to strings", key)
        else:
            self.add_problem("must be a mapping that is not empty", key)
        return {}

    def duration(self, key: str, default: timedelta, *, least: timedelta) -> timedelta:
        """Return a duration like `168h` or `1h30m`, not under `least`."""
        if key not in self:
            return default
        value = self.value(key)
        found = _DURATION.fullmatch(value) if isinstance(value, str) and value else None
        if found is None:
            self.add_problem("must be a duration like 168h or 1h30m", key)
            return default
        duration = timedelta(**{unit: int(n) for unit, n in found.groupdict(default="0").items()})
        if duration < least:
            self.add_problem(f"must be at least {int(least.total_seconds())}s", key)
            return default
        return duration

    def reject_unknown_keys(self) -> None:
        """Note the keys that nobody asked for: a misspelt rule must not go unnoticed."""
        for key in sorted(set(self._values) - self._asked):
            self.add_problem("unknown key", key)
