"""Watches of one API server, each on a thread of its own."""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock, Thread
from typing import Any, TypeVar

from signer.fairness.compute_line import ComputeLine
from signer.fairness.cpu_budget import CpuBudget
from signer.kube.transport.client import ApiClient
from signer.kube.transport.interruption import Interruption
from signer.kube.transport.list_watch import ListWatch
from signer.kube.watches.cache import Cache
from signer.kube.watches.watch import Reflector, ResourceSpec

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Watch:
    """A watch that runs."""

    reflector: Reflector[Any]
    thread: Thread

    @property
    def has_ended(self) -> bool:
        """Return whether its thread has ended, by `stop` or by a bug of ours or of a library."""
        return not self.thread.is_alive()

    def list_again(self) -> None:
        """Let nothing be read until everything has been listed again."""
        self.reflector.list_again()

    def stop(self) -> None:
        """End the watch, without waiting for its end."""
        self.reflector.stop()


class WatchThreads:
    """Starts watches of one API server."""

    def __init__(
        self,
        api: ApiClient,
        line: ComputeLine,
        *,
        cpu: CpuBudget | None = None,
        interrupted: Callable[[], None] = lambda: None,
    ) -> None:
        """Compute in the order of `line`; let each namespace pay for its objects in `cpu`.

        Call `interrupted` when a connection was lost.
        """
        self._api = api
        self._line = line
        self._cpu = cpu
        self._interrupted = interrupted
        self._connecting = Lock()

    def start(self, resource: ResourceSpec[V], cache: Cache[V]) -> Watch:
        """Keep a cache equal to a collection. Raises `RuntimeError` if no thread can be started."""
        interruption = Interruption()
        source = ListWatch(self._api, interruption, self._connecting)
        reflector = Reflector(
            source,
            resource,
            cache,
            interruption=interruption,
            start=self._line.start,
            cpu=self._cpu,
            interrupted=self._interrupted,
        )
        name = f"{self._api.name} {resource.plural}"
        return Watch(reflector, self._line.start(name, reflector.run))
