"""Output of the demo: one line for each step, with the time since the start."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Narrator:
    """Prints steps as they happen."""

    def __init__(self) -> None:
        self._started_at = time.monotonic()

    def chapter(self, title: str) -> None:
        """Print a heading."""
        self._print(f"\n{title}")

    def step(self, text: str) -> None:
        """Print one step, with the seconds since the start."""
        self._print(f"{self.elapsed:6.1f} s  {text}")

    def quote(self, text: str) -> None:
        """Print the output of a program."""
        for line in text.rstrip().splitlines():
            self._print(f"          {line}")

    @contextmanager
    def timed(self, text: str) -> Iterator[None]:
        """Print a step when it starts, and how long it took when it has ended."""
        self.step(f"{text} ...")
        started_at = time.monotonic()
        yield
        self.step(f"  done in {time.monotonic() - started_at:.1f} s")

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started_at

    @staticmethod
    def _print(text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
