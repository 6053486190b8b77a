"""Requests to one API server, within limits of time and size, and without redirects.

A workload cluster's API server may be hostile. An answer is bytes within a limit until `read`
decodes it. Redirects are never followed, and the server's text goes to the operator's log alone.
"""

import json
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from types import MappingProxyType
from typing import Final, TypeVar

import h11

from common.errors import ApiServerUnavailable
from signer.kube.connection_pool import ConnectionPool, ContentTooLarge, HttpRequest
from signer.kube.cpu_budget import CpuShare
from signer.kube.decode import Json, Source
from signer.kube.endpoint import ANSWER_SECONDS, Endpoint, invalid_request, unreachable
from signer.kube.kubeconfig import Connection

V = TypeVar("V")

MAX_MANAGEMENT_RESPONSE: Final = 16 << 20
"""Bytes of one answer of the management cluster: ten objects of etcd's 1.5 MiB."""
MAX_WORKLOAD_RESPONSE: Final = 4 << 20
"""Bytes of one answer of a workload cluster: one object of etcd's 1.5 MiB, its base64 and escapes.
Reading a longer list takes more pages."""
_NO_QUERY: Final[Mapping[str, str]] = MappingProxyType({})
_MERGE_PATCH: Final = "application/merge-patch+json"
_JSON_PATCH: Final = "application/json-patch+json"


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
        """Log the cluster as `name`; read at most `max_response` bytes of an answer.

        `cpu` limits the CPU time of reading answers; without it there is no limit.
        """
        self.name = name
        self.endpoint = Endpoint(connection, user_agent=user_agent)
        self.max_response = max_response
        self.cpu = cpu
        self._connections = ConnectionPool(
            self.endpoint, cpu, max_content=max_response, answer_seconds=ANSWER_SECONDS
        )

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
            raise self._unexpected_status(request, status, content)
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

    def close(self) -> None:
        """Close the idle connections; later requests fail."""
        self._connections.close()

    def close_idle_connections(self) -> None:
        """Close the idle connections if there was no request for some seconds."""
        self._connections.close_idle()

    def _call(self, request: _Request, accepted: Container[int]) -> Response:
        if self.cpu is not None:
            # The thread may have worked for another owner before.
            self.cpu.begin()
        try:
            status, content = self._exchange(request)
        except PageTooLarge as e:
            raise ApiServerUnavailable("the API server's answer is too large") from e
        if status not in accepted:
            raise self._unexpected_status(request, status, content)
        return Response(status=status, content=content)

    def _exchange(self, request: _Request) -> tuple[int, bytes]:
        """Send a request and read its whole answer."""
        headers = self.endpoint.headers()
        if request.body is not None:
            headers["Content-Type"] = request.media
        http_request = HttpRequest(
            method=request.method,
            target=self.endpoint.target(request.path, request.query),
            headers=headers,
            body=None if request.body is None else json.dumps(request.body).encode(),
        )
        try:
            status, content, _ = self._connections.exchange(http_request)
        except ContentTooLarge as e:
            raise PageTooLarge from e
        except h11.LocalProtocolError as e:
            raise invalid_request() from e
        except (OSError, h11.RemoteProtocolError, ValueError) as e:
            raise unreachable(e) from e
        return status, content

    def _unexpected_status(
        self, request: _Request, status: int, content: bytes
    ) -> ApiServerUnavailable:
        return self.endpoint.unexpected_status(f"{request.method} {request.path}", status, content)
