"""The metadata service of a platform: plain HTTP to a link-local address.

The client uses nothing from the environment, no redirect, no proxy and no name look-up, and
decompresses nothing. All requests of one provider together take TOTAL_SECONDS at most.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Final, Self

from urllib3 import BaseHTTPResponse
from urllib3.exceptions import HTTPError

from authenticator.bounded_http import DEFAULT_HEADERS, bounded_pool, send_once
from authenticator.errors import ProviderAnswerInvalid, ProviderUnavailable
from authenticator.model import Deadline

LINK_LOCAL: Final = "http://169.254.169.254"
"""The metadata service of AWS, Azure, GCE and OpenStack (RFC 3927: never routed)."""

TOTAL_SECONDS: Final = 10.0
CONNECT_SECONDS: Final = 2.0
READ_SECONDS: Final = 5.0
MAX_RESPONSE_BYTES: Final = 256 * 1024
"""Bytes of one response. The largest, meta_data.json of OpenStack, holds 128 items of 255
characters and the public keys of the owner."""

_logger = logging.getLogger(__name__)
_CHUNK: Final = 16 * 1024
_OK: Final = 200
_NOT_FOUND: Final = 404
_REDIRECTS: Final = range(300, 400)
_UNAVAILABLE: Final = frozenset({401, 403, 408, 410, 429, *range(500, 600)})
"""Disabled, throttled or updating: another request may succeed later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponse:
    """A response; header names are in lower case."""

    text: str
    headers: Mapping[str, str]


class MetadataService:
    """A client of one service, for the requests of one call."""

    def __init__(self, base_url: str, deadline: Deadline, headers: Mapping[str, str]) -> None:
        self._base_url = base_url
        self._deadline = deadline
        self._left_at_end = deadline.remaining() - TOTAL_SECONDS
        self._pool = bounded_pool(self._remaining)
        self._headers = {**DEFAULT_HEADERS, **headers}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.clear()

    def get(self, path: str, *, headers: Mapping[str, str] | None = None) -> MetadataResponse:
        """Return the response. Raises `ProviderUnavailable`, `ProviderAnswerInvalid`."""
        response = self.get_optional(path, headers=headers)
        if response is None:
            raise ProviderAnswerInvalid(f"the metadata service has no {path}")
        return response

    def get_optional(
        self, path: str, *, method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> MetadataResponse | None:
        """Return the response, None if its status is 404."""
        try:
            with send_once(
                self._pool,
                method,
                self._base_url + path,
                headers={**self._headers, **(headers or {})},
                timeouts=(self._clamp(CONNECT_SECONDS), self._clamp(READ_SECONDS)),
            ) as response:
                return self._decode(path, response)
        except (HTTPError, HTTPException, OSError) as error:
            self._clamp(READ_SECONDS)
            raise ProviderUnavailable(
                f"the metadata service does not answer ({type(error).__name__}):"
                " is this machine on that platform, and is the service enabled?"
            ) from error

    def _decode(self, path: str, response: BaseHTTPResponse) -> MetadataResponse | None:
        status = response.status
        _logger.debug("metadata service: %s: %d", path, status)
        if status == _NOT_FOUND:
            return None
        if status in _REDIRECTS:
            raise ProviderAnswerInvalid("the metadata service redirects, which no platform does")
        if status in _UNAVAILABLE:
            raise ProviderUnavailable(f"the metadata service answers {path} with {status}")
        if status != _OK or "Content-Encoding" in response.headers:
            raise ProviderAnswerInvalid(
                f"no metadata service answers {path} with {status}, or compressed"
            )
        headers = {name.lower(): value for name, value in response.headers.items()}
        try:
            return MetadataResponse(text=self._content(response).decode(), headers=headers)
        except UnicodeDecodeError:
            raise ProviderAnswerInvalid(f"the response for {path} is not UTF-8 text") from None

    def _content(self, response: BaseHTTPResponse) -> bytes:
        """Return the body, within size limit and time."""
        content = b""
        while chunk := response.read1(_CHUNK, decode_content=False):
            content += chunk
            if len(content) > MAX_RESPONSE_BYTES:
                raise ProviderAnswerInvalid("the response of the metadata service is too large")
            self._clamp(READ_SECONDS)
        return content

    def _clamp(self, seconds: float) -> float:
        """Return the smaller of `seconds` and the seconds that remain."""
        left = self._remaining()
        if left <= 0:
            raise ProviderUnavailable("the metadata service did not answer in time")
        return min(seconds, left)

    def _remaining(self) -> float:
        """Return the seconds that are left of the call, and of TOTAL_SECONDS."""
        left = self._deadline.remaining()
        return min(left, left - self._left_at_end)
