"""One connection with TLS and HTTP/1.1, used by one thread at a time.

The server may be hostile. Before each read from the socket and each write to it, the connection
checks the time limit of the whole answer and the CPU budget of the server's tenant. A timeout of
the socket starts again with each byte, so a server that sends or reads single bytes could hold a
thread without end. No place in the line of threads that compute is held while the server is waited
for, and no limit of time counts the wait for one.
"""

import contextlib
import math
import select
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar

import h11

from signer.fairness.compute_line import sleep, thread_clock, waiting
from signer.fairness.cpu_budget import CpuShare
from signer.fairness.memory_budget import HeldBytes
from signer.kube.transport.endpoint import CONNECT_SECONDS, MAX_ADDRESSES, SOCKET_OPTIONS
from signer.kube.transport.http_messages import PIECE, HttpMessages, HttpRequest
from signer.kube.transport.tls import ContentTooSlow, DeadlineExceeded

T = TypeVar("T")

_EVENTS_PER_TURN: Final = 64
"""HTTP chunks that are parsed until other threads may compute: some milliseconds."""


class ContentTooLarge(Exception):
    """The content of an answer exceeds the size limit."""


class SilenceExceeded(TimeoutError):
    """The server has sent nothing for as long as it may be silent."""


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


class Limits(NamedTuple):
    """For how long a thread waits for an answer; times are on its `thread_clock`."""

    until: float
    silence: float = math.inf
    """Seconds for which the server may send nothing."""
    sleep: Callable[[float], None] = sleep
    """Waits while the tenant is above its share of CPU time."""


class HttpConnection:
    """One connection, which carries one request after another."""

    def __init__(
        self, server: Server, addresses: Sequence[str], cpu: CpuShare | None, limits: Limits
    ) -> None:
        """Connect to one of the first addresses. Raises `OSError`."""
        self._cpu = cpu
        self._limits = limits
        self._messages = HttpMessages(server.host_header)
        self._events = 0
        self._poll, self._poll_out = select.poll(), select.poll()
        self._await_share()
        try:
            connected = _connect_tcp(server.port, addresses, limits)
            try:
                self._socket = self._set_up_tls(connected, server)
            except BaseException:
                connected.close()
                raise
        finally:
            # A server can make each handshake expensive, and fail it before anything is read.
            if cpu is not None:
                cpu.charge()

    def limit(self, limits: Limits) -> None:
        """Set the limits of the next answer."""
        self._limits = limits

    def request(self, request: HttpRequest) -> h11.Response:
        """Send a request; return the head of the answer.

        Raises `OSError` or `h11.ProtocolError`, as reading the content does.
        """
        data = memoryview(self._messages.encode(request))
        while data:
            data = data[self._repeat(partial(self._socket.send, data)) :]
        while True:
            event = self._next_event()
            if isinstance(event, h11.Response):
                return event

    def next_chunk(self) -> bytes | None:
        """Return the next bytes of the content, `None` at its end."""
        event = self._next_event()
        return bytes(event.data) if isinstance(event, h11.Data) else None

    def content(self, max_size: int, held: HeldBytes | None) -> bytes:
        """Return the whole content; count it in `held` as it grows.

        Raises `ContentTooLarge`, and `ContentTooSlow` if it had begun at the end of its time.
        """
        content = bytearray()
        try:
            while (chunk := self.next_chunk()) is not None:
                content += chunk
                if len(content) > max_size:
                    raise ContentTooLarge
                if held is not None:
                    held.require(len(content))
                del chunk  # not kept while the next one is awaited
        except TimeoutError as error:
            if not content:
                raise
            raise ContentTooSlow(*error.args) from error
        return bytes(content)

    @property
    def has_ended(self) -> bool:
        """Return whether the last answer has ended."""
        return self._messages.is_idle

    @property
    def is_reusable(self) -> bool:
        """Return whether the last answer has ended, and the server has neither closed nor sent."""
        return self._messages.is_idle and not self._poll.poll(0)

    def shut_down(self) -> None:
        """End what the connection waits for; for any thread."""
        with contextlib.suppress(OSError):
            # That of the base class: SSLSocket's drops TLS under the thread that reads.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _set_up_tls(self, connected: socket.socket, server: Server) -> ssl.SSLSocket:
        connected.setblocking(False)  # noqa: FBT003 # theirs
        for option in SOCKET_OPTIONS:
            connected.setsockopt(*option)
        wrapped = server.context.wrap_socket(
            connected,
            server_hostname=server.server_name or server.host,
            do_handshake_on_connect=False,
        )
        try:
            self._socket = wrapped
            self._poll.register(wrapped, select.POLLIN)
            self._poll_out.register(wrapped, select.POLLOUT)
            whole = self._limits
            self._limits = whole._replace(until=min(whole.until, thread_clock() + CONNECT_SECONDS))
            self._repeat(wrapped.do_handshake)
            self._limits = whole
        except BaseException:
            wrapped.close()
            raise
        return wrapped

    def _next_event(self) -> h11.Event:
        while (event := self._messages.next_event()) is None:
            self._await_share()
            if not self._socket.pending():
                # To wait first costs less than a read of OpenSSL that fails.
                self._wait(select.POLLIN)
            self._messages.receive(self._repeat(partial(self._socket.recv, PIECE)))
        self._events += 1
        if self._events % _EVENTS_PER_TURN == 0:
            with waiting():
                pass  # the others compute
            self._await_share()
        return event

    def _repeat(self, step: Callable[[], T]) -> T:
        """Repeat a step of TLS until the server has sent, or taken, what it needs."""
        while True:
            # Bytes that have arrived are read without waiting: no timeout would end that.
            self._seconds_left()
            try:
                return step()
            except ssl.SSLWantReadError:
                self._wait(select.POLLIN)
            except ssl.SSLWantWriteError:
                self._wait(select.POLLOUT)

    def _wait(self, events: int) -> None:
        """Wait until the socket is ready, within the limits of time."""
        seconds = min(self._seconds_left(), self._limits.silence)
        poll = self._poll if events == select.POLLIN else self._poll_out
        with waiting():
            is_ready = poll.poll(math.ceil(1000 * seconds))
        if not is_ready:
            self._seconds_left()
            raise SilenceExceeded("the read timed out")

    def _await_share(self) -> None:
        """Pause while the tenant is above its share of CPU time."""
        pause = 0.0 if self._cpu is None else self._cpu.charge()
        if pause > 0:
            self._limits.sleep(max(0.0, min(pause, self._seconds_left())))

    def _seconds_left(self) -> float:
        return seconds_left(self._limits.until)


def seconds_left(until: float) -> float:
    """Return the seconds until a time on the `thread_clock`. Raises `DeadlineExceeded`."""
    left = until - thread_clock()
    if left <= 0:
        raise DeadlineExceeded("the answer takes too long: the read timed out")
    return left


def _connect_tcp(port: int, addresses: Sequence[str], limits: Limits) -> socket.socket:
    """Connect to one of the first addresses of a server, whose name may have any number."""
    failure = OSError("the server's name has no address")
    for address in addresses[:MAX_ADDRESSES]:
        timeout = min(CONNECT_SECONDS, seconds_left(limits.until))
        try:
            with waiting():
                return socket.create_connection((address, port), timeout=timeout)
        except OSError as error:
            failure = error
    raise failure
