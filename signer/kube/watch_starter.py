"""Starts watches of one API server, which share the thread of an event loop."""

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from signer.kube.cache import Cache
from signer.kube.client import ApiClient
from signer.kube.event_loop import EventLoop
from signer.kube.stream import ApiStream
from signer.kube.watch import Reflector, ResourceSpec

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Watch:
    """A watch that runs."""

    reflector: Reflector[Any]
    task: Future[None]

    def stop(self) -> None:
        """End the watch, without waiting for its end."""
        self.task.cancel()


class WatchStarter:
    """Starts watches of one API server, for one owner."""

    def __init__(self, api: ApiClient, loop: EventLoop, *, owner: str) -> None:
        self._api = api
        self._loop = loop
        self._owner = owner

    def start(self, resource: ResourceSpec[V], cache: Cache[V]) -> Watch:
        """Keep a cache equal to a collection. Raises `RuntimeError` if no thread can be started."""
        stream = ApiStream(self._api, caller=self._loop, owner=self._owner)
        reflector = Reflector(stream, resource, cache)
        return Watch(reflector, self._loop.start(reflector.run))
