"""Lists and watches of one collection of an API server, by the thread of one reflector.

A workload cluster's API server may be hostile: limits of size and time hold for every byte that it
sends, before and after its headers.
"""

import contextlib
import math
from collections.abc import Generator, Iterator, Mapping
from http import HTTPStatus
from threading import Lock
from typing import Final

import h11

from common.errors import ApiServerUnavailable
from signer.fairness.compute_line import thread_clock, waiting
from signer.kube.transport.client import (
    MAX_WORKLOAD_RESPONSE,
    ApiClient,
    Expired,
    PageTooLarge,
    Response,
    asks_for_several,
)
from signer.kube.transport.endpoint import ANSWER_SECONDS, invalid_request, unreachable
from signer.kube.transport.http_connection import (
    ContentTooLarge,
    HttpConnection,
    Limits,
    SilenceExceeded,
)
from signer.kube.transport.http_messages import HttpRequest
from signer.kube.transport.interruption import Interruption
from signer.kube.transport.tls import ContentTooSlow

_MAX_EVENT: Final = MAX_WORKLOAD_RESPONSE
"""Bytes of one watch event: it has one object."""
_SILENCE_SECONDS: Final = 100.0
"""For the next byte of a watch. Bookmarks come about each minute; after a longer silence the server
hangs, or the watch can be started again at little cost."""
_WATCH_SECONDS: Final = 400.0
"""For a whole watch. Servers end it earlier. The limit ends an event without an end."""


class ListWatch:
    """Lists and watches of one collection; all methods are for one thread."""

    def __init__(self, api: ApiClient, interruption: Interruption, connecting: Lock) -> None:
        """Read from the server of `api` within its limits, until `interruption`.

        `connecting` is held while a connection is set up: a TLS handshake needs more memory than an
        idle connection, and the threads of one server need not begin at the same moment.
        """
        self.name = api.name
        self._api = api
        self._interruption = interruption
        self._connecting = connecting
        self._held = api.connections.hold()

    def get_page(self, path: str, query: Mapping[str, str]) -> Response:
        """Read one page of a list.

        Raises `Expired` for 410, `PageTooLarge`, and `ApiServerUnavailable` for any other failure.
        """
        with self._answer(path, query, whole=ANSWER_SECONDS) as connection:
            try:
                content = self._content(connection, self._api.max_answer(query))
            except ContentTooSlow as error:
                if not asks_for_several(query):
                    raise
                raise PageTooLarge from error
            return Response(status=HTTPStatus.OK, content=content)

    def watch(self, path: str, query: Mapping[str, str]) -> Generator[bytes, None, None]:
        """Yield `b""` when the server accepts the watch, then its events until its end.

        Silence of `_SILENCE_SECONDS` is a normal end. An API server that has had no event of the
        kind sends no bookmark either (k8s.io/apiserver, storage/cacher: dispatchEvents). A server
        that hangs does not answer the next request. A server that sends bytes until
        `_WATCH_SECONDS` are over is not silent.

        Raises `Expired` when the server answers 410, and `ApiServerUnavailable` for any other
        failure.
        """
        lines = LineBuffer()
        query = {**query, "watch": "true"}
        with (
            self._answer(path, query, _WATCH_SECONDS, _SILENCE_SECONDS) as connection,
            contextlib.suppress(SilenceExceeded),
        ):
            yield b""
            while (chunk := connection.next_chunk()) is not None:
                yield from lines.split(chunk)
                self._hold(len(lines))

    def yield_cpu(self) -> None:
        """Let other threads compute, and wait while the tenant is above its share of CPU time."""
        cpu = self._api.cpu
        self._interruption.sleep(0.0 if cpu is None else cpu.charge())

    def close(self) -> None:
        """Give back what was counted of the last answer."""
        self._hold(0)

    def _hold(self, size: int) -> None:
        """Count the bytes of an answer, until the next request, or of an event that is not whole.

        A server may send all but the end of each of them, for as long as a watch lasts.
        """
        if self._held is not None:
            self._held.require(size)

    @contextlib.contextmanager
    def _answer(
        self, path: str, query: Mapping[str, str], whole: float, silence: float = math.inf
    ) -> Iterator[HttpConnection]:
        """Send a request, and require status 200; return the connection with its answer."""
        self._hold(0)
        endpoint, pool = self._api.endpoint, self._api.connections
        request = HttpRequest(
            method="GET", target=endpoint.target(path, query), headers=endpoint.headers()
        )
        try:
            connection = pool.take() or self._connect()
            limits = Limits(thread_clock() + whole, silence, self._interruption.sleep)
            with pool.lend(connection, limits), self._interruption.waking(connection):
                self._require_ok(path, connection, connection.request(request).status_code)
                yield connection
        except h11.LocalProtocolError as error:
            raise invalid_request() from error
        except ApiServerUnavailable:
            self._hold(0)
            raise
        except (OSError, h11.RemoteProtocolError, ValueError) as error:
            self._hold(0)
            self._interruption.check()
            raise unreachable(error) from error

    def _connect(self) -> HttpConnection:
        with waiting():
            self._connecting.acquire()
        try:
            limits = Limits(thread_clock() + ANSWER_SECONDS, sleep=self._interruption.sleep)
            return self._api.connections.connect(limits)
        finally:
            self._connecting.release()

    def _require_ok(self, path: str, connection: HttpConnection, status: int) -> None:
        if status == HTTPStatus.GONE:
            raise Expired
        if status == HTTPStatus.OK:
            return
        try:
            content = self._content(connection, self._api.max_answer({}))
        except PageTooLarge as error:
            raise ApiServerUnavailable("the API server's answer is too large") from error
        raise self._api.endpoint.unexpected_status(f"GET {path}", status, content)

    def _content(self, connection: HttpConnection, max_size: int) -> bytes:
        try:
            return connection.content(max_size, self._held)
        except ContentTooLarge as error:
            raise PageTooLarge from error


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
