"""A few threads that run the blocking tasks of all owners in turn.

Turns: owners (namespaces of the management cluster) take turns. A task of an owner starts only
while `owner.busy < free threads`. So one owner holds at most half of the threads, two owners a
third each, and a thread is left for the next owner as long as there are fewer hostile owners than
threads. This is the rule of `signer.controller.fair_queue`, which names its source.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _Owner:
    """Tasks of one owner that have not started, and its busy threads."""

    ready: deque[Callable[[], None]] = field(default_factory=deque)
    busy: int = 0


class TaskPool:
    """At most `threads` threads, each started when it is first needed; for any caller."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._started = 0
        self._waiting = 0
        self._free = threads
        self._changed = Condition()
        self._owners: OrderedDict[str, _Owner] = OrderedDict()

    def submit(self, owner: str, function: Callable[[], T]) -> Future[T]:
        """Call a function on a thread when it is the owner's turn.

        Raises `RuntimeError` if there is no thread, and none can be started.
        """
        future: Future[T] = Future()

        def task() -> None:
            _run(function, future)

        with self._changed:
            if not self._waiting and self._started < self._threads:
                self._start_thread()
            self._owners.setdefault(owner, _Owner()).ready.append(task)
            self._changed.notify()
        return future

    # Everything below is called with the lock held, except `_work` itself.

    def _start_thread(self) -> None:
        thread = Thread(target=self._work, name=f"task {self._started}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if not self._started:
                raise
        else:
            self._started += 1

    def _work(self) -> None:
        while True:
            with self._changed:
                name, task = self._take()
                if self._next() is not None:
                    self._changed.notify()
            task()
            # The exception in a future refers to what it was called with.
            del task
            with self._changed:
                self._release(name)

    def _take(self) -> tuple[str, Callable[[], None]]:
        """Wait for a task that may start; count a busy thread for its owner."""
        while (name := self._next()) is None:
            self._waiting += 1
            self._changed.wait()
            self._waiting -= 1
        owner = self._owners[name]
        self._owners.move_to_end(name)
        owner.busy += 1
        self._free -= 1
        return name, owner.ready.popleft()

    def _next(self) -> str | None:
        """Return the owner whose turn it is."""
        for name, owner in self._owners.items():
            if owner.ready and owner.busy < self._free:
                return name
        return None

    def _release(self, name: str) -> None:
        owner = self._owners[name]
        owner.busy -= 1
        self._free += 1
        if not owner.ready and not owner.busy:
            del self._owners[name]


def _run(function: Callable[[], T], future: Future[T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result: Any = function()
    except BaseException as e:  # noqa: BLE001 # the caller gets it, and the thread goes on
        future.set_exception(e)
    else:
        future.set_result(result)
