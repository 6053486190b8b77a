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
from signer.kube.connection_pool import ContentTooLarge, HttpRequest, RequestConnection

_HTTPS_PORT: Final = 443
_CONNECT_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 4.0
"""For one whole answer. A query has at most two."""
_MAX_ANSWER: Final = 64 << 10
"""Bytes. Two endorsement keys with their certificates have 10 KiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer that is no outage. A redirect is an answer that nothing follows."""

    status: int
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    host: str
    port: int
    host_header: str
    context: ssl.SSLContext
    server_name: str | None = None


def call(
    method: str, url: str, headers: Mapping[str, str], body: bytes | None, ca_file: Path | None
) -> Answer:
    """Send one request and read the whole answer.

    Trusts the authorities in `ca_file`, without it those of the system.

    Raises:
        PlatformUnavailable: no answer in time, too many requests (429), or an outage (5xx).
        PlatformQueryFailed: the URL or the file cannot be used, or the answer is too large.

    """
    if not url.startswith("https://"):
        raise PlatformQueryFailed("the API of the platform must have an https URL", detail=url)
    server, target = _parse_url(url, _context(ca_file))
    request = HttpRequest(method=method, target=target, headers=dict(headers), body=body)
    try:
        with closing(RequestConnection(server, connect_seconds=_CONNECT_SECONDS)) as connection:
            status, content = connection.exchange(
                request, max_content=_MAX_ANSWER, seconds=ANSWER_SECONDS
            )
    except ContentTooLarge as e:
        raise PlatformQueryFailed("the answer of the platform is too large") from e
    except h11.LocalProtocolError as e:
        # Its text may have a credential.
        raise PlatformQueryFailed("a header of the query is invalid") from e
    except (OSError, h11.RemoteProtocolError) as e:
        raise PlatformUnavailable("the platform does not answer", detail=str(e)) from e
    if status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        detail = f"HTTP status {status}: {content[:300]!r}"
        raise PlatformUnavailable("the platform does not answer queries now", detail=detail)
    return Answer(status=status, content=content)


def _parse_url(url: str, context: ssl.SSLContext) -> tuple[_Server, str]:
    """Return the server, and the path with the query."""
    try:
        parts = urlsplit(url)
        server = _Server(
            host=parts.hostname or "",
            port=parts.port or _HTTPS_PORT,
            host_header=parts.netloc,
            context=context,
        )
    except ValueError as e:
        raise PlatformQueryFailed("the API of the platform must have a URL", detail=url) from e
    return server, (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _context(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as e:
        detail = f"{ca_file}: {e}"
        raise PlatformQueryFailed("the platform's authorities cannot be read", detail=detail) from e
