"""HTTP/1.1 of one connection to a server: encodes requests and parses answers, without I/O."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import h11

PIECE: Final = 16 << 10
"""Bytes of one read: one TLS record."""
_MAX_HEAD: Final = 16 << 10
"""Bytes of a status line with its headers, and of the header of a chunk. No budget counts them, and
the Clusters of a tenant have 1,500 watches. An API server writes 4 KiB of warnings at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request with its whole body."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes | None = None


class HttpAnswer(NamedTuple):
    """The whole answer to a request."""

    status: int
    content: bytes
    headers: Mapping[bytes, bytes]
    """The names are in lower case."""


class HttpMessages:
    """The messages of one connection, which carries one request after another."""

    def __init__(self, host: str) -> None:
        """Send `host` as the header `Host`."""
        self._host = host
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD)

    @property
    def is_idle(self) -> bool:
        """Return whether the last answer has ended, and no byte has come after it."""
        states = {self._http.our_state, self._http.their_state}
        return states == {h11.DONE} and not self._http.trailing_data[0]

    def encode(self, request: HttpRequest) -> bytes:
        """Return the bytes of a request. Raises `h11.LocalProtocolError`."""
        http, body = self._http, request.body
        if http.our_state is h11.DONE:
            http.start_next_cycle()
        headers = {"Host": self._host, **request.headers}
        if body is not None:
            headers["Content-Length"] = str(len(body))
        head = h11.Request(
            method=request.method, target=request.target, headers=list(headers.items())
        )
        data = http.send(head) or b""
        if body is not None:
            data += http.send(h11.Data(data=body)) or b""
        return data + (http.send(h11.EndOfMessage()) or b"")

    def receive(self, data: bytes) -> None:
        """Take bytes of the server; no bytes mean that it has closed the connection."""
        self._http.receive_data(data)

    def next_event(self) -> h11.Event | None:
        """Return the next part of the answer, `None` if more bytes are needed.

        Raises `h11.RemoteProtocolError`, and `ConnectionError` if the server closed the connection.
        """
        event = self._http.next_event()
        if event is h11.NEED_DATA:
            return None
        if isinstance(event, h11.Event) and not isinstance(event, h11.ConnectionClosed):
            return event
        raise ConnectionError("the server closed the connection")
