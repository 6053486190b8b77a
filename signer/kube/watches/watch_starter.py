"""Starts watches of one API server, which share the thread of an event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from signer.fairness.cpu_budget import CpuBudget
from signer.fairness.memory_budget import MemoryBudget
from signer.kube.transport.client import ApiClient
from signer.kube.transport.event_loop import EventLoop
from signer.kube.transport.stream import ApiStream
from signer.kube.watches.cache import Cache
from signer.kube.watches.watch import Reflector, ResourceSpec

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Watch:
    """A watch that runs."""

    reflector: Reflector[Any]
    task: Future[None]
    loop: EventLoop

    @property
    def has_ended(self) -> bool:
        """Return whether its task has ended, by `stop` or by a bug of ours or of a library."""
        return self.task.done()

    def list_again(self) -> None:
        """Let nothing be read until everything has been listed again."""
        self.loop.call_soon(self.reflector.list_again)

    def stop(self) -> None:
        """End the watch, without waiting for its end."""
        self.task.cancel()


class WatchStarter:
    """Starts watches of one API server, for one tenant."""

    def __init__(  # noqa: PLR0913 - the last three are options
        self,
        api: ApiClient,
        loop: EventLoop,
        *,
        tenant: str,
        cpu: CpuBudget | None = None,
        reading: MemoryBudget | None = None,
        interrupted: Callable[[], None] = lambda: None,
    ) -> None:
        """Let `tenant` pay for what blocks, and each namespace for its objects in `cpu`.

        What is being read counts for `tenant` in `reading`.
        Call `interrupted` when a connection was lost.
        """
        self._api = api
        self._loop = loop
        self._tenant = tenant
        self._cpu = cpu
        self._reading = reading
        self._interrupted = interrupted
        self._connecting = asyncio.Lock()

    def start(self, resource: ResourceSpec[V], cache: Cache[V]) -> Watch:
        """Keep a cache equal to a collection. Raises `RuntimeError` if no thread can be started."""
        stream = ApiStream(
            self._api,
            caller=self._loop,
            tenant=self._tenant,
            connecting=self._connecting,
            reading=self._reading,
        )
        reflector = Reflector(stream, resource, cache, cpu=self._cpu, interrupted=self._interrupted)
        return Watch(reflector, self._loop.start(reflector.run), self._loop)
