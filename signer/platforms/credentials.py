"""Credentials for the APIs of platforms: those that end, and tokens that another issuer signed.

The token is that of a Kubernetes service account, in a file that the kubelet renews. The issuer can
be any cluster that the platform knows as an identity provider.
"""

from collections.abc import Callable, Hashable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

from signer.errors import PlatformQueryFailed

RENEWED_BEFORE: Final = timedelta(minutes=5)
"""How long before their end credentials are replaced. A platform gives at least 15 minutes."""
_MAX_TOKEN: Final = 20_000
"""The limit of AWS."""
_MAX_KEPT: Final = 256
"""Credentials that are kept. All are dropped when there are more."""

_Identity = TypeVar("_Identity", bound=Hashable)
_Credentials = TypeVar("_Credentials")


class TemporaryCredentials(NamedTuple, Generic[_Credentials]):
    """Credentials, and when they end."""

    credentials: _Credentials
    expires_at: datetime


class KeptCredentials(Generic[_Identity, _Credentials]):
    """The credentials of identities, kept until shortly before their end; any thread may call it.

    Threads that find no credentials at the same time each get some: no thread waits for another.
    """

    def __init__(self) -> None:
        self._kept: dict[_Identity, TemporaryCredentials[_Credentials]] = {}

    def credentials(
        self,
        identity: _Identity,
        now: datetime,
        log_in: Callable[[], TemporaryCredentials[_Credentials]],
    ) -> _Credentials:
        """Return credentials of an identity; call `log_in` if none are kept."""
        session = self._kept.get(identity)
        if session is None or session.expires_at - now < RENEWED_BEFORE:
            session = log_in()
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            self._kept[identity] = session
        return session.credentials


def read_credentials_file(path: Path) -> bytes:
    """Read a file for each query, so that rotated credentials are used at once."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise unusable(f"{path}: {error.strerror}") from error


def read_token(path: Path) -> str:
    """Read the token for each call, because the kubelet renews it."""
    token = read_credentials_file(path).strip()
    if not token or not token.isascii() or len(token) > _MAX_TOKEN:
        raise unusable(f"{path}: must be a token of at most {_MAX_TOKEN} characters")
    return token.decode()


def unusable(detail: str) -> PlatformQueryFailed:
    """Return the error for credentials that the platform refuses, or that cannot be read."""
    return PlatformQueryFailed("the credentials for the platform cannot be used", detail=detail)
