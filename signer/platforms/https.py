"""HTTPS requests to the API of a platform, within limits of time and size, without redirects."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

import urllib3

from signer.errors import PlatformQueryFailed, PlatformUnavailable
from signer.kube.tls import deadline_socket

_CONNECT_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 4.0
"""For one whole answer. A query has at most two."""
_MAX_ANSWER: Final = 64 << 10
"""Bytes. Two endorsement keys with their certificates have 10 KiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer that is neither an outage nor a redirect."""

    status: int
    content: bytes


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
    context = _context(ca_file)
    try:
        with urllib3.PoolManager(ssl_context=context, retries=False) as pool:
            response = pool.request(
                method,
                url,
                body=body,
                headers=dict(headers),
                timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=ANSWER_SECONDS),
                redirect=False,
                preload_content=False,
            )
            content = response.read(_MAX_ANSWER + 1)
    except (urllib3.exceptions.HTTPError, OSError) as e:
        raise PlatformUnavailable("the platform does not answer", detail=str(e)) from e
    if len(content) > _MAX_ANSWER:
        raise PlatformQueryFailed("the answer of the platform is too large")
    status = response.status
    if status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        detail = f"HTTP status {status}: {content[:300]!r}"
        raise PlatformUnavailable("the platform does not answer queries now", detail=detail)
    return Answer(status=status, content=content)


def _context(ca_file: Path | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as e:
        detail = f"{ca_file}: {e}"
        raise PlatformQueryFailed("the platform's authorities cannot be read", detail=detail) from e
    context.sslsocket_class = deadline_socket(ANSWER_SECONDS)
    return context
