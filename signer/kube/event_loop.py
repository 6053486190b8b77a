"""One thread that runs many watches, each a task of an event loop.

A task waits for its API server without a thread. While it decodes, the other tasks wait, so it
yields after some milliseconds (`HttpConnection.yield_cpu`). What blocks is called on the threads of
a pool.
"""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from threading import Lock, Thread
from typing import Any, TypeVar

from signer.task_pool import TaskPool

T = TypeVar("T")


class EventLoop:
    """An event loop on a thread that starts with the first task; for any caller."""

    def __init__(self, name: str, pool: TaskPool) -> None:
        self._name = name
        self._pool = pool
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None

    def start(self, function: Callable[[], Coroutine[Any, Any, None]]) -> Future[None]:
        """Run a coroutine as a task; cancelling the future that is returned cancels it.

        Raises `RuntimeError` if the thread cannot be started.
        """
        with self._lock:
            if self._loop is None:
                self._loop = self._start_thread()
        return asyncio.run_coroutine_threadsafe(function(), self._loop)

    async def call(self, owner: str, function: Callable[[], T]) -> T:
        """Call a function that blocks on a thread of the pool, when it is the owner's turn."""
        return await asyncio.wrap_future(self._pool.submit(owner, function))

    def _start_thread(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        try:
            self._thread = Thread(target=loop.run_forever, name=self._name, daemon=True)
            self._thread.start()
        except RuntimeError:
            loop.close()
            raise
        return loop
