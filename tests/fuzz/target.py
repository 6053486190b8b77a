"""A target: one parser as its caller sees it, and all that may come out of it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from tests.fuzz.mutations import Form

FOUND = Path(__file__).parents[1] / "vectors" / "fuzz"
"""What fuzzing found, by target: each of these inputs broke something once."""


class Refused(Exception):
    """None of the readers that a target offers its input to has taken it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One parser."""

    name: str
    run: Callable[[bytes], object]
    """Reads the input, and asserts of what is taken what its readers rely on."""
    seeds: Callable[[], Sequence[bytes]]
    """Inputs that are taken, of our own making."""
    errors: tuple[type[Exception], ...] = ()
    """What its documentation says that it raises."""
    form: Form = Form.BYTES

    def feed(self, data: bytes) -> bool:
        """Run over the input; tell whether it was taken. Whatever else is raised is a finding."""
        try:
            self.run(data)
        except Refused:
            return False
        except self.errors:
            return False
        return True

    def found(self) -> Iterator[Path]:
        """Yield what was found with this target."""
        yield from sorted((FOUND / self.name).glob("*"))


@cache
def folder() -> Path:
    """Make one private folder for what has to be read from a file."""
    return Path(mkdtemp(prefix="fuzz-"))


def file(name: str, data: bytes) -> Path:
    """Write a private file for a parser that opens it itself."""
    path = folder() / name
    path.touch(mode=0o600)
    path.write_bytes(data)
    return path
