"""Connections to one server, each used by one thread at a time."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

from signer.fairness.compute_line import thread_clock
from signer.fairness.cpu_budget import CpuShare
from signer.fairness.memory_budget import HeldBytes, MemoryShare
from signer.kube.transport.http_connection import HttpConnection, Limits, Server
from signer.kube.transport.http_messages import HttpAnswer, HttpRequest
from signer.kube.transport.server_name import server_name

_MAX_IDLE_CONNECTIONS: Final = 64
"""Workers send requests to the management cluster at the same time."""
_IDLE_SECONDS: Final = 10.0
"""Seconds after which connections that wait for a request are closed."""


class ConnectionPool:
    """Idle connections to one server, for any number of threads."""

    def __init__(
        self,
        server: Server,
        cpu: CpuShare | None,
        reading: MemoryShare | None,
        *,
        answer_seconds: float,
    ) -> None:
        """Limit the CPU time of reading by `cpu`, and the bytes that are being read by `reading`.

        To connect, to send the request and to read the answer may take `answer_seconds` together.
        """
        self._server = server
        self._name = server_name(server.host, server.port)
        self._cpu = cpu
        self._reading = reading
        self._answer_seconds = answer_seconds
        self._lock = Lock()
        self._idle: list[HttpConnection] = []
        self._used_at = time.monotonic()
        self._closed = False

    def exchange(self, request: HttpRequest, max_content: int) -> HttpAnswer:
        """Send a request; return the answer. A redirect is an answer.

        Raises `OSError`, `h11.ProtocolError`, `ContentTooLarge`, and `ApiServerUnavailable`: the
        tenant reads too much at the same time.
        """
        limits = Limits(until=thread_clock() + self._answer_seconds)
        held = self.hold()
        try:
            with self.lend(self.take() or self.connect(limits), limits) as connection:
                head = connection.request(request)
                content = connection.content(max_content, held)
        finally:
            if held is not None:
                held.resize(0)
        return HttpAnswer(head.status_code, content, dict(head.headers))

    def hold(self) -> HeldBytes | None:
        """Return a holder of the bytes of one answer; `None` where no budget counts them."""
        return None if self._reading is None else self._reading.hold()

    def take(self) -> HttpConnection | None:
        """Return the idle connection that was used last, `None` if there is none."""
        while True:
            with self._lock:
                if self._closed:
                    raise ConnectionError("the connections to this server are closed")
                self._used_at = time.monotonic()
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if connection.is_reusable:
                return connection
            connection.close()

    def connect(self, limits: Limits) -> HttpConnection:
        """Return a new connection. Raises `OSError`."""
        return HttpConnection(self._server, self._name.addresses(), self._cpu, limits)

    @contextmanager
    def lend(self, connection: HttpConnection, limits: Limits) -> Iterator[HttpConnection]:
        """Lend a connection for one request; it is closed if that fails, else kept."""
        connection.limit(limits)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        self._give_back(connection)

    def close_idle(self) -> None:
        """Close the idle connections if there was no request for some seconds."""
        with self._lock:
            if time.monotonic() - self._used_at < _IDLE_SECONDS:
                return
            closing, self._idle = self._idle, []
        for connection in closing:
            connection.close()

    def close(self) -> None:
        """Close the idle connections; later requests fail."""
        with self._lock:
            self._closed = True
            closing, self._idle = self._idle, []
        for connection in closing:
            connection.close()

    def _give_back(self, connection: HttpConnection) -> None:
        if connection.has_ended:
            with self._lock:
                if not self._closed and len(self._idle) < _MAX_IDLE_CONNECTIONS:
                    self._idle.append(connection)
                    return
        connection.close()
