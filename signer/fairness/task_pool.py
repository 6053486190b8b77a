"""A few threads that run the blocking tasks of all tenants, which take turns (see `Turns`)."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from threading import Condition, Thread
from typing import Any, TypeVar

from signer.fairness.turns import Turns

T = TypeVar("T")
_Tasks = deque[Callable[[], None]]


class TaskPool:
    """At most `threads` threads, each started when it is first needed; for any caller."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._started = 0
        self._waiting = 0
        self._changed = Condition()
        self._turns: Turns[_Tasks] = Turns(threads, deque)

    def submit(self, tenant: str, function: Callable[[], T]) -> Future[T]:
        """Call a function on a thread when it is the tenant's turn.

        Raises `RuntimeError` if there is no thread, and none can be started.
        """
        future: Future[T] = Future()

        def task() -> None:
            _run(function, future)

        with self._changed:
            if not self._waiting and self._started < self._threads:
                self._start_thread()
            self._turns.waiting(tenant).append(task)
            self._changed.notify()
        return future

    def longest_wait(self) -> float:
        """Return for how many seconds a tenant without a thread has waited for one."""
        with self._changed:
            return self._turns.longest_wait(bool)

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
                tenant, task = self._take()
                if self._next() is not None:
                    self._changed.notify()
            task()
            # The exception in a future refers to what it was called with.
            del task
            with self._changed:
                self._turns.release(tenant)

    def _take(self) -> tuple[str, Callable[[], None]]:
        """Wait for a task that may start; count a busy thread for its tenant."""
        while (turn := self._next()) is None:
            self._waiting += 1
            self._changed.wait()
            self._waiting -= 1
        tenant, tasks = turn
        self._turns.take(tenant)
        return tenant, tasks.popleft()

    def _next(self) -> tuple[str, _Tasks] | None:
        """Return the tenant whose turn it is, and its tasks that have not started."""
        return next((turn for turn in self._turns.next() if turn[1]), None)


def _run(function: Callable[[], T], future: Future[T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result: Any = function()
    except BaseException as error:  # noqa: BLE001 # the caller gets it, and the thread goes on
        future.set_exception(error)
    else:
        future.set_result(result)
