"""Sessions with vCenter Server, over the JSON form of its Web Services API.

Source: "Virtual Infrastructure JSON API" 8.0.1.0 and "vSphere Web Services SDK Programming Guide",
chapter "Client Applications Using the JSON Protocol". vCenter Server has it since 8.0 Update 1.
"""

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

from signer.errors import PlatformQueryFailed, PlatformUnavailable
from signer.kube.transport.http_messages import HttpAnswer
from signer.platforms.credentials import read_credentials_file, unusable
from signer.platforms.https import (
    ANSWER_SECONDS,
    describe,
    invalid_answer,
    overloaded,
    raise_if_outage,
    refused,
    send,
)

QUERY_SECONDS: Final = 10.0
"""For all requests of one query, with the wait for a login on another thread."""
REFUSED_LOGIN_SECONDS: Final = 300.0
"""After a refused login, the same credentials are not used for this time. By default vCenter locks
an account after five wrong passwords in three minutes, and its other users with it."""
_MAX_ANSWER: Final = 1 << 20
"""Bytes. A VM with 60 disks has about 100 KiB of devices."""
_RELEASE: Final = "8.0.1.0"
_TOKEN_HEADER: Final = "vmware-api-session-id"  # noqa: S105 - the name, not the token
_TOKEN: Final = re.compile(rb"[\x21-\x7e]{8,512}")
_SERVER: Final = re.compile(r"(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?")
_FIELDS: Final = frozenset({"server", "username", "password"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Account:
    """The content of a credentials file."""

    server: str
    """HOST or HOST:PORT."""
    username: str
    password: str = field(repr=False)
    ca_file: Path | None


class _Fault(Exception):
    """An error that the API names."""

    def __init__(self, type_name: str, answer: HttpAnswer) -> None:
        self.type_name = type_name
        super().__init__(f"{type_name}: HTTP status {answer.status}, {answer.content[:300]!r}")


class VcenterSession:
    """The session of one account, which several threads share."""

    def __init__(self, account: _Account, monotonic: Callable[[], float]) -> None:
        self._account = account
        self._monotonic = monotonic
        self._lock = Lock()
        self._token: str | None = None
        self._refused_at: float | None = None

    def invoke(self, method: str, parameters: object, until: float) -> Any:  # noqa: ANN401 - JSON
        """Call a method, `type/ID/name`, and return its result; `until` is on the monotonic clock.

        Logs in if there is no session, or if vCenter has ended it.

        Raises:
            PlatformUnavailable: no answer until then, too many requests, or an outage.
            PlatformQueryFailed: vCenter refuses the login or the call, or the answer is invalid.

        """
        token = self._log_in(None, until)
        try:
            try:
                return self._call(method, parameters, token, until)
            except _Fault as error:
                if error.type_name != "NotAuthenticated":
                    raise
            token = self._log_in(token, until)
            return self._call(method, parameters, token, until)
        except _Fault as error:
            raise refused(str(error)) from error

    def log_out(self) -> None:
        """End the session, if there is one. Without success, vCenter ends it when it is idle."""
        with self._lock:
            token, self._token = self._token, None
        if token is not None:
            until = self._monotonic() + ANSWER_SECONDS
            try:
                self._call("SessionManager/SessionManager/Logout", {}, token, until)
            except (_Fault, PlatformUnavailable, PlatformQueryFailed):
                return

    def _log_in(self, ended: str | None, until: float) -> str:
        """Return the token of a session other than `ended`; log in if there is none."""
        if not self._lock.acquire(timeout=max(0.0, until - self._monotonic())):
            raise PlatformUnavailable("the platform does not answer a login")
        try:
            if self._token is None or self._token == ended:
                self._token = None
                self._token = self._new_token(until)
            return self._token
        finally:
            self._lock.release()

    def _new_token(self, until: float) -> str:
        now = self._monotonic()
        if self._refused_at is not None and now - self._refused_at < REFUSED_LOGIN_SECONDS:
            minutes = int(REFUSED_LOGIN_SECONDS) // 60
            detail = f"vCenter refused the login; the next one follows {minutes} minutes later"
            raise unusable(f"{detail}, or when the file changes")
        parameters = {"userName": self._account.username, "password": self._account.password}
        try:
            answer = self._send("SessionManager/SessionManager/Login", parameters, None, until)
        except _Fault as error:
            self._refused_at = now
            raise unusable(str(error)) from error
        token = answer.headers.get(_TOKEN_HEADER.encode(), b"")
        if answer.status != HTTPStatus.OK or not _TOKEN.fullmatch(token):
            detail = f"HTTP status {answer.status}, no {_TOKEN_HEADER}"
            raise PlatformQueryFailed("the platform's answer to a login is invalid", detail=detail)
        return token.decode()

    def _call(self, method: str, parameters: object, token: str, until: float) -> Any:  # noqa: ANN401 - JSON
        answer = self._send(method, parameters, token, until)
        if answer.status == HTTPStatus.NO_CONTENT:
            return None
        if answer.status != HTTPStatus.OK:
            raise refused(describe(answer))
        try:
            return json.loads(answer.content)
        except (ValueError, RecursionError) as error:
            raise invalid_answer(repr(error)) from error

    def _send(self, method: str, parameters: object, token: str | None, until: float) -> HttpAnswer:
        left = until - self._monotonic()
        if left <= 0:
            raise PlatformUnavailable("the platform does not answer in time")
        answer = send(
            "POST",
            f"https://{self._account.server}/sdk/vim25/{_RELEASE}/{method}",
            {"content-type": "application/json"} | ({_TOKEN_HEADER: token} if token else {}),
            json.dumps(parameters).encode(),
            self._account.ca_file,
            max_content=_MAX_ANSWER,
            seconds=min(ANSWER_SECONDS, left),
        )
        _raise_for_fault(answer)
        return answer


class _KnownSession(NamedTuple):
    content: bytes
    session: VcenterSession


class VcenterSessions:
    """The sessions of all credentials files: one for the present content of each file."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._sessions: dict[Path, _KnownSession] = {}

    def of(self, path: Path) -> VcenterSession:
        """Read the file, and return its session. End the session of the content before."""
        content = read_credentials_file(path)
        with self._lock:
            known = self._sessions.get(path)
            if known is not None and known.content == content:
                return known.session
            session = VcenterSession(_read_account(path, content), time.monotonic)
            self._sessions[path] = _KnownSession(content, session)
        if known is not None:
            known.session.log_out()
        return session


def _read_account(path: Path, content: bytes) -> _Account:
    fields = _read_fields(content)
    if fields is None:
        # No error of the parser is quoted: it may have a part of the password.
        problem = "must be JSON with the texts server, username, password and optionally caFile"
        raise unusable(f"{path}: {problem}")
    if not _SERVER.fullmatch(fields["server"]):
        raise unusable(f"{path}: server must be HOST or HOST:PORT")
    return _Account(
        server=fields["server"],
        username=fields["username"],
        password=fields["password"],
        ca_file=Path(fields["caFile"]) if "caFile" in fields else None,
    )


def _read_fields(content: bytes) -> Mapping[str, str] | None:
    """Return the fields of a credentials file, `None` if it is invalid."""
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or not _FIELDS <= fields.keys() <= _FIELDS | {"caFile"}:
        return None
    return fields if all(isinstance(v, str) and v for v in fields.values()) else None


def _raise_for_fault(answer: HttpAnswer) -> None:
    """Raise `_Fault` for an error that the API names, and `PlatformUnavailable` for an outage.

    Each fault has the status 500: also a wrong password, and an ended session.
    """
    if answer.status == HTTPStatus.UNAUTHORIZED:
        raise _Fault("NotAuthenticated", answer)
    if answer.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        try:
            type_name = json.loads(answer.content)["_typeName"]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise overloaded(describe(answer)) from None
        raise _Fault(str(type_name), answer)
    raise_if_outage(answer)
