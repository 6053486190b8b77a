"""How the demo tells what happens: one line a step, with the time since the beginning."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Narrator:
    """Prints steps as they happen."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def chapter(self, title: str) -> None:
        """Begin something new."""
        self._print(f"\n{title}")

    def tell(self, text: str) -> None:
        """Print one step, with seconds since the beginning."""
        self._print(f"{self.elapsed:6.1f} s  {text}")

    def quote(self, text: str) -> None:
        """Print what a program said."""
        for line in text.rstrip().splitlines():
            self._print(f"          {line}")

    @contextmanager
    def timed(self, text: str) -> Iterator[None]:
        """Print a step when it begins, and how long it took."""
        self.tell(f"{text} ...")
        began = time.monotonic()
        yield
        self.tell(f"  done in {time.monotonic() - began:.1f} s")

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    @staticmethod
    def _print(text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
