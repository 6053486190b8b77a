"""Lists and watches of one API server on an event loop, each stream over one connection.

A workload cluster's API server may be hostile: limits of size and time hold for every byte that it
sends, before and after its headers.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeVar

import h11

from common.errors import ApiServerUnavailable
from signer.fairness.memory_budget import HeldBytes, MemoryBudget
from signer.kube.transport.client import (
    MAX_WORKLOAD_RESPONSE,
    ApiClient,
    Expired,
    PageTooLarge,
    Response,
    asks_for_several,
)
from signer.kube.transport.endpoint import (
    ANSWER_SECONDS,
    CONNECT_SECONDS,
    MAX_ADDRESSES,
    SOCKET_OPTIONS,
    invalid_request,
    unreachable,
)
from signer.kube.transport.event_loop import EventLoop
from signer.kube.transport.http_connection import HttpConnection, SilenceExceeded
from signer.kube.transport.tls import ContentTooSlow

T = TypeVar("T")

_MAX_EVENT: Final = MAX_WORKLOAD_RESPONSE
"""Bytes of one watch event: it has one object."""
_SILENCE_SECONDS: Final = 100.0
"""For the next byte of a watch. Bookmarks come about each minute; after a longer silence the server
hangs, or the watch can be started again at little cost."""
_WATCH_SECONDS: Final = 400.0
"""For a whole watch. Servers end it earlier. The limit ends an event without an end."""


class ApiStream:
    """Lists and watches of one collection; all methods are for one task of the event loop."""

    def __init__(
        self,
        api: ApiClient,
        *,
        caller: EventLoop,
        tenant: str,
        connecting: asyncio.Lock,
        reading: MemoryBudget | None = None,
    ) -> None:
        """Read from the server of `api` within its limits.

        What blocks is called by `caller` for `tenant`. What is being read counts in `reading`.
        `connecting` is held while a connection is set up: a TLS handshake needs more memory than an
        idle connection, and the streams of one server need not begin at the same moment.
        """
        self.name = api.name
        self._endpoint = api.endpoint
        self._max_answer = api.max_answer
        self._cpu = api.cpu
        self._caller = caller
        self._tenant = tenant
        self._connecting = connecting
        self._connection: HttpConnection | None = None
        self._held = None if reading is None else HeldBytes(reading, tenant)

    async def get_page(self, path: str, query: Mapping[str, str]) -> Response:
        """Read one page of a list.

        Raises `Expired` for 410, `PageTooLarge`, and `ApiServerUnavailable` for any other failure.
        """
        with self._closing_on_failure():
            connection = await self._prepare(whole=ANSWER_SECONDS, silence=ANSWER_SECONDS)
            await self._request(connection, path, query)
            try:
                content = await self._content(connection, self._max_answer(query))
            except ContentTooSlow as error:
                if not asks_for_several(query):
                    raise
                self.close()
                raise PageTooLarge from error
            return Response(status=HTTPStatus.OK, content=content)

    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """Yield `b""` when the server accepts the watch, then its events until its end.

        Silence of `_SILENCE_SECONDS` is a normal end. An API server that has had no event of the
        kind sends no bookmark either (k8s.io/apiserver, storage/cacher: dispatchEvents). A server
        that hangs does not answer the next request. A server that sends bytes until
        `_WATCH_SECONDS` are over is not silent.

        Raises `Expired` when the server answers 410, and `ApiServerUnavailable` for any other
        failure.
        """
        lines = LineBuffer()
        with self._closing_on_failure():
            connection = await self._prepare(whole=_WATCH_SECONDS, silence=_SILENCE_SECONDS)
            await self._request(connection, path, {**query, "watch": "true"})
            yield b""
            with contextlib.suppress(SilenceExceeded):
                while (chunk := await connection.next_chunk()) is not None:
                    for line in lines.split(chunk):
                        yield line
                    self._hold(len(lines))

    async def yield_cpu(self) -> None:
        """Let the other tasks run, and wait while the tenant is above its share of CPU time."""
        if self._connection is None:
            await asyncio.sleep(0)
            return
        with self._closing_on_failure():
            await self._connection.yield_cpu()

    async def call(self, function: Callable[[], T]) -> T:
        """Call a function that blocks, on a thread."""
        return await self._caller.call(self._tenant, function)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._hold(0)

    def _hold(self, size: int) -> None:
        """Count the bytes of an answer, until the next request, or of an event that is not whole.

        A server may send all but the end of each of them, for as long as a watch lasts.
        """
        if self._held is not None and not self._held.resize(size):
            self.close()
            raise ApiServerUnavailable(
                f"what the API servers of namespace {self._tenant} send at the same time exceeds"
                " its memory budget"
            )

    @contextlib.contextmanager
    def _closing_on_failure(self) -> Iterator[None]:
        try:
            yield
        except h11.LocalProtocolError as error:
            self.close()
            raise invalid_request() from error
        except (OSError, h11.RemoteProtocolError, ValueError) as error:
            self.close()
            raise unreachable(error) from error

    async def _request(
        self, connection: HttpConnection, path: str, query: Mapping[str, str]
    ) -> None:
        """Send a request and require status 200."""
        endpoint = self._endpoint
        status = await connection.request(endpoint.target(path, query), endpoint.headers())
        if status == HTTPStatus.GONE:
            raise Expired
        if status == HTTPStatus.OK:
            return
        try:
            content = await self._content(connection, self._max_answer({}))
        except PageTooLarge as error:
            raise ApiServerUnavailable("the API server's answer is too large") from error
        raise endpoint.unexpected_status(f"GET {path}", status, content)

    async def _content(self, connection: HttpConnection, limit: int) -> bytes:
        content = bytearray()
        try:
            while (chunk := await connection.next_chunk()) is not None:
                content += chunk
                if len(content) > limit:
                    raise PageTooLarge
                self._hold(len(content))
                del chunk  # not kept while the next one is awaited
        except TimeoutError as error:
            if not content:
                raise
            raise ContentTooSlow(*error.args) from error
        return bytes(content)

    async def _prepare(self, *, whole: float, silence: float) -> HttpConnection:
        """Return a connection that can carry a request, with these limits of time."""
        self._hold(0)
        connection = self._connection
        if connection is None or not connection.is_reusable:
            self.close()
            async with self._connecting:
                connection = self._connection = await self._connect()
                connection.limit(whole=ANSWER_SECONDS, silence=ANSWER_SECONDS)
                await connection.shake_hands(self.call)
        connection.limit(whole=whole, silence=silence)
        return connection

    async def _connect(self) -> HttpConnection:
        failure: Exception = OSError("the server's name has no address")
        for family, kind, protocol, _, address in (await self._addresses())[:MAX_ADDRESSES]:
            try:
                connected = socket.socket(family, kind, protocol)
            except OSError as error:
                failure = error
                continue
            try:
                await self._connect_to(connected, address)
                return HttpConnection(connected, self._endpoint, self._cpu)
            except OSError as error:
                connected.close()
                failure = error
            except BaseException:
                connected.close()
                raise
        raise failure

    async def _connect_to(self, connected: socket.socket, address: Any) -> None:  # noqa: ANN401 # by family
        connected.setblocking(False)  # noqa: FBT003 # theirs
        for option in SOCKET_OPTIONS:
            connected.setsockopt(*option)
        async with asyncio.timeout(CONNECT_SECONDS):
            await asyncio.get_running_loop().sock_connect(connected, address)

    async def _addresses(self) -> list[Any]:
        """Return the addresses of the server; the look-up of a name blocks."""
        host, port = self._endpoint.host, self._endpoint.port
        try:
            return socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
            )
        except socket.gaierror:
            return await self.call(partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM))


class LineBuffer:
    """Cuts chunks into lines, in time proportional to the bytes.

    Each byte is appended, searched and copied out once, however the server cuts its lines.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()

    def __len__(self) -> int:
        """Return the number of bytes of the line that is not complete."""
        return len(self._buffer)

    def split(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that this chunk completes, without those that are empty.

        Raises `ApiServerUnavailable` when the last line is too long already.
        """
        buffer = self._buffer
        searched = len(buffer)
        buffer += chunk
        while (end := buffer.find(b"\n", searched)) >= 0:
            if end:
                yield bytes(buffer[:end])
            # CPython deletes from the front of a bytearray without moving the rest.
            del buffer[: end + 1]
            searched = 0
        if len(buffer) > _MAX_EVENT:
            raise ApiServerUnavailable("an event of the API server is too large")
