"""Requests to one API server: raw JSON, within limits of time and size, and no redirects.

A workload cluster's API server may be hostile. So nothing of its answers is believed here but
that they are JSON objects within bounds; where it would send us is never followed, and its text
goes to the operator's log alone.
"""

import json
import socket
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlencode

import urllib3

from common.errors import ApiServerUnavailable
from signer.kube.kubeconfig import Connection
from signer.kube.tls import client_context, deadline_socket

Json = Mapping[str, Any]
"""An object as JSON has it: what is in it is known to nobody yet."""

_MAX_ANSWER: Final = 16 << 20
"""Bytes of one answer: ten objects of etcd's 1.5 MiB, or a page of a hundred usual ones."""
_MAX_EVENT: Final = 4 << 20
"""Bytes of one watch event: one object of etcd's 1.5 MiB, and its base64 again."""
_CHUNK: Final = 64 << 10
_CONNECT_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 30.0
"""For a whole answer; a server that sends a byte now and then does not hold a worker longer."""
_SILENCE_SECONDS: Final = 100.0
"""For the next byte of a watch. Bookmarks come about each minute; a longer silence is a server
that hangs, or a watch that may as well be asked for again."""
_WATCH_SECONDS: Final = 400.0
"""For a whole watch, which servers end earlier: an event without an end does not hold its thread
once the cluster is closed."""
_CONNECTIONS: Final = 32
"""Kept for the next requests: workers ask the management cluster at once."""
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_MERGE: Final = "application/merge-patch+json"
_JSON_PATCH: Final = "application/json-patch+json"

# A connection whose other end vanished is noticed after half a minute, watch or not.
_SOCKET_OPTIONS: Final = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)


class Expired(Exception):
    """The resource version is too old to go on from (410): list again. Handled in `watch`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What the API server said, with a status that the caller expects."""

    status: int
    body: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Json | Sequence[Json] | None = None
    media: str = "application/json"


class ApiClient:
    """One API server, for any number of threads."""

    def __init__(self, name: str, connection: Connection, *, user_agent: str) -> None:
        """`name` is what the cluster is called in logs."""
        self.name = name
        self._connection = connection
        self._agent = user_agent
        self._answers = _pool(connection, _ANSWER_SECONDS)
        self._watches = _pool(connection, _WATCH_SECONDS)

    def get(
        self,
        path: str,
        query: Mapping[str, str] = _NOTHING,
        *,
        accepted: Container[int] = (200,),
    ) -> Response:
        """Read one object or a list."""
        return self._call(_Request(method="GET", path=path, query=query), accepted)

    def create(self, path: str, body: Json, *, accepted: Container[int] = (201,)) -> Response:
        """Create an object."""
        return self._call(_Request(method="POST", path=path, body=body), accepted)

    def replace(self, path: str, body: Json, *, accepted: Container[int] = (200,)) -> Response:
        """Write a whole object, under the resource version in it."""
        return self._call(_Request(method="PUT", path=path, body=body), accepted)

    def merge_patch(self, path: str, body: Json, *, accepted: Container[int] = (200,)) -> Response:
        """Merge into an object, under the resource version in `body`; lists are replaced."""
        return self._call(_Request(method="PATCH", path=path, body=body, media=_MERGE), accepted)

    def json_patch(
        self, path: str, operations: Sequence[Json], *, accepted: Container[int] = (200,)
    ) -> Response:
        """Change single places of an object (JSON patch, RFC 6902)."""
        request = _Request(method="PATCH", path=path, body=operations, media=_JSON_PATCH)
        return self._call(request, accepted)

    def delete(
        self, path: str, preconditions: Mapping[str, str], *, accepted: Container[int] = (200,)
    ) -> Response:
        """Delete an object, if it still is the one of the preconditions."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        return self._call(_Request(method="DELETE", path=path, body=options), accepted)

    def watch(self, path: str, query: Mapping[str, str]) -> Iterator[Json]:
        """Yield the events of a watch until the server ends it.

        Raises `Expired` when the server says 410 instead of answering, and
        `ApiServerUnavailable` for everything else that is no event.
        """
        request = _Request(method="GET", path=path, query={**query, "watch": "true"})
        try:
            with self._send(self._watches, request, _SILENCE_SECONDS) as response:
                if response.status == HTTPStatus.GONE:
                    raise Expired
                if response.status != HTTPStatus.OK:
                    raise _refused(request, response.status, _read(response))
                yield from map(_object, _lines(response))
        except (urllib3.exceptions.HTTPError, OSError) as e:
            raise _unreachable(e) from e

    def close(self) -> None:
        """Let go of the idle connections."""
        self._answers.clear()
        self._watches.clear()

    def _call(self, request: _Request, accepted: Container[int]) -> Response:
        try:
            with self._send(self._answers, request, _ANSWER_SECONDS) as response:
                content = _read(response)
        except (urllib3.exceptions.HTTPError, OSError) as e:
            raise _unreachable(e) from e
        if response.status not in accepted:
            raise _refused(request, response.status, content)
        return Response(status=response.status, body=_object(content))

    def _send(
        self, pool: urllib3.PoolManager, request: _Request, seconds: float
    ) -> urllib3.BaseHTTPResponse:
        """Send a request; for `seconds` the server may be silent."""
        query = f"?{urlencode(request.query)}" if request.query else ""
        headers = {"Accept": "application/json", "User-Agent": self._agent}
        if request.body is not None:
            headers["Content-Type"] = request.media
        token = self._token()
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return pool.request(
            request.method,
            self._connection.server + request.path + query,
            body=None if request.body is None else json.dumps(request.body).encode(),
            headers=headers,
            timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=seconds),
            redirect=False,
            preload_content=False,
            decode_content=False,
        )

    def _token(self) -> str | None:
        if self._connection.token_file is not None:
            return self._connection.token_file.read_text(encoding="ascii").strip()
        return self._connection.token


def _pool(connection: Connection, seconds: float) -> urllib3.PoolManager:
    """Return connections on which no answer takes longer."""
    context = client_context(connection)
    context.sslsocket_class = deadline_socket(seconds)
    return urllib3.PoolManager(
        num_pools=1,
        maxsize=_CONNECTIONS,
        ssl_context=context,
        server_hostname=connection.server_name,
        socket_options=_SOCKET_OPTIONS,
        retries=False,
    )


def _read(response: urllib3.BaseHTTPResponse) -> bytes:
    """Read an answer to its end, within the limit of size."""
    content = bytearray()
    for chunk in response.stream(_CHUNK, decode_content=False):
        content += chunk
        if len(content) > _MAX_ANSWER:
            raise ApiServerUnavailable("the API server's answer is too large")
    return bytes(content)


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    rest = b""
    for chunk in response.stream(_CHUNK, decode_content=False):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from filter(None, lines)
        if len(rest) > _MAX_EVENT:
            raise ApiServerUnavailable("an event of the API server is too large")


def _object(content: bytes) -> Json:
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as e:
        raise ApiServerUnavailable("the API server's answer is not JSON") from e
    if not isinstance(body, dict):
        raise ApiServerUnavailable("the API server's answer is not a JSON object")
    return body


def _refused(request: _Request, status: int, content: bytes) -> ApiServerUnavailable:
    said = content[:500].decode(errors="replace")
    return ApiServerUnavailable(
        f"the API server answered with status {status}",
        detail=f"{request.method} {request.path}: {said}",
    )


def _unreachable(error: Exception) -> ApiServerUnavailable:
    detail = f"{type(error).__name__}: {error}"[:500]
    return ApiServerUnavailable("the API server cannot be reached", detail=detail)
