"""HTTPS requests to the API of a platform, within limits of time and size, without redirects."""

import ssl
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import h11

from signer.errors import PlatformQueryFailed, PlatformUnavailable
from signer.kube.transport.connection_pool import ConnectionPool
from signer.kube.transport.endpoint import CONNECT_SECONDS
from signer.kube.transport.http_connection import ContentTooLarge
from signer.kube.transport.http_messages import HttpAnswer, HttpRequest

ANSWER_SECONDS: Final = 3.0
"""For one whole answer. A query of AWS or Google Cloud has at most three."""
UNEXPECTED_JSON: Final = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""What reading JSON of another form raises. Values may have any type and any depth."""
_HTTPS_PORT: Final = 443
_MAX_ANSWER: Final = 64 << 10
"""Bytes. Two endorsement keys with their certificates have 10 KiB."""


@dataclass(slots=True, kw_only=True)
class _Server:
    host: str
    port: int
    host_header: str
    context: ssl.SSLContext
    server_name: str | None = None


def call(
    method: str, url: str, headers: Mapping[str, str], body: bytes | None, ca_file: Path | None
) -> HttpAnswer:
    """Send one request and return the answer.

    Raises:
        PlatformUnavailable: no answer in time, too many requests (429), or an outage (5xx).
        PlatformQueryFailed: the URL or the file cannot be used, or the answer is too large.

    """
    answer = send(method, url, headers, body, ca_file)
    raise_if_outage(answer)
    return answer


def raise_if_outage(answer: HttpAnswer) -> None:
    """Raise `PlatformUnavailable` for too many requests (429) and an outage (5xx)."""
    if (
        answer.status == HTTPStatus.TOO_MANY_REQUESTS
        or answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    ):
        raise overloaded(describe(answer))


def describe(answer: HttpAnswer) -> str:
    """Describe an answer that has no secret, for the log."""
    return f"HTTP status {answer.status}: {answer.content[:300]!r}"


def overloaded(detail: str) -> PlatformUnavailable:
    """Return the error for an answer that says that the platform cannot answer now."""
    return PlatformUnavailable("the platform does not answer queries now", detail=detail)


def refused(detail: str) -> PlatformQueryFailed:
    """Return the error for an answer that refuses the query."""
    return PlatformQueryFailed("the platform refuses the query", detail=detail)


def invalid_answer(detail: str) -> PlatformQueryFailed:
    """Return the error for an answer that has not the form of the API."""
    return PlatformQueryFailed("the answer of the platform cannot be read", detail=detail[:500])


def send(  # noqa: PLR0913 - the parts of a request, and its limits
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes | None,
    ca_file: Path | None,
    *,
    max_content: int = _MAX_ANSWER,
    seconds: float = ANSWER_SECONDS,
) -> HttpAnswer:
    """Send one request and read the whole answer, whatever its status is.

    Trusts the authorities in `ca_file`, without it those of the system. Raises what `call` raises,
    except for an answer that arrived.
    """
    address = urlsplit(url)
    if address.scheme != "https" or not address.hostname:
        raise PlatformQueryFailed("the API of the platform must have an https URL", detail=url)
    server = _Server(
        host=address.hostname,
        port=address.port or _HTTPS_PORT,
        host_header=address.netloc,
        context=_context(ca_file),
    )
    target = (address.path or "/") + (f"?{address.query}" if address.query else "")
    request = HttpRequest(method=method, target=target, headers=headers, body=body)
    limit = CONNECT_SECONDS + seconds
    pool = ConnectionPool(server, None, None, answer_seconds=limit)
    try:
        with closing(pool):
            return pool.exchange(request, max_content)
    except h11.LocalProtocolError as error:
        # Its text may have the credential.
        raise PlatformQueryFailed("a header of the query is invalid") from error
    except (h11.RemoteProtocolError, OSError) as error:
        raise PlatformUnavailable("the platform does not answer", detail=str(error)) from error
    except ContentTooLarge as error:
        raise PlatformQueryFailed("the answer of the platform is too large") from error


def _context(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        detail = f"{ca_file}: {error}"
        raise PlatformQueryFailed(
            "the platform's authorities cannot be read", detail=detail
        ) from error
