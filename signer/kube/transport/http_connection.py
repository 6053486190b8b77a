"""One connection with TLS and HTTP/1.1 on an event loop: no thread waits for the server.

The server may be hostile. Its bytes are read in small pieces, and only while the time limits and
the CPU budget of its tenant allow it; until then it has to wait (TCP flow control). After each
piece the other tasks of the event loop get their turn.
"""

import asyncio
import math
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

import h11

from signer.fairness.cpu_budget import CpuShare
from signer.kube.transport.endpoint import Endpoint
from signer.kube.transport.http_messages import PIECE, HttpMessages, HttpRequest
from signer.kube.transport.tls import DeadlineExceeded

T = TypeVar("T")

_TRUSTED_PIECE: Final = 256 << 10
"""Bytes of one read from a server that no budget of CPU time limits: the management
cluster. Each piece costs a turn of the event loop."""
_EVENTS_PER_TURN: Final = 64
"""HTTP chunks that are parsed until the other tasks get their turn: some milliseconds."""


class SilenceExceeded(TimeoutError):
    """The server has sent nothing for as long as it may be silent."""


class HttpConnection:
    """One connection, which carries one GET request after another."""

    def __init__(self, connected: socket.socket, endpoint: Endpoint, cpu: CpuShare | None) -> None:
        self._socket = connected
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = endpoint.context.wrap_bio(
            self._incoming, self._outgoing, server_hostname=endpoint.server_name or endpoint.host
        )
        self._messages = HttpMessages(endpoint.host_header)
        self._cpu = cpu
        self._piece = _TRUSTED_PIECE if cpu is None else PIECE
        self._until = self._silence = math.inf
        self._events = 0

    def limit(self, *, whole: float, silence: float) -> None:
        """Allow `whole` seconds from now for an answer, and silence of `silence` seconds."""
        self._until, self._silence = time.monotonic() + whole, silence

    async def shake_hands(self, call: Callable[[Callable[[], bool]], Awaitable[bool]]) -> None:
        """Set up TLS; `call` calls a function on another thread. Raises `OSError`.

        Both the server and the tenant of the kubeconfig choose keys and chains that may take
        OpenSSL tenths of a second.
        """
        while await call(self._continue_handshake):
            await self._flush()
            await self._receive()
        await self._flush()

    async def request(self, target: str, headers: Mapping[str, str]) -> int:
        """Send a GET request; return the status of the answer.

        Raises `OSError` or `h11.ProtocolError`, as reading the content does.
        """
        request = HttpRequest(method="GET", target=target, headers=headers)
        self._tls.write(self._messages.encode(request))
        await self._flush()
        while True:
            event = await self._next_event()
            if isinstance(event, h11.Response):
                return event.status_code

    async def next_chunk(self) -> bytes | None:
        """Return the next bytes of the content, `None` at its end."""
        event = await self._next_event()
        return bytes(event.data) if isinstance(event, h11.Data) else None

    async def yield_cpu(self) -> None:
        """Let the other tasks run, and wait while the tenant is above its share of CPU time."""
        while True:
            pause = 0.0 if self._cpu is None else self._cpu.charge()
            await asyncio.sleep(max(0.0, min(pause, self._until - time.monotonic())))
            self._begin()
            if pause <= 0:
                return
            self._require_time()

    @property
    def is_reusable(self) -> bool:
        """Return whether the last answer has ended, and the server has neither closed nor sent."""
        if not self._messages.is_idle or self._incoming.pending:
            return False
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _continue_handshake(self) -> bool:
        """Continue with the bytes that have arrived; return whether more are needed."""
        self._begin()
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return True
        finally:
            if self._cpu is not None:
                self._cpu.charge()
        return False

    async def _next_event(self) -> h11.Event:
        while (event := self._messages.next_event()) is None:
            await self._parse_more()
        self._events += 1
        if self._events % _EVENTS_PER_TURN == 0:
            await self.yield_cpu()
        return event

    async def _parse_more(self) -> None:
        """Give more of the server's bytes to the HTTP parser."""
        while True:
            try:
                data = self._tls.read(PIECE)
            except ssl.SSLWantReadError:
                await self._flush()
                await self._receive()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                # The parser decides whether an answer may end here.
                self._messages.receive(b"")
                return
            else:
                self._messages.receive(data)
                return

    async def _flush(self) -> None:
        data = self._outgoing.read()
        if data:
            self._require_time()
            await self._wait(asyncio.get_running_loop().sock_sendall(self._socket, data))

    async def _receive(self) -> None:
        """Wait for bytes of the server, and then until they may be decoded."""
        # Bytes that have arrived are read without waiting: no timeout would end that.
        self._require_time()
        if self._cpu is not None:
            self._cpu.charge()
        data = await self._wait(asyncio.get_running_loop().sock_recv(self._socket, self._piece))
        self._begin()
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
        del data  # not kept while the stream waits
        # Before they are decoded: all connections of a tenant may get bytes at the same moment.
        await self.yield_cpu()

    async def _wait(self, bytes_moved: Awaitable[T]) -> T:
        """Wait for bytes from or to the server, within the limits of time."""
        limit = asyncio.timeout(min(self._until - time.monotonic(), self._silence))
        try:
            async with limit:
                return await bytes_moved
        except TimeoutError as error:
            if not limit.expired():
                raise
            self._require_time()
            raise SilenceExceeded("the read timed out") from error

    def _require_time(self) -> None:
        if time.monotonic() >= self._until:
            raise DeadlineExceeded("the answer takes too long: the read timed out")

    def _begin(self) -> None:
        if self._cpu is not None:
            self._cpu.begin()
