"""What is kept between calls, in the state folder.

    credential.pem   certificate and key            (read by `launcher` and `credential`)
    pending.json     the exchange that has begun
    cooldown.json    why none begins for a while
    served           mark of the launcher: who was served last
    runs.jsonl       one record per run             (`report`)
    exchange.lock    held by who runs an exchange
    background.log   what detached runs say

What is damaged or unsafe is logged and treated as absent; the next exchange replaces it. JSON files
carry a checksum against damage that leaves them JSON: an exchange with one wrong byte in its offer
would fail until it is too old.
"""

import json
import logging
import os
from base64 import b64decode, b64encode
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from hashlib import sha256
from typing import Final, Protocol, TypeVar

from authenticator.errors import StateCorrupted, StateDirectoryUnwritable
from authenticator.model import Clock, Cooldown, Deadline, PendingExchange
from authenticator.state import credential as credential_file
from authenticator.state.credential import Credential
from authenticator.state.directory import StateDirectory

CREDENTIAL: Final = "credential.pem"
PENDING: Final = "pending.json"
COOLDOWN: Final = "cooldown.json"
LAST_SERVED: Final = "served"
RUNS: Final = "runs.jsonl"
LOCK: Final = "exchange.lock"
BACKGROUND_LOG: Final = "background.log"

REPEAT_CALL_SECONDS: Final = 10
LOG_LIMIT: Final = 128 * 1024
FORMAT: Final = 1
_BYTES: Final = frozenset({"key", "offer", "answer"})
_CHECK_SIZE: Final = len('{"check": "", ') + 64
_T = TypeVar("_T")
_logger = logging.getLogger(__name__)


class Store(Protocol):
    """What is kept between calls. Only who holds the lock may save or drop.

    Saving and dropping may raise `StateDirectoryUnwritable`; loading raises nothing.
    """

    def lock(self, deadline: Deadline) -> AbstractContextManager[None]:
        """Keep all other calls from the exchange; wait for them until the deadline."""
        ...

    def load_credential(self) -> Credential | None:
        """Return the credential in the cache."""
        ...

    def save_credential(self, credential: Credential) -> None:
        """Replace the credential, and forget who was served the one before."""
        ...

    def load_pending(self) -> PendingExchange | None:
        """Return the exchange that has begun."""
        ...

    def save_pending(self, pending: PendingExchange) -> None:
        """Keep the exchange."""
        ...

    def delete_pending(self) -> None:
        """Forget the exchange, and its key."""
        ...

    def load_cooldown(self) -> Cooldown | None:
        """Return the last cooldown, ended or not."""
        ...

    def save_cooldown(self, cooldown: Cooldown | None) -> None:
        """Keep the cooldown, or forget it."""
        ...


class FileStore:
    """The store in a folder."""

    def __init__(self, folder: StateDirectory, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock

    def lock(self, deadline: Deadline) -> AbstractContextManager[None]:
        """Hold the exchange's lock."""
        return self._folder.lock(LOCK, self._clock, deadline)

    def load_credential(self) -> Credential | None:
        """Read credential.pem."""
        try:
            content = self._folder.read(CREDENTIAL)
            return None if content is None else credential_file.decode(content)
        except StateCorrupted as error:
            _logger.warning("cached credential not used: %s", error)
            return None

    def save_credential(self, credential: Credential) -> None:
        """Write credential.pem."""
        self._folder.write_atomic(CREDENTIAL, credential_file.encode(credential))
        self._folder.remove(LAST_SERVED)

    def load_pending(self) -> PendingExchange | None:
        """Read pending.json."""
        try:
            members = self._load(PENDING)
            return None if members is None else _pending(members)
        except StateCorrupted as error:
            _logger.warning("pending exchange not used: %s", error)
            return None

    def save_pending(self, pending: PendingExchange) -> None:
        """Write pending.json."""
        members = asdict(pending)
        for name in _BYTES:
            if members[name] is not None:
                members[name] = b64encode(members[name]).decode()
        self._save(PENDING, members)

    def delete_pending(self) -> None:
        """Remove pending.json."""
        self._folder.remove(PENDING)

    def load_cooldown(self) -> Cooldown | None:
        """Read cooldown.json."""
        try:
            members = self._load(COOLDOWN)
            return None if members is None else _cooldown(members)
        except StateCorrupted as error:
            _logger.warning("cooldown not used: %s", error)
            return None

    def save_cooldown(self, cooldown: Cooldown | None) -> None:
        """Write or remove cooldown.json."""
        if cooldown is None:
            self._folder.remove(COOLDOWN)
        else:
            self._save(COOLDOWN, asdict(cooldown))

    def is_repeat_call(self, parent: int, now: int) -> bool:
        """Tell whether this parent was served this credential before, and mark that it is now.

        The launcher does the same, and looks away for SUSPICION_SECONDS after each mark. A mark
        that cannot be read or written costs this sign, never the credential.
        """
        try:
            known, _, since = (self._folder.read(LAST_SERVED) or b"").partition(b" ")
            same = known == b"%d" % parent
            if same and 0 <= now - int(since) <= REPEAT_CALL_SECONDS:
                return False
            self._folder.write_atomic(LAST_SERVED, (b"%d %d" % (parent, now)).ljust(40))
        except (StateCorrupted, StateDirectoryUnwritable, ValueError):
            return False
        return same

    def append_run_record(self, record: Mapping[str, object]) -> None:
        """Add one record; what is older than two files' worth is forgotten."""
        with os.fdopen(self._folder.open_log(RUNS, LOG_LIMIT), "ab", buffering=0) as file:
            file.write(json.dumps(record).encode() + b"\n")

    def run_records(self) -> list[dict[str, object]]:
        """Return the records of the last runs, oldest first; what is broken is left out."""
        try:
            lines = (self._folder.read(RUNS) or b"").splitlines()
        except StateCorrupted as error:
            _logger.warning("records of earlier runs not read: %s", error)
            return []
        return [record for line in lines if (record := _record(line)) is not None]

    def background_log(self) -> int:
        """Open the log of detached runs; the caller closes the descriptor."""
        return self._folder.open_log(BACKGROUND_LOG, LOG_LIMIT)

    def _load(self, name: str) -> dict[str, object] | None:
        content = self._folder.read(name)
        if content is None:
            return None
        members = _record(content) if content == _prepend_checksum(content[_CHECK_SIZE:]) else None
        if members is None or members.pop("format", None) != FORMAT:
            raise StateCorrupted(f"{name} is damaged, or of another version")
        return members

    def _save(self, name: str, members: Mapping[str, object]) -> None:
        self._folder.write_atomic(name, with_checksum({"format": FORMAT, **members}))


def with_checksum(members: Mapping[str, object]) -> bytes:
    """Return JSON whose first member is a checksum, which finds damage and not attacks."""
    return _prepend_checksum(json.dumps(members).encode().removeprefix(b"{"))


def _prepend_checksum(rest: bytes) -> bytes:
    return b'{"check": "%s", %s' % (sha256(rest).hexdigest().encode(), rest)


def _record(content: bytes) -> dict[str, object] | None:
    try:
        record = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _pending(members: dict[str, object]) -> PendingExchange:
    try:
        for name in _BYTES:
            value = members[name]
            if value is not None:
                members[name] = b64decode(_instance(value, str), validate=True)
        return PendingExchange(
            fingerprint=_instance(members["fingerprint"], str),
            boot_id=_instance(members["boot_id"], str),
            started_at=_instance(members["started_at"], float),
            offer_name=_instance(members["offer_name"], str),
            answer_name=_instance(members["answer_name"], str),
            key=_instance(members["key"], bytes),
            offer=_instance(members["offer"], bytes),
            offer_uid=_optional(members["offer_uid"], str),
            challenge=_optional(members["challenge"], str),
            challenge_seen=_optional(members["challenge_seen"], float),
            answer=_optional(members["answer"], bytes),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StateCorrupted(f"{PENDING} is damaged") from error


def _cooldown(members: dict[str, object]) -> Cooldown:
    try:
        return Cooldown(
            boot_id=_instance(members["boot_id"], str),
            until=_instance(members["until"], float),
            failures=_instance(members["failures"], int),
            reason=_instance(members["reason"], str),
            message=_instance(members["message"], str),
            fingerprint=_instance(members["fingerprint"], str),
        )
    except (KeyError, TypeError) as error:
        raise StateCorrupted(f"{COOLDOWN} is damaged") from error


def _instance(value: object, kind: type[_T]) -> _T:
    if not isinstance(value, kind):
        raise TypeError
    return value


def _optional(value: object, kind: type[_T]) -> _T | None:
    return None if value is None else _instance(value, kind)
