"""Connections to one server for requests, each used by one thread at a time.

The server may be hostile. Before each read from the socket and each write to it, the connection
checks the time limit of the whole call and the CPU budget of the server's tenant. A timeout of the
socket starts again with each byte, so a server that sends or reads single bytes could hold a thread
without end.
"""

import select
import socket
import ssl
import time
from threading import Lock
from typing import Final, Protocol

import h11

from signer.fairness.cpu_budget import CpuShare
from signer.fairness.memory_budget import HeldBytes, MemoryShare
from signer.kube.transport.endpoint import CONNECT_SECONDS, MAX_ADDRESSES, SOCKET_OPTIONS
from signer.kube.transport.http_messages import PIECE, HttpAnswer, HttpMessages, HttpRequest
from signer.kube.transport.tls import ContentTooSlow, DeadlineExceeded

_MAX_IDLE_CONNECTIONS: Final = 64
"""Workers send requests to the management cluster at the same time."""
_IDLE_SECONDS: Final = 10.0
"""Seconds after which connections that wait for a request are closed."""


class ContentTooLarge(Exception):
    """The content of an answer exceeds the size limit."""


class Server(Protocol):
    """Where a connection goes, and how TLS is set up."""

    host: str
    port: int
    host_header: str
    server_name: str | None
    """The name in the server's certificate, if it is not the host."""

    @property
    def context(self) -> ssl.SSLContext:
        """The context for the next handshake."""


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
        self._cpu = cpu
        self._reading = reading
        self._answer_seconds = answer_seconds
        self._lock = Lock()
        self._idle: list[_Connection] = []
        self._used_at = time.monotonic()
        self._closed = False

    def exchange(self, request: HttpRequest, max_content: int) -> HttpAnswer:
        """Send a request; return the answer. A redirect is an answer.

        Raises `OSError`, `h11.ProtocolError`, `ContentTooLarge`, and `ApiServerUnavailable`: the
        tenant reads too much at the same time.
        """
        until = time.monotonic() + self._answer_seconds
        connection = self._take() or _Connection(self._server, self._cpu, until)
        held = None if self._reading is None else self._reading.hold()
        try:
            answer = connection.exchange(request, max_content, until, held)
        except BaseException:
            connection.close()
            raise
        finally:
            if held is not None:
                held.resize(0)
        self._give_back(connection)
        return answer

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

    def _take(self) -> "_Connection | None":
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

    def _give_back(self, connection: "_Connection") -> None:
        with self._lock:
            keep = not self._closed and len(self._idle) < _MAX_IDLE_CONNECTIONS
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()


class _Connection:
    """One connection with TLS and HTTP/1.1, which carries one request after another."""

    def __init__(self, server: Server, cpu: CpuShare | None, until: float) -> None:
        """Connect, within the limits of time and CPU. Raises `OSError`."""
        self._cpu = cpu
        self._messages = HttpMessages(server.host_header)
        _await_share(cpu, until)
        try:
            self._socket = _connect(server, until)
        finally:
            # A server can make each handshake expensive, and fail it before anything is read.
            if cpu is not None:
                cpu.charge()
        self._readable = select.poll()
        self._readable.register(self._socket, select.POLLIN)

    def exchange(
        self, request: HttpRequest, max_content: int, until: float, held: HeldBytes | None
    ) -> HttpAnswer:
        """Send a request; return the answer."""
        data = memoryview(self._messages.encode(request))
        while data:
            self._socket.settimeout(_seconds_left(until))
            data = data[self._socket.send(data) :]
        status, content, headers = 0, bytearray(), dict[bytes, bytes]()
        while True:
            try:
                event = self._next_event(until)
            except TimeoutError as error:
                if not content:
                    raise
                raise ContentTooSlow(*error.args) from error
            if isinstance(event, h11.Response):
                status, headers = event.status_code, dict(event.headers)
            elif isinstance(event, h11.Data):
                content += event.data
                if len(content) > max_content:
                    raise ContentTooLarge
                if held is not None:
                    held.require(len(content))
            elif isinstance(event, h11.EndOfMessage):
                return HttpAnswer(status, bytes(content), headers)

    @property
    def is_reusable(self) -> bool:
        """Return whether the last answer has ended, and the server has neither closed nor sent."""
        return self._messages.is_idle and not self._readable.poll(0)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _next_event(self, until: float) -> h11.Event:
        while (event := self._messages.next_event()) is None:
            self._messages.receive(self._receive(until))
        return event

    def _receive(self, until: float) -> bytes:
        """Return the server's next bytes, within the limits of time and CPU."""
        self._socket.settimeout(_await_share(self._cpu, until))
        return self._socket.recv(PIECE)


def _await_share(cpu: CpuShare | None, until: float) -> float:
    """Pause while the tenant is above its share of CPU time; return the seconds that are left."""
    pause = 0.0 if cpu is None else cpu.charge()
    if pause > 0:
        time.sleep(max(0.0, min(pause, until - time.monotonic())))
    return _seconds_left(until)


def _seconds_left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise DeadlineExceeded("the answer takes too long: the read timed out")
    return left


def _connect(server: Server, until: float) -> socket.socket:
    connected = _connect_tcp(server, until)
    try:
        for option in SOCKET_OPTIONS:
            connected.setsockopt(*option)
        # The timeout is that of the whole handshake.
        connected.settimeout(min(CONNECT_SECONDS, _seconds_left(until)))
        return server.context.wrap_socket(
            connected, server_hostname=server.server_name or server.host
        )
    except BaseException:
        connected.close()
        raise


def _connect_tcp(server: Server, until: float) -> socket.socket:
    """Connect to one of the first addresses of a server, whose name may have any number."""
    failure = OSError("the server's name has no address")
    found = socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
    for *_, address in found[:MAX_ADDRESSES]:
        host, timeout = str(address[0]), min(CONNECT_SECONDS, _seconds_left(until))
        try:
            return socket.create_connection((host, server.port), timeout=timeout)
        except OSError as error:
            failure = error
    raise failure
