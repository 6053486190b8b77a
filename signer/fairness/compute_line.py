"""A line of threads that compute one or two at a time, in the order in which they came.

Each workload cluster has threads of its own, and Python runs one thread at a time. A thousand that
wake together would fight for it, and joins would wait for all of them. So such a thread computes
only while it has a place, and gives it back whenever it waits (`waiting`). A place is handed over,
never raced for. It is never held while a thread waits for a network.
"""

import time
from collections import deque
from collections.abc import Callable
from threading import Lock, Thread, get_ident, local
from typing import Final

MAX_TURN_SECONDS: Final = 120.0
"""Seconds for which one thread may keep its place. Each gives it back after some milliseconds."""

_this_thread = local()


class ComputeLine:
    """At most `places` threads compute at a time; for any number of threads."""

    def __init__(self, places: int) -> None:
        self._lock = Lock()
        self._free = places
        self._waiting: deque[tuple[Lock, float]] = deque()
        """What each thread that waits for a place is woken by, and since when it waits."""
        self._turns: dict[int, float] = {}
        """By thread with a place: since when it has it."""
        self._no_thread_since: float | None = None
        """Since when no thread could be started."""

    def start(self, name: str, function: Callable[[], object]) -> Thread:
        """Call a function on a thread of its own, which ends with it.

        Raises `RuntimeError` if no thread can be started.
        """
        thread = Thread(target=self._run, args=(function,), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            with self._lock:
                self._no_thread_since = self._no_thread_since or time.monotonic()
            raise
        self._no_thread_since = None
        return thread

    def longest_wait(self) -> float:
        """Return for how many seconds the oldest task has waited for a place, or for a thread."""
        with self._lock:
            since = [waiting for _, waiting in tuple(self._waiting)[:1]]
            if self._no_thread_since is not None:
                since.append(self._no_thread_since)
        return max((time.monotonic() - each for each in since), default=0.0)

    def is_moving(self) -> bool:
        """Return whether no thread keeps its place for too long."""
        with self._lock:
            oldest = min(tuple(self._turns.values()), default=None)
        return oldest is None or time.monotonic() - oldest < MAX_TURN_SECONDS

    def take(self) -> None:
        """Wait for a place."""
        begun = time.monotonic()
        turn: Lock | None = None
        with self._lock:
            if self._free:
                self._free -= 1
            else:
                turn = Lock()
                turn.acquire()
                self._waiting.append((turn, begun))
        if turn is not None:
            turn.acquire()
        now = self._turns[get_ident()] = time.monotonic()
        _this_thread.waited = _waited() + now - begun

    def give_back(self) -> None:
        """Hand the place over to the thread that has waited longest."""
        del self._turns[get_ident()]
        with self._lock:
            if self._waiting:
                turn, _ = self._waiting.popleft()
                turn.release()
            else:
                self._free += 1

    def _run(self, function: Callable[[], object]) -> None:
        self.take()
        _this_thread.line = self
        try:
            function()
        finally:
            _this_thread.line = None
            self.give_back()


class waiting:  # noqa: N801 # a context manager; a generator would cost more than most waits
    """Give the place of this thread back, if it has one, for as long as it waits."""

    __slots__ = ("_line",)

    def __enter__(self) -> None:
        self._line: ComputeLine | None = getattr(_this_thread, "line", None)
        if self._line is not None:
            _this_thread.line = None
            self._line.give_back()

    def __exit__(self, *_: object) -> None:
        if self._line is not None:
            self._line.take()
            _this_thread.line = self._line


def sleep(seconds: float) -> None:
    """Sleep without a place."""
    with waiting():
        time.sleep(seconds)


def thread_clock() -> float:
    """Return the time on a monotonic clock that stands still while this thread waits for a place.

    So a limit of time counts what the server needs, and not the line.
    """
    return time.monotonic() - _waited()


def _waited() -> float:
    """Return for how many seconds this thread has waited for a place so far."""
    waited: float = getattr(_this_thread, "waited", 0.0)
    return waited
