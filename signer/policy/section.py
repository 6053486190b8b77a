"""Reads a mapping of a configuration file key by key, and collects every problem.

Each method returns its default for an absent or wrong key, so that one run finds all problems. The
values may be used only if there is no problem.
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
"""The durations of Go that Kubernetes objects use; six digits cannot overflow a timedelta."""


class Section:
    """One mapping of the file, with its path in messages."""

    __slots__ = ("_parts", "_path", "_problems", "_read_keys", "_values")

    def __init__(self, value: object, path: str, problems: list[str]) -> None:
        """Wrap `value`; a value that is no mapping with string keys is a problem."""
        self._path = path
        self._problems = problems
        self._read_keys: set[str] = set()
        self._parts: list[Section] = []
        """The mappings below this one that were read."""
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
        """Add a problem of this mapping or of one of its keys."""
        path = ".".join(p for p in (self._path, key) if p)
        self._problems.append(f"{path}: {text}" if path else text)

    def has(self, path: str) -> bool:
        """Return whether there is a key at the end of a path such as `pcrs.mode`."""
        value: object = self._values
        for key in path.split("."):
            if not isinstance(value, Mapping) or key not in value:
                return False
            value = value[key]
        return True

    def require(self, key: str) -> None:
        """Add a problem if the key is absent."""
        if key not in self:
            self.add_problem("is required", key)

    def value(self, key: str) -> object:
        """Return the value of `key` as it is in the file, or `None` if the key is absent."""
        self._read_keys.add(key)
        return self._values.get(key)

    def section(self, key: str) -> "Section":
        """Return the mapping of `key`, which is empty if the key is absent."""
        return self._part(self.value(key) if key in self else {}, key)

    def items(self, key: str) -> "tuple[Section, ...]":
        """Return the mappings of a non-empty list; none if the key is absent."""
        if key not in self:
            return ()
        values = self.value(key)
        if not isinstance(values, list) or not values:
            self.add_problem("must be a non-empty list", key)
            return ()
        return tuple(self._part(value, f"{key}[{index}]") for index, value in enumerate(values))

    def text(self, key: str, default: str = "") -> str:
        """Return a non-empty string; the key is required if there is no default."""
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
        """Return a non-empty list of different strings, or `default` if the key is absent."""
        return tuple(text for _, text in self.entries(key)) if key in self else default

    def entries(self, key: str) -> "tuple[tuple[str, str], ...]":
        """Return a list as `strings` does, each string with its key; none if it is absent.

        Each entry with a problem is left out, so that the others are read, too.
        """
        if key not in self:
            return ()
        values = self.value(key)
        if not isinstance(values, list) or not values:
            self.add_problem("must be a non-empty list", key)
            return ()
        found: dict[str, str] = {}
        for index, text in enumerate(values):
            entry = f"{key}[{index}]"
            if not isinstance(text, str) or not text:
                self.add_problem("must be a non-empty string", entry)
            elif text in found:
                self.add_problem("must not repeat a value", entry)
            else:
                found[text] = entry
        return tuple((entry, text) for text, entry in found.items())

    def mapping(self, key: str) -> Mapping[str, str]:
        """Return a non-empty mapping of strings to strings; the key is required."""
        value = self.value(key)
        if isinstance(value, dict) and value:
            if all(isinstance(k, str) and isinstance(v, str) for k, v in value.items()):
                return dict(value)
            self.add_problem("must map strings to strings", key)
        else:
            self.add_problem("must be a non-empty mapping", key)
        return {}

    def duration(self, key: str, default: timedelta, *, minimum: timedelta) -> timedelta:
        """Return a duration like `168h` or `1h30m`, at least `minimum`."""
        if key not in self:
            return default
        value = self.value(key)
        duration = parse_duration(value) if isinstance(value, str) else None
        if duration is None:
            self.add_problem("must be a duration like 168h or 1h30m", key)
            return default
        if duration < minimum:
            self.add_problem(f"must be at least {int(minimum.total_seconds())}s", key)
            return default
        return duration

    def reject_unknown_keys(self) -> None:
        """Add a problem for each key that was not read, here and in the mappings below.

        A misspelt rule would not be in force. Called once, after everything was read.
        """
        for part in self._parts:
            part.reject_unknown_keys()
        for key in sorted(set(self._values) - self._read_keys):
            self.add_problem("unknown key", key)

    def _part(self, value: object, key: str) -> "Section":
        path = f"{self._path}.{key}" if self._path else key
        part = Section(value, path, self._problems)
        self._parts.append(part)
        return part


def parse_duration(text: str) -> timedelta | None:
    """Return a duration like `168h` or `1h30m`, `None` for any other text."""
    match = _DURATION.fullmatch(text) if text else None
    if match is None:
        return None
    return timedelta(**{unit: int(n) for unit, n in match.groupdict(default="0").items()})
