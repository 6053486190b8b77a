"""The name of a server, looked up on a thread of its own.

A look-up (`getaddrinfo`) cannot be ended, and takes as long as a name server wants. So there is one
at a time for each name, its callers wait for some seconds, and meanwhile the addresses of the last
one that succeeded are used. TLS proves that they still lead to the server.
"""

import random
import socket
import time
from collections.abc import Sequence
from threading import Event, Lock, Thread
from typing import Final
from weakref import WeakValueDictionary

from signer.fairness.backoff import Backoff
from signer.fairness.compute_line import waiting

LOOKUP_SECONDS: Final = 5.0
"""Seconds from the begin of a look-up for which callers wait for it."""
_BACKOFF: Final = Backoff(initial=1.0, maximum=30.0)
"""Seconds without a look-up, after one that failed."""

_names_lock = Lock()
_names: WeakValueDictionary[tuple[str, int], "ServerName"] = WeakValueDictionary()
"""The names in use: a connection that replaces another one of the same server knows what that one
knew, and no second look-up begins while one is under way."""


def server_name(host: str, port: int) -> "ServerName":
    """Return the name of a server, one object for all that use it."""
    with _names_lock:
        name = _names.get((host, port))
        if name is None:
            name = _names[host, port] = ServerName(host, port)
        return name


class _Lookup:
    """A look-up that is under way."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.ended = Event()


class ServerName:
    """A host name or address; for any number of threads."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._lock = Lock()
        self._lookup: _Lookup | None = None
        self._addresses: Sequence[str] = ()
        """Those of the last look-up that succeeded."""
        self._failure = "no name server has answered in time"
        self._failures = 0
        """How many look-ups have failed in a row."""
        self._next_at = 0.0
        """When the next look-up may begin."""

    def addresses(self) -> Sequence[str]:
        """Return the addresses of the server. Raises `OSError` if none is known in time."""
        try:
            return self._find(socket.AI_NUMERICHOST)
        except socket.gaierror:
            pass
        lookup = self._begin()
        if lookup is not None:
            with waiting():
                lookup.ended.wait(max(0.0, lookup.begun + LOOKUP_SECONDS - time.monotonic()))
        with self._lock:
            if self._addresses:
                return self._addresses
            raise OSError(f"the server's name cannot be looked up: {self._failure}")

    def _begin(self) -> _Lookup | None:
        """Return the look-up that is under way, or a new one; `None` while none may begin."""
        with self._lock:
            if self._lookup is None and time.monotonic() >= self._next_at:
                lookup = _Lookup()
                thread = Thread(target=self._run, args=(lookup,), name="name of a server")
                thread.daemon = True
                try:
                    thread.start()
                except RuntimeError as error:
                    raise OSError(f"no thread can look up the server's name: {error}") from error
                self._lookup = lookup
            return self._lookup

    def _run(self, lookup: _Lookup) -> None:
        found: Sequence[str] = ()
        failure = "it has no address"
        try:
            found = self._find()
        except (OSError, UnicodeError) as error:
            failure = str(error)[:200]
        with self._lock:
            self._lookup = None
            if found:
                self._addresses, self._failures = found, 0
            else:
                self._failure = failure
                pause = _BACKOFF.delay(self._failures, random.random())  # noqa: S311 # spreads load
                self._next_at = time.monotonic() + pause
                self._failures += 1
        lookup.ended.set()

    def _find(self, flags: int = 0) -> Sequence[str]:
        found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM, flags=flags)
        return [str(address[0]) for *_, address in found]
