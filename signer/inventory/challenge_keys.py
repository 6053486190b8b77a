"""The challenges' master keys: one Secret of the signer's own, shared by its replicas.

Made when absent (create; on conflict read what the other made), replaced when it has grown old;
the one before counts for a while, so that no exchange in flight is lost. Source: docs/protocol.md
section 3.
"""

import binascii
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Final, Protocol

from common.binding import SECRET_SIZE
from signer.errors import ChallengeKeyUnavailable
from signer.kube.secrets import Secret
from signer.model import ChallengeKeys

_logger = logging.getLogger(__name__)

SECRET_NAME: Final = "node-attestation-challenge-keys"  # noqa: S105 # its name
ROTATION_PERIOD: Final = timedelta(days=30)
PREVIOUS_KEY_TTL: Final = timedelta(minutes=20)
"""How long the previous key counts: a challenge's 15 minutes, and replicas that read it late."""
MIN_REFRESH_INTERVAL: Final = timedelta(seconds=5)
"""Between two live readings: anybody can file answers and annotations under keys unknown here."""


class SecretStore(Protocol):
    """The part of the management cluster's API that this needs."""

    def read(self, namespace: str, name: str) -> Secret | None:
        """Return the Secret, `None` when there is none."""

    def create(self, namespace: str, name: str, data: Mapping[str, bytes]) -> Secret | None:
        """Create the Secret; `None` when somebody else has."""

    def replace(self, current: Secret, data: Mapping[str, bytes]) -> Secret | None:
        """Write all data under the resource version; `None` for a lost race."""


class ChallengeKeyStore:
    """The master keys as last read. Raises `ChallengeKeyUnavailable` or `ApiServerUnavailable`.

    Whoever only needs what is known never waits for a reading that is under way.
    """

    def __init__(
        self,
        store: SecretStore,
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
        self._asked = datetime.min.replace(tzinfo=UTC)
        self._known: Secret | None = None

    def cached(self) -> ChallengeKeys:
        """Return the keys that count now."""
        if self._known is None:
            with self._lock:
                if self._known is None:
                    self._refresh()
        return self._masters()

    def refresh(self) -> ChallengeKeys:
        """Return the keys that count, as the Secret says now.

        Within LIVE_REST of the last reading, also of one that failed, or while another one is under
        way, that is what is known already: a key that is missing from it may come with the next.
        """
        if not self._is_throttled() and self._lock.acquire(blocking=False):
            try:
                self._refresh()
            finally:
                self._lock.release()
        return self._masters()

    def _is_throttled(self) -> bool:
        return timedelta(0) <= self._now() - self._asked < MIN_REFRESH_INTERVAL

    def rotate(self) -> None:
        """Read the Secret again; rotate an old key, destroy a previous one that counts no more."""
        with self._lock:
            self._refresh()
            secret, now = self._secret(), self._now()
            current, since = _current(secret)
            if now - since >= ROTATION_PERIOD:
                self._write({**self._fresh(now), "previous": current})
                _logger.info("master key rotated")
            elif "previous" in secret.data and now - since >= PREVIOUS_KEY_TTL:
                self._write({k: v for k, v in secret.data.items() if k != "previous"})

    def _refresh(self) -> None:
        self._asked = now = self._now()
        secret = self._store.read(self._namespace, SECRET_NAME)
        if secret is None:
            made = self._store.create(self._namespace, SECRET_NAME, self._fresh(now))
            secret = made or self._store.read(self._namespace, SECRET_NAME)
        if secret is None:
            raise ChallengeKeyUnavailable("the Secret with the master keys comes and goes")
        _current(secret)
        self._known = secret

    def _write(self, data: Mapping[str, bytes]) -> None:
        written = self._store.replace(self._secret(), data)
        if written is None:
            self._refresh()
        else:
            self._known = written

    def _fresh(self, now: datetime) -> dict[str, bytes]:
        since = now.astimezone(UTC).isoformat(timespec="seconds")
        return {"current": self._random(SECRET_SIZE), "since": since.encode()}

    def _secret(self) -> Secret:
        if self._known is None:
            raise ChallengeKeyUnavailable("the Secret with the master keys has not been read")
        return self._known

    def _masters(self) -> ChallengeKeys:
        return keys_from_secret(self._secret(), self._now())


def keys_from_secret(secret: Secret, now: datetime) -> ChallengeKeys:
    """Return the keys of the Secret that count at this time. Raises `ChallengeKeyUnavailable`."""
    current, since = _current(secret)
    previous = secret.data.get("previous")
    counts = previous is not None and now - since < PREVIOUS_KEY_TTL
    return ChallengeKeys(current=current, previous=previous if counts else None)


def _current(secret: Secret) -> tuple[bytes, datetime]:
    """Return the current key and since when it is that.

    A Secret that is damaged is never made anew: whoever damaged it has to put it right.
    """
    try:
        since = datetime.fromisoformat(secret.data["since"].decode("ascii"))
        current = secret.data["current"]
        previous = secret.data.get("previous", current)
    except (KeyError, ValueError, binascii.Error) as e:
        raise ChallengeKeyUnavailable("the Secret with the master keys cannot be read") from e
    if len(current) != SECRET_SIZE or len(previous) != SECRET_SIZE or since.tzinfo is None:
        raise ChallengeKeyUnavailable("the Secret with the master keys cannot be read")
    return current, since
