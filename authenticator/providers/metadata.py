"""A platform's metadata service: plain HTTP to an address that never leaves the machine's link.

Nothing is taken from the environment, no redirect is followed, no proxy and no name look-up is
used, and no answer is decompressed. All questions of one provider together have TOTAL_SECONDS,
however slowly the answers drip.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from types import TracebackType
from typing import Final, Self

import requests
from urllib3.exceptions import HTTPError

from authenticator.bounded_http import bounded_session
from authenticator.errors import ProviderAnswerInvalid, ProviderUnavailable
from authenticator.model import Deadline

LINK_LOCAL: Final = "http://169.254.169.254"
"""The metadata service of AWS, Azure, GCE and OpenStack (RFC 3927: never routed)."""

HEADERS: Final = {"Accept-Encoding": "identity", "User-Agent": "kubelet-authenticator-tpm"}
TOTAL_SECONDS: Final = 10.0
CONNECT_SECONDS: Final = 2.0
READ_SECONDS: Final = 5.0
ANSWER_LIMIT: Final = 256 * 1024
"""Bytes of one answer: the largest, OpenStack's meta_data.json, holds 128 items of 255 characters
and the owner's public keys."""

_CHUNK: Final = 16 * 1024
_OK: Final = 200
_NOT_FOUND: Final = 404
_REDIRECTS: Final = range(300, 400)
_NOT_NOW: Final = frozenset({401, 403, 408, 410, 429, *range(500, 600)})
"""Switched off, throttled, or updating: what may be otherwise in a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponse:
    """What the service answered; header names in lower case."""

    text: str
    headers: Mapping[str, str]


class MetadataService:
    """One platform's service, for the questions of one call."""

    def __init__(self, base_url: str, deadline: Deadline, headers: Mapping[str, str]) -> None:
        self._base_url = base_url
        self._deadline = deadline
        self._left_at_end = deadline.remaining() - TOTAL_SECONDS
        self._session = bounded_session(self._remaining)
        self._session.headers.clear()
        self._session.headers.update({**HEADERS, **headers})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._session.close()

    def get(
        self, path: str, *, method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> MetadataResponse:
        """Return the answer. Raises ProviderUnavailable, ProviderAnswerInvalid."""
        found = self.get_optional(path, method=method, headers=headers)
        if found is None:
            raise ProviderAnswerInvalid(f"the metadata service has no {path}")
        return found

    def get_optional(
        self,
        path: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
    ) -> MetadataResponse | None:
        """Return the answer, None when the service says that there is none (404)."""
        try:
            with self._session.request(
                method,
                self._base_url + path,
                headers=headers,
                timeout=(self._at_most(CONNECT_SECONDS), self._at_most(READ_SECONDS)),
                allow_redirects=False,
                stream=True,
            ) as response:
                return self._answer(path, response)
        except (requests.exceptions.RequestException, HTTPError, HTTPException, OSError) as error:
            self._at_most(READ_SECONDS)
            raise ProviderUnavailable(
                f"the metadata service does not answer ({type(error).__name__}):"
                " is this machine on that platform, and is the service switched on?"
            ) from error

    def _answer(self, path: str, response: requests.Response) -> MetadataResponse | None:
        status = response.status_code
        if status == _NOT_FOUND:
            return None
        if status in _REDIRECTS:
            raise ProviderAnswerInvalid("the metadata service redirects, which none does")
        if status in _NOT_NOW:
            raise ProviderUnavailable(f"the metadata service answers with {status} to {path}")
        if status != _OK or "Content-Encoding" in response.headers:
            raise ProviderAnswerInvalid(f"{status} is no answer of the metadata service to {path}")
        headers = {name.lower(): value for name, value in response.headers.items()}
        try:
            return MetadataResponse(text=self._content(response).decode(), headers=headers)
        except UnicodeDecodeError:
            raise ProviderAnswerInvalid(f"the answer to {path} is not text") from None

    def _content(self, response: requests.Response) -> bytes:
        """Read what comes, one read of the socket each, within limit and time."""
        content = b""
        while chunk := response.raw.read1(_CHUNK, decode_content=False):
            content += chunk
            if len(content) > ANSWER_LIMIT:
                raise ProviderAnswerInvalid("the metadata service's answer is too large")
            self._at_most(READ_SECONDS)
        return content

    def _at_most(self, seconds: float) -> float:
        """Return the smaller of `seconds` and the seconds that remain."""
        left = self._remaining()
        if left <= 0:
            raise ProviderUnavailable("the metadata service did not answer in time")
        return min(seconds, left)

    def _remaining(self) -> float:
        """Return the seconds that are left of the call, and of TOTAL_SECONDS."""
        left = self._deadline.remaining()
        return min(left, left - self._left_at_end)
