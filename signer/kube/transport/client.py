"""Requests to one API server, within limits of time and size, and without redirects.

A workload cluster's API server may be hostile. An answer is bytes within a limit until `read`
decodes it. Redirects are never followed, and the server's text goes to the operator's log alone.
"""

import json
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from types import MappingProxyType
from typing import Final, TypeVar

import h11

from common.errors import ApiServerUnavailable
from signer.fairness.cpu_budget import CpuShare
from signer.fairness.memory_budget import MemoryShare
from signer.kinds.decode import Json, Source
from signer.kube.transport.connection_pool import ConnectionPool
from signer.kube.transport.endpoint import ANSWER_SECONDS, Endpoint, invalid_request, unreachable
from signer.kube.transport.http_connection import ContentTooLarge
from signer.kube.transport.http_messages import HttpRequest
from signer.kube.transport.kubeconfig import Connection
from signer.kube.transport.tls import ContentTooSlow

V = TypeVar("V")

MAX_MANAGEMENT_RESPONSE: Final = 16 << 20
"""Bytes of one answer of the management cluster: ten objects of etcd's 1.5 MiB."""
MAX_WORKLOAD_RESPONSE: Final = (9 << 20) + (64 << 10)
"""Bytes of one answer of a workload cluster: one object of etcd's 1.5 MiB. That is
protobuf: an escape in JSON has six bytes."""
MAX_WORKLOAD_PAGE: Final = 4 << 20
"""Bytes of one page of several objects. Reading a longer list takes more pages."""
MAY_BE_ABSENT: Final = frozenset({HTTPStatus.OK, HTTPStatus.NOT_FOUND})
"""Statuses for an object that may not exist."""
MAY_EXIST: Final = frozenset({HTTPStatus.CREATED, HTTPStatus.CONFLICT})
"""Statuses of the creation of an object that may exist already."""
MAY_HAVE_CHANGED: Final = MAY_BE_ABSENT | {HTTPStatus.CONFLICT}
"""Statuses of a write with preconditions: another one may have changed or deleted the object."""
_NO_QUERY: Final[Mapping[str, str]] = MappingProxyType({})
_MERGE_PATCH: Final = "application/merge-patch+json"
_JSON_PATCH: Final = "application/json-patch+json"
_APPLY_PATCH: Final = "application/apply-patch+yaml"


DateObserver = Callable[[bytes, datetime, datetime], None]
"""Called with the header `Date` of an answer, and with the times of the request and the answer."""


class Expired(Exception):
    """The resource version is too old to continue from (410): list again."""


class PageTooLarge(Exception):
    """A page of a list exceeds the limit of size, or of time: ask for a smaller one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """An answer with a status that the caller expects."""

    status: int
    content: bytes

    @property
    def succeeded(self) -> bool:
        """Return whether the API server did what the request asks for."""
        return self.status < HTTPStatus.BAD_REQUEST

    def read(self, read: Callable[[Source], V]) -> V:
        """Return the value that a reader makes of the content.

        Raises `ApiServerUnavailable` when the reader cannot read it.
        """
        try:
            return read(self.content)
        except ValueError as error:
            message = "the API server's answer cannot be read"
            raise ApiServerUnavailable(message, detail=str(error)[:500]) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request; `body` is what is sent as JSON."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Json | Sequence[Json] | None = None
    media: str = "application/json"


def asks_for_several(query: Mapping[str, str]) -> bool:
    """Return whether the answer is a page of several objects, so that a smaller one can be read."""
    return query.get("limit", "1") != "1"


def is_outage(error: ApiServerUnavailable) -> bool:
    """Return whether the API server may be away: no answer came, or one of status 5xx."""
    return error.status == 0 or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR


class ApiClient:
    """One API server, for any number of threads."""

    def __init__(  # noqa: PLR0913 - the last six are options
        self,
        name: str,
        connection: Connection,
        *,
        user_agent: str,
        max_response: int = MAX_MANAGEMENT_RESPONSE,
        max_page: int | None = None,
        cpu: CpuShare | None = None,
        reading: MemoryShare | None = None,
        observe_date: DateObserver | None = None,
        answer_seconds: float | None = None,
    ) -> None:
        """Log the cluster as `name`; read at most `max_response` bytes of an answer.

        A page of several objects may have `max_page` bytes. What is being read counts in `reading`.
        A call may take `answer_seconds`, by default `ANSWER_SECONDS`. `cpu` limits the CPU time
        of reading answers; without it there is no limit. `observe_date` is called with the time
        that the API server wrote into each answer.
        """
        self.name = name
        self.endpoint = Endpoint(connection, user_agent=user_agent)
        self._max_response = max_response
        self._max_page = max_page or max_response
        self.cpu = cpu
        self._observe_date = observe_date
        self.succeeded_at = time.monotonic()
        """When a request last succeeded, on the monotonic clock; at first when this was made."""
        self.connections = ConnectionPool(
            self.endpoint,
            cpu,
            reading,
            answer_seconds=answer_seconds or ANSWER_SECONDS,
        )

    def get(
        self,
        path: str,
        query: Mapping[str, str] = _NO_QUERY,
        *,
        accepted: Container[int] = (200,),
    ) -> Response:
        """Read one object."""
        return self._call(Request(method="GET", path=path, query=query), accepted)

    def find(self, path: str) -> Response | None:
        """Read one object, `None` if it does not exist."""
        response = self.get(path, accepted=MAY_BE_ABSENT)
        return response if response.succeeded else None

    def max_answer(self, query: Mapping[str, str]) -> int:
        """Return how many bytes an answer may have: one object, or a page of several."""
        return self._max_page if asks_for_several(query) else self._max_response

    def get_page(self, path: str, query: Mapping[str, str]) -> Response:
        """Read one page of a list.

        Raises `Expired` for 410, `PageTooLarge`, and `ApiServerUnavailable` for any other failure.
        """
        request = Request(method="GET", path=path, query=query)
        status, content = self._exchange(request)
        if status == HTTPStatus.GONE:
            raise Expired
        if status != HTTPStatus.OK:
            raise self._unexpected_status(request, status, content)
        self.succeeded_at = time.monotonic()
        return Response(status=status, content=content)

    def create(self, path: str, body: Json, *, accepted: Container[int] = (201,)) -> Response:
        """Create an object."""
        return self._call(Request(method="POST", path=path, body=body), accepted)

    def replace(self, path: str, body: Json, *, accepted: Container[int] = (200,)) -> Response:
        """Write a whole object, under the resource version in it."""
        return self._call(Request(method="PUT", path=path, body=body), accepted)

    def merge_patch(self, path: str, body: Json, *, accepted: Container[int] = (200,)) -> Response:
        """Merge into an object, under the resource version in `body`; lists are replaced."""
        request = Request(method="PATCH", path=path, body=body, media=_MERGE_PATCH)
        return self._call(request, accepted)

    def json_patch(
        self, path: str, operations: Sequence[Json], *, accepted: Container[int] = (200,)
    ) -> Response:
        """Change single places of an object (JSON patch, RFC 6902)."""
        request = Request(method="PATCH", path=path, body=operations, media=_JSON_PATCH)
        return self._call(request, accepted)

    def apply(
        self, path: str, body: Json, *, manager: str, accepted: Container[int] = (200,)
    ) -> Response:
        """Own the fields in `body` (server-side apply), also those of another manager."""
        query = {"fieldManager": manager, "force": "true"}
        request = Request(method="PATCH", path=path, query=query, body=body, media=_APPLY_PATCH)
        return self._call(request, accepted)

    def delete(
        self, path: str, preconditions: Mapping[str, str], *, accepted: Container[int] = (200,)
    ) -> Response:
        """Delete an object if it meets the preconditions."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        return self._call(Request(method="DELETE", path=path, body=options), accepted)

    def close(self) -> None:
        """Close the idle connections; later requests fail."""
        self.connections.close()

    def close_idle_connections(self) -> None:
        """Close the idle connections if there was no request for some seconds."""
        self.connections.close_idle()

    def _call(self, request: Request, accepted: Container[int]) -> Response:
        if self.cpu is not None:
            # The thread may have worked for another tenant before.
            self.cpu.begin()
        try:
            status, content = self._exchange(request)
        except PageTooLarge as error:
            raise ApiServerUnavailable("the API server's answer is too large") from error
        if status not in accepted:
            raise self._unexpected_status(request, status, content)
        self.succeeded_at = time.monotonic()
        return Response(status=status, content=content)

    def _exchange(self, request: Request) -> tuple[int, bytes]:
        """Send a request and read its whole answer. Raises `PageTooLarge`."""
        headers = self.endpoint.headers()
        if request.body is not None:
            headers["Content-Type"] = request.media
        http_request = HttpRequest(
            method=request.method,
            target=self.endpoint.target(request.path, request.query),
            headers=headers,
            body=None if request.body is None else json.dumps(request.body).encode(),
        )
        sent = datetime.now(UTC)
        try:
            max_content = self.max_answer(request.query)
            status, content, received = self.connections.exchange(http_request, max_content)
        except ContentTooLarge as error:
            raise PageTooLarge from error
        except h11.LocalProtocolError as error:
            raise invalid_request() from error
        except (OSError, h11.RemoteProtocolError, ValueError) as error:
            if isinstance(error, ContentTooSlow) and asks_for_several(request.query):
                raise PageTooLarge from error
            raise unreachable(error) from error
        if self._observe_date is not None:
            self._observe_date(received.get(b"date", b""), sent, datetime.now(UTC))
        return status, content

    def _unexpected_status(
        self, request: Request, status: int, content: bytes
    ) -> ApiServerUnavailable:
        return self.endpoint.unexpected_status(f"{request.method} {request.path}", status, content)
