"""Requests to one API server, within limits of time and size, and without redirects.

A workload cluster's API server may be hostile. An answer is bytes within a limit until `read`
decodes it. Redirects are never followed, and the server's text goes to the operator's log alone.
"""

import json
import socket
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from types import MappingProxyType
from typing import Final, TypeVar
from urllib.parse import urlencode

import urllib3

from common.errors import ApiServerUnavailable
from signer.kube.cpu_budget import CpuShare
from signer.kube.decode import Json, Source
from signer.kube.kubeconfig import Connection
from signer.kube.tls import DeadlineExceeded, client_context, deadline_socket

V = TypeVar("V")

MAX_MANAGEMENT_RESPONSE: Final = 16 << 20
"""Bytes of one answer of the management cluster: ten objects of etcd's 1.5 MiB."""
MAX_WORKLOAD_RESPONSE: Final = 4 << 20
"""Bytes of one answer of a workload cluster: one object of etcd's 1.5 MiB, its base64 and escapes.
Reading a longer list takes more pages."""
_MAX_EVENT: Final = 4 << 20
"""Bytes of one watch event: one object, as above."""
_CHUNK: Final = 64 << 10
_CONNECT_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 30.0
"""For a whole answer, also one that a server sends byte by byte to hold a worker."""
_SILENCE_SECONDS: Final = 100.0
"""For the next byte of a watch. Bookmarks come about each minute; after a longer silence the server
hangs, or the watch can be started again at little cost."""
_WATCH_SECONDS: Final = 400.0
"""For a whole watch. Servers end it earlier. The limit ends the thread of a closed cluster whose
server sends an event without an end."""
_MAX_IDLE_CONNECTIONS: Final = 64
"""Workers send requests to the management cluster at the same time."""
_NO_QUERY: Final[Mapping[str, str]] = MappingProxyType({})
_MERGE_PATCH: Final = "application/merge-patch+json"
_JSON_PATCH: Final = "application/json-patch+json"

# TCP detects after half a minute that the peer no longer answers, also during an idle watch.
_SOCKET_OPTIONS: Final = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)


class Expired(Exception):
    """The resource version is too old to continue from (410): list again."""


class PageTooLarge(Exception):
    """A page of a list exceeds the size limit: ask for a smaller one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """An answer with a status that the caller expects."""

    status: int
    content: bytes

    def read(self, read: Callable[[Source], V]) -> V:
        """Return the value that a reader makes of the content.

        Raises `ApiServerUnavailable` when the reader cannot read it.
        """
        try:
            return read(self.content)
        except ValueError as e:
            message = "the API server's answer cannot be read"
            raise ApiServerUnavailable(message, detail=str(e)[:500]) from e


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Json | Sequence[Json] | None = None
    media: str = "application/json"


class ApiClient:
    """One API server, for any number of threads."""

    def __init__(
        self,
        name: str,
        connection: Connection,
        *,
        user_agent: str,
        max_response: int = MAX_MANAGEMENT_RESPONSE,
        cpu: CpuShare | None = None,
    ) -> None:
        """Call the cluster `name` in logs; read at most `max_response` bytes of an answer.

        `cpu` limits the CPU time of reading answers; without it there is no limit.
        """
        self.name = name
        self._connection = connection
        self._user_agent = user_agent
        self._max_response = max_response
        self._cpu = cpu
        self._prefix = (urllib3.util.parse_url(connection.server).path or "").rstrip("/")
        self._requests = _pool(connection, _ANSWER_SECONDS, cpu)
        self._watches = _pool(connection, _WATCH_SECONDS, cpu)

    def get(
        self,
        path: str,
        query: Mapping[str, str] = _NO_QUERY,
        *,
        accepted: Container[int] = (200,),
    ) -> Response:
        """Read one object."""
        return self._call(_Request(method="GET", path=path, query=query), accepted)

    def get_page(self, path: str, query: Mapping[str, str]) -> Response:
        """Read one page of a list.

        Raises `Expired` for 410, `PageTooLarge`, and `ApiServerUnavailable` for any other failure.
        """
        request = _Request(method="GET", path=path, query=query)
        status, content = self._exchange(request)
        if status == HTTPStatus.GONE:
            raise Expired
        if status != HTTPStatus.OK:
            raise _unexpected_status(request, status, content)
        return Response(status=status, content=content)

    def create(self, path: str, body: Json, *, accepted: Container[int] = (201,)) -> Response:
        """Create an object."""
        return self._call(_Request(method="POST", path=path, body=body), accepted)

    def replace(self, path: str, body: Json, *, accepted: Container[int] = (200,)) -> Response:
        """Write a whole object, under the resource version in it."""
        return self._call(_Request(method="PUT", path=path, body=body), accepted)

    def merge_patch(self, path: str, body: Json, *, accepted: Container[int] = (200,)) -> Response:
        """Merge into an object, under the resource version in `body`; lists are replaced."""
        request = _Request(method="PATCH", path=path, body=body, media=_MERGE_PATCH)
        return self._call(request, accepted)

    def json_patch(
        self, path: str, operations: Sequence[Json], *, accepted: Container[int] = (200,)
    ) -> Response:
        """Change single places of an object (JSON patch, RFC 6902)."""
        request = _Request(method="PATCH", path=path, body=operations, media=_JSON_PATCH)
        return self._call(request, accepted)

    def delete(
        self, path: str, preconditions: Mapping[str, str], *, accepted: Container[int] = (200,)
    ) -> Response:
        """Delete an object if it meets the preconditions."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        return self._call(_Request(method="DELETE", path=path, body=options), accepted)

    def watch(self, path: str, query: Mapping[str, str]) -> Iterator[bytes]:
        """Yield the events of a watch, one JSON text each, until the server ends it.

        Raises `Expired` when the server answers 410, and `ApiServerUnavailable` for any other
        failure.
        """
        request = _Request(method="GET", path=path, query={**query, "watch": "true"})
        try:
            with self._send(self._watches, request, _SILENCE_SECONDS) as response:
                if response.status == HTTPStatus.GONE:
                    raise Expired
                if response.status != HTTPStatus.OK:
                    content = self._read_content(response)
                    raise _unexpected_status(request, response.status, content)
                yield from _lines(_until_silent(response))
        except (urllib3.exceptions.HTTPError, OSError) as e:
            raise _unreachable(e) from e
        except PageTooLarge as e:
            raise ApiServerUnavailable("the API server's answer is too large") from e

    def close(self) -> None:
        """Close the idle connections; later requests fail."""
        self._requests.close()
        self._watches.close()

    def _call(self, request: _Request, accepted: Container[int]) -> Response:
        if self._cpu is not None:
            # Unlike a reflector's thread, this one works for any owner.
            self._cpu.begin()
        try:
            status, content = self._exchange(request)
        except PageTooLarge as e:
            raise ApiServerUnavailable("the API server's answer is too large") from e
        if status not in accepted:
            raise _unexpected_status(request, status, content)
        return Response(status=status, content=content)

    def _exchange(self, request: _Request) -> tuple[int, bytes]:
        """Send a request and read its whole answer."""
        try:
            with self._send(self._requests, request, _ANSWER_SECONDS) as response:
                return response.status, self._read_content(response)
        except (urllib3.exceptions.HTTPError, OSError) as e:
            raise _unreachable(e) from e

    def _send(
        self, pool: urllib3.HTTPSConnectionPool, request: _Request, seconds: float
    ) -> urllib3.BaseHTTPResponse:
        """Send a request. The server may be silent for `seconds`."""
        query = f"?{urlencode(request.query)}" if request.query else ""
        headers = {"Accept": "application/json", "User-Agent": self._user_agent}
        if request.body is not None:
            headers["Content-Type"] = request.media
        token = self._token()
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return pool.urlopen(
            request.method,
            self._prefix + request.path + query,
            body=None if request.body is None else json.dumps(request.body).encode(),
            headers=headers,
            timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=seconds),
            redirect=False,
            preload_content=False,
            decode_content=False,
        )

    def _read_content(self, response: urllib3.BaseHTTPResponse) -> bytes:
        content = bytearray()
        for chunk in response.stream(_CHUNK, decode_content=False):
            content += chunk
            if len(content) > self._max_response:
                raise PageTooLarge
        return bytes(content)

    def _token(self) -> str | None:
        if self._connection.token_file is not None:
            return self._connection.token_file.read_text(encoding="ascii").strip()
        return self._connection.token


def _pool(
    connection: Connection, seconds: float, cpu: CpuShare | None
) -> urllib3.HTTPSConnectionPool:
    """Return connections on which no answer takes longer than `seconds`.

    A `PoolManager` would look the one server up again for each request.
    """
    context = client_context(connection)
    context.sslsocket_class = (
        deadline_socket(seconds) if cpu is None else deadline_socket(seconds, cpu.charge)
    )
    address = urllib3.util.parse_url(connection.server)
    return urllib3.HTTPSConnectionPool(
        address.host or "",
        address.port,
        maxsize=_MAX_IDLE_CONNECTIONS,
        ssl_context=context,
        server_hostname=connection.server_name,
        socket_options=_SOCKET_OPTIONS,
        retries=False,
    )


def _until_silent(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """Yield the chunks of a watch until it ends, or is silent for `_SILENCE_SECONDS`.

    Silence is a normal end. An API server that has had no event of the kind sends no bookmark
    either (k8s.io/apiserver, storage/cacher: dispatchEvents). A server that hangs does not answer
    the next request. A server that sends bytes until `_WATCH_SECONDS` are over is not silent.
    """
    try:
        yield from response.stream(_CHUNK, decode_content=False)
    except urllib3.exceptions.ReadTimeoutError as e:
        if isinstance(e.__cause__, DeadlineExceeded):
            raise


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines that are not empty, in time proportional to the bytes.

    Each byte is appended, searched and copied out once, however the server cuts its lines.
    """
    buffer = bytearray()
    for chunk in chunks:
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


def _unexpected_status(request: _Request, status: int, content: bytes) -> ApiServerUnavailable:
    text = content[:500].decode(errors="replace")
    error = ApiServerUnavailable(
        f"the API server answered with status {status}",
        detail=f"{request.method} {request.path}: {text}",
    )
    error.status = status
    return error


def _unreachable(error: Exception) -> ApiServerUnavailable:
    detail = f"{type(error).__name__}: {error}"[:500]
    return ApiServerUnavailable("the API server cannot be reached", detail=detail)
