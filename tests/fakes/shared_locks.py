"""Fails a test in which a thread waits for a network while it holds what Clusters share.

Each lock of the signer is made by its module. So the modules get locks that remember their thread.
"""

import select
import socket
import sys
import threading
from collections.abc import Callable
from threading import current_thread
from types import ModuleType, SimpleNamespace
from typing import Any, Final, cast

from signer.fairness import compute_line
from signer.kube.transport import http_connection

NOT_SHARED: Final = {
    "signer.kube.watches.watch_threads": "serializes the handshakes with one server",
    "signer.fairness.compute_line": "is released by the thread that hands a place over",
    "signer.inventory.replica_records.challenge_keys": "no worker waits for it",
    "signer.platforms.vsphere_api.vsphere_session": "waits for a platform, not for a Cluster",
}
"""Modules whose locks may be held, and why."""
_held = threading.local()
_found: list[str] = []


class HeldLock:
    """A lock that its thread remembers while it holds it."""

    def __init__(self, made_by: str, lock: Any) -> None:  # noqa: ANN401 # of either kind
        self.made_by = made_by
        self._lock = lock

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002 # as theirs
        acquired: bool = self._lock.acquire(blocking, timeout)
        if acquired:
            _locks().append(self)
        return acquired

    def release(self) -> None:
        if self in _locks():
            _locks().remove(self)
        self._lock.release()

    def locked(self) -> bool:
        return bool(self._lock.locked())

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def require_nothing_shared() -> None:
    """Note if this thread, which is to wait for a network, holds what Clusters share.

    The workers are slots that Clusters share, too: their number limits what a Cluster may hold.
    """
    holding = [f"a lock of {lock.made_by}" for lock in _locks() if lock.made_by not in NOT_SHARED]
    if getattr(compute_line._this_thread, "line", None) is not None:
        holding.append("a place in the line of threads that compute")
    if current_thread().name.startswith("task "):
        holding.append("a thread of a pool")
    if holding:
        _found.append(f"{current_thread().name} waits for a network and holds {holding}")


def found() -> list[str]:
    """Return what was found since the last call."""
    notes = _found.copy()
    _found.clear()
    return notes


def watch_modules() -> None:
    """Give the modules of the signer that are loaded locks that their threads remember."""
    for name, module in tuple(sys.modules.items()):
        if name.startswith("signer.") and not hasattr(module, "__remembers_locks__"):
            _watch(name, module)


def watch_connections() -> None:
    """Check each thread that begins to wait for a server."""
    vars(http_connection)["select"] = SimpleNamespace(
        poll=_CheckedPoll, POLLIN=select.POLLIN, POLLOUT=select.POLLOUT
    )
    connect = socket.create_connection

    def create_connection(*arguments: Any, **options: Any) -> socket.socket:  # noqa: ANN401 # as theirs
        require_nothing_shared()
        return connect(*arguments, **options)

    socket.create_connection = create_connection
    find = socket.getaddrinfo

    def getaddrinfo(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 # as theirs
        if not options.get("flags"):
            require_nothing_shared()
        return find(*arguments, **options)

    socket.getaddrinfo = getaddrinfo


class _CheckedPoll:
    """`select.poll`, with a check before it waits."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self.register = self._poll.register

    def poll(self, timeout: int) -> list[tuple[int, int]]:
        if timeout:
            require_nothing_shared()
        return self._poll.poll(timeout)


def _watch(name: str, module: ModuleType) -> None:
    made: dict[object, Callable[..., object]] = {
        threading.Lock: lambda: HeldLock(name, threading.Lock()),
        threading.RLock: lambda: HeldLock(name, threading.RLock()),
        threading.Condition: lambda lock=None: threading.Condition(
            cast("Any", lock or HeldLock(name, threading.Lock()))
        ),
    }
    contents = vars(module)
    contents["__remembers_locks__"] = True
    for attribute, value in tuple(contents.items()):
        if isinstance(value, type(threading.Lock())):
            contents[attribute] = HeldLock(name, value)
        for kind, make in made.items():
            if value is kind:
                contents[attribute] = make


def _locks() -> list[HeldLock]:
    if not hasattr(_held, "locks"):
        _held.locks = []
    locks: list[HeldLock] = _held.locks
    return locks
