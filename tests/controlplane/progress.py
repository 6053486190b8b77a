"""Progress messages on stderr; stdout is for results."""

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

INTERVAL = 30.0


def say(message: str) -> None:
    """Write one line to stderr."""
    sys.stderr.write(f"controlplane: {message}\n")
    sys.stderr.flush()


class Heartbeat:
    """Writes the elapsed time and a state every half minute while the context lasts."""

    def __init__(self, state: Callable[[], str]) -> None:
        self._state = state
        self._done = threading.Event()
        self._started = time.monotonic()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def elapsed(self) -> str:
        """Return the time since the start as minutes and seconds."""
        minutes, seconds = divmod(int(time.monotonic() - self._started), 60)
        return f"{minutes}:{seconds:02}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._done.wait(INTERVAL):
            say(f"{self.elapsed()} min: {self._state()}")
