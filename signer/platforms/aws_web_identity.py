"""Credentials of a role of AWS, for a token that another issuer has signed.

The token is that of a Kubernetes service account, in a file that the kubelet renews. The issuer can
be any cluster that AWS knows as an identity provider, not only EKS.

Source: AWS STS API Reference, API_AssumeRoleWithWebIdentity, version 2011-06-15. Built from the
reference, and never run against the real service.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlencode

from signer.errors import PlatformQueryFailed
from signer.platforms.aws_answers import element, error_of_code
from signer.platforms.aws_signature import AwsCredentials
from signer.platforms.https import call

RENEWED_BEFORE: Final = timedelta(minutes=5)
"""How long before their end credentials are replaced. A role gives at least 15 minutes."""
_MAX_TOKEN: Final = 20_000
"""The limit of the API."""
_MAX_ROLES: Final = 256
"""Credentials that are kept. All are dropped when there are more."""
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?Z")
_SESSION_NAME: Final = "node-attestation-signer"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebIdentity:
    """A role, and the file with the token of those who may assume it."""

    role_arn: str
    token_file: Path


class _Session(NamedTuple):
    credentials: AwsCredentials
    expires_at: datetime


class WebIdentitySessions:
    """The credentials of roles, kept until shortly before their end; any thread may call it.

    Threads that find no credentials at the same time each get some: no thread waits for another.
    """

    def __init__(self) -> None:
        self._sessions: dict[WebIdentity, _Session] = {}

    def credentials(
        self, identity: WebIdentity, *, host: str, ca_bundle: Path | None, now: datetime
    ) -> AwsCredentials:
        """Return credentials of a role; get them from the STS at `host` if none are kept."""
        session = self._sessions.get(identity)
        if session is None or session.expires_at - now < RENEWED_BEFORE:
            session = _assume_role(identity, host, ca_bundle)
            if len(self._sessions) >= _MAX_ROLES:
                self._sessions.clear()
            self._sessions[identity] = session
        return session.credentials


def _assume_role(identity: WebIdentity, host: str, ca_bundle: Path | None) -> _Session:
    parameters = {
        "Action": "AssumeRoleWithWebIdentity",
        "Version": "2011-06-15",
        "RoleArn": identity.role_arn,
        "RoleSessionName": _SESSION_NAME,
        "WebIdentityToken": _read_token(identity.token_file),
    }
    headers = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
    answer = call("POST", f"https://{host}/", headers, urlencode(parameters).encode(), ca_bundle)
    if answer.status != HTTPStatus.OK:
        raise error_of_code(answer.status, element(answer, "Code"))
    expiration = element(answer, "Expiration")
    if not _TIME.fullmatch(expiration):
        raise _invalid_expiration()
    try:
        expires_at = datetime.fromisoformat(expiration).astimezone(UTC)
    except ValueError as error:
        raise _invalid_expiration() from error
    credentials = AwsCredentials(
        access_key_id=element(answer, "AccessKeyId"),
        secret_access_key=element(answer, "SecretAccessKey"),
        session_token=element(answer, "SessionToken"),
    )
    return _Session(credentials, expires_at)


def _invalid_expiration() -> PlatformQueryFailed:
    message = "the answer of the platform cannot be read"
    return PlatformQueryFailed(message, detail="Expiration is no time")


def _read_token(path: Path) -> str:
    """Read the token for each call, because the kubelet renews it."""
    try:
        with path.open(encoding="ascii") as file:
            token = file.read(_MAX_TOKEN + 1).strip()
    except OSError as error:
        raise _unusable(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError:
        token = ""
    if not token or len(token) > _MAX_TOKEN:
        raise _unusable(f"{path}: must be a token of at most {_MAX_TOKEN} characters")
    return token


def _unusable(detail: str) -> PlatformQueryFailed:
    return PlatformQueryFailed("the credentials for the platform cannot be used", detail=detail)
