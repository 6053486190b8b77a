"""A fuzz target: one parser as its callers use it, and the errors that it may raise."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from tests.fuzz.mutations import Form

FINDINGS = Path(__file__).parents[1] / "vectors" / "fuzz"
"""Findings by target. Each of these inputs once caused an unexpected error."""


class Refused(Exception):
    """No parser of the target accepted the input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One parser."""

    name: str
    run: Callable[[bytes], object]
    """Runs the parser on an input, and asserts what callers rely on."""
    seeds: Callable[[], Sequence[bytes]]
    """Returns inputs that the parser accepts."""
    errors: tuple[type[Exception], ...] = ()
    """The errors that the parser documents."""
    form: Form = Form.BYTES

    def feed(self, data: bytes) -> bool:
        """Return whether the parser accepts the input. Any other exception is a finding."""
        try:
            self.run(data)
        except Refused:
            return False
        except self.errors:
            return False
        return True

    def findings(self) -> Iterator[Path]:
        """Yield the findings of this target."""
        yield from sorted((FINDINGS / self.name).glob("*"))


@cache
def directory() -> Path:
    """Create a private directory for parsers that read files."""
    return Path(mkdtemp(prefix="fuzz-"))


def file(name: str, data: bytes) -> Path:
    """Write a private file for a parser that opens files."""
    path = directory() / name
    path.touch(mode=0o600)
    path.write_bytes(data)
    return path
