"""Reads the lock files in requirements/."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PIN: Final = re.compile(r"(?P<name>[a-z0-9.-]+)==(?P<version>\S+)(?: ; (?P<marker>[^\\]+))? \\")
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]+)")
# One dependent follows `via`; several are on lines of their own.
_VIA: Final = re.compile(r" +#(?: via |   )(?P<dependent>[a-z0-9.-]+)(?: \(pyproject\.toml\))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One locked package. `dependents` are the packages that require it."""

    name: str
    version: str
    marker: str | None
    dependents: frozenset[str]
    sha256: tuple[str, ...]
    """The digests of the files that may be installed: one for each platform."""

    @property
    def purl(self) -> str:
        """Package URL (https://github.com/package-url/purl-spec), type pypi."""
        return f"pkg:pypi/{self.name}@{self.version}"


def read_lock(path: Path) -> tuple[Pin, ...]:
    """Return the packages of a lock in its order.

    Raises `ValueError`: an entry is not in the form that `make lock` writes.
    """
    entries = re.split(r"\n(?=[^ #])", path.read_text(encoding="utf-8"))
    return tuple(_parse_entry(entry, path) for entry in entries if not entry.startswith("#"))


def _parse_entry(entry: str, path: Path) -> Pin:
    pin = _PIN.match(entry)
    if pin is None:
        raise ValueError(f"{path} has an entry that is not a pin: {entry.splitlines()[0]}")
    return Pin(
        name=pin["name"],
        version=pin["version"],
        marker=pin["marker"] and pin["marker"].strip(),
        dependents=frozenset(_dependents(entry)),
        sha256=tuple(_HASH.findall(entry)),
    )


def _dependents(entry: str) -> list[str]:
    """Return the names in the comment `# via`."""
    return [via["dependent"] for line in entry.splitlines() if (via := _VIA.fullmatch(line))]
