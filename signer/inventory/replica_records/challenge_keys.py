"""The challenge keys: one Secret in the signer's namespace, shared by its replicas.

A replica creates the Secret when it is absent; after a conflict it reads the one that another
replica created. An old key is rotated. The previous key is valid for some minutes more, so that no
exchange in progress is lost. Source: docs/protocol.md section 3.
"""

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Final

from common.requests.binding import SECRET_SIZE
from signer.errors import ChallengeKeyUnavailable
from signer.kube.secrets import Secret, SecretClient
from signer.seams import ChallengeKeys

_logger = logging.getLogger(__name__)

SECRET_NAME: Final = "node-attestation-challenge-keys"  # noqa: S105 # its name
ROTATION_PERIOD: Final = timedelta(days=30)
_MAX_CLOCK_SKEW: Final = timedelta(minutes=10)
"""A key from further in the future is due: the clock of its replica was wrong. Two replicas that
serve differ by eight minutes at most."""
PREVIOUS_KEY_TTL: Final = timedelta(minutes=20)
"""Validity of the previous key: a challenge's 15 minutes, and replicas that read it late."""
MIN_REFRESH_INTERVAL: Final = timedelta(seconds=5)
"""Least time between two refreshes: any requester can file answers under unknown key IDs."""
_DAMAGED: Final = "the Secret with the challenge keys is damaged: restore or delete it"


class ChallengeKeyStore:
    """The challenge keys as last read. Raises `ChallengeKeyUnavailable` or `ApiServerUnavailable`.

    `cached` does not wait for a refresh on another thread, once the keys have been read.
    """

    def __init__(
        self,
        store: SecretClient,
        namespace: str,
        *,
        now: Callable[[], datetime],
        random: Callable[[int], bytes],
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._now = now
        self._random = random
        self._lock = Lock()
        self._refreshed = datetime.min.replace(tzinfo=UTC)
        self._cached: Secret | None = None

    def cached(self) -> ChallengeKeys:
        """Return the keys that are valid now, as last read.

        Raises `ChallengeKeyUnavailable` while another thread reads them for the first time.
        """
        if self._cached is None and self._lock.acquire(blocking=False):
            try:
                if self._cached is None:
                    self._refresh()
            finally:
                self._lock.release()
        return self._valid_keys()

    def refresh(self) -> ChallengeKeys:
        """Read the Secret, and return the keys that are valid now.

        Returns the keys as last read while another thread refreshes them, and within
        MIN_REFRESH_INTERVAL of the last refresh, even if it failed. A key that is missing may be in
        the next refresh.
        """
        if not self._is_throttled() and self._lock.acquire(blocking=False):
            try:
                self._refresh()
            finally:
                self._lock.release()
        return self._valid_keys()

    def _is_throttled(self) -> bool:
        return timedelta(0) <= self._now() - self._refreshed < MIN_REFRESH_INTERVAL

    def rotate(self) -> None:
        """Read the Secret; rotate an old key, and delete a previous key that is no longer valid."""
        with self._lock:
            self._refresh()
            secret, now = self._secret(), self._now()
            current, since = _current(secret)
            if now - since >= ROTATION_PERIOD or since - now > _MAX_CLOCK_SKEW:
                self._write({**self._new_key(now), "previous": current})
                _logger.info("challenge key rotated")
            elif "previous" in secret.data and now - since >= PREVIOUS_KEY_TTL:
                self._write({k: v for k, v in secret.data.items() if k != "previous"})

    def _refresh(self) -> None:
        self._refreshed = now = self._now()
        secret = self._store.read(self._namespace, SECRET_NAME)
        if secret is None:
            created = self._store.create(self._namespace, SECRET_NAME, self._new_key(now))
            secret = created or self._store.read(self._namespace, SECRET_NAME)
        if secret is None:
            raise ChallengeKeyUnavailable(
                "the Secret with the challenge keys was deleted while it was read"
            )
        _current(secret)
        self._cached = secret

    def _write(self, data: Mapping[str, bytes]) -> None:
        replaced = self._store.replace(self._secret(), data)
        if replaced is None:
            self._refresh()
        else:
            self._cached = replaced

    def _new_key(self, now: datetime) -> dict[str, bytes]:
        since = now.astimezone(UTC).isoformat(timespec="seconds")
        return {"current": self._random(SECRET_SIZE), "since": since.encode()}

    def _secret(self) -> Secret:
        if self._cached is None:
            raise ChallengeKeyUnavailable("the Secret with the challenge keys has not been read")
        return self._cached

    def _valid_keys(self) -> ChallengeKeys:
        return keys_from_secret(self._secret(), self._now())


def keys_from_secret(secret: Secret, now: datetime) -> ChallengeKeys:
    """Return the keys of the Secret that are valid at this time.

    Raises `ChallengeKeyUnavailable`.
    """
    current, since = _current(secret)
    previous = secret.data.get("previous")
    is_valid = previous is not None and now - since < PREVIOUS_KEY_TTL
    return ChallengeKeys(current=current, previous=previous if is_valid else None)


def _current(secret: Secret) -> tuple[bytes, datetime]:
    """Return the current key and the time of its creation.

    A damaged Secret is never replaced: it shows that something else writes it.
    """
    try:
        since = datetime.fromisoformat(secret.data["since"].decode("ascii"))
        current = secret.data["current"]
        previous = secret.data.get("previous", current)
    except (KeyError, ValueError) as error:
        raise ChallengeKeyUnavailable(_DAMAGED) from error
    if len(current) != SECRET_SIZE or len(previous) != SECRET_SIZE or since.tzinfo is None:
        raise ChallengeKeyUnavailable(_DAMAGED)
    return current, since
