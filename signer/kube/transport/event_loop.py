"""One thread that runs many watches, each a task of an event loop.

A task waits for its API server without a thread. While it decodes, the other tasks wait, so it
yields after some milliseconds (`HttpConnection.yield_cpu`). What blocks is called on the threads of
a pool.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from threading import Lock, Thread
from typing import Any, Final, TypeVar

from signer.fairness.task_pool import TaskPool

T = TypeVar("T")

_BEAT_SECONDS: Final = 1.0
_MAX_SECONDS: Final = 120.0
"""Seconds for which one task may keep the thread. Each task yields after some milliseconds."""


class EventLoop:
    """An event loop on a thread that starts with the first task; for any caller."""

    def __init__(self, name: str, pool: TaskPool) -> None:
        self._name = name
        self._pool = pool
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self._beat_at = 0.0
        """When the event loop last had a turn for its heartbeat."""

    def start(self, function: Callable[[], Coroutine[Any, Any, None]]) -> Future[None]:
        """Run a coroutine as a task; cancelling the future that is returned cancels it.

        Raises `RuntimeError` if the thread cannot be started.
        """
        with self._lock:
            if self._loop is None:
                self._loop = self._start_thread()
        return asyncio.run_coroutine_threadsafe(function(), self._loop)

    def call_soon(self, function: Callable[[], None]) -> None:
        """Call a function on the thread, if it runs."""
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(function)

    async def call(self, tenant: str, function: Callable[[], T]) -> T:
        """Call a function that blocks on a thread of the pool, when it is the tenant's turn."""
        return await asyncio.wrap_future(self._pool.submit(tenant, function))

    def is_healthy(self) -> bool:
        """Return whether the thread runs its tasks, or has none."""
        thread = self._thread
        late = time.monotonic() - self._beat_at > _MAX_SECONDS
        return thread is None or (thread.is_alive() and not late)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._beat_at = time.monotonic()
        loop.call_later(_BEAT_SECONDS, self._beat, loop)

    def _start_thread(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        self._beat(loop)
        try:
            thread = Thread(target=loop.run_forever, name=self._name, daemon=True)
            thread.start()
        except RuntimeError:
            loop.close()
            raise
        # After the start: until then the thread is not alive, and `is_healthy` would be wrong.
        self._thread = thread
        return loop
