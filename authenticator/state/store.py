"""The files of the state directory, as values.

    credential.pem   certificate and key             (read by `launcher` and `credential`)
    pending.json     the exchanges in progress, by fingerprint
    cooldown.json    the cooldowns, by fingerprint
    served           which processes were served the credential, and when (written by `launcher`)
    runs.jsonl       that each run started, and how it ended (see `run_record`)
    foreign.pem      a credential of another machine, which no call uses
    exchange.lock    locked while an exchange runs
    background.log   stderr of background runs

Several kubeconfigs of one node (the kubelet's, and one for kubectl) may differ in settings or
server. Their exchanges and cooldowns are stored by fingerprint, so one caller never discards what
another has started.

A file that is damaged or unsafe is logged and treated as absent; the next exchange replaces it. The
JSON files have no checksum: they are synced before a rename puts them in place, so a power cut does
not tear them. An exchange whose stored bytes have changed fails, and is discarded after 15 minutes.
"""

import contextlib
import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from typing import Final

from authenticator.errors import (
    StateCorrupted,
    StateDirectoryUnsafe,
    StateDirectoryUnwritable,
)
from authenticator.model import Clock, Cooldown, Deadline, PendingExchange
from authenticator.state import credential as credential_file
from authenticator.state.credential import Credential
from authenticator.state.directory import StateDirectory
from authenticator.state.entries import Entry, decode_entries, decode_object, encode_entries
from authenticator.state.run_record import STARTED

CREDENTIAL: Final = "credential.pem"
FOREIGN: Final = "foreign.pem"
PENDING: Final = "pending.json"
COOLDOWN: Final = "cooldown.json"
LAST_SERVED: Final = "served"
RUNS: Final = "runs.jsonl"
LOCK: Final = "exchange.lock"
BACKGROUND_LOG: Final = "background.log"

REPEAT_CALL_SECONDS: Final = 10
MAX_SERVED_PROCESSES: Final = 64
MAX_ENTRIES: Final = 4
"""Limit of the stored exchanges, and of the stored cooldowns; the oldest are deleted."""

LOG_LIMIT: Final = 128 * 1024
_SERVED: Final = re.compile(rb"^(\d{1,10}) (\d{1,12})$", re.MULTILINE)
_logger = logging.getLogger(__name__)


class FileStore:
    """What is stored between calls, in a state directory.

    Only the holder of the lock may save or delete. Saving and deleting may raise
    `StateDirectoryUnwritable`; loading raises nothing.
    """

    def __init__(self, directory: StateDirectory, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock

    def lock(self, deadline: Deadline) -> AbstractContextManager[None]:
        """Hold the lock of the exchange. Raises `DeadlinePassed` if another call has it."""
        return self._directory.lock(LOCK, self._clock, deadline)

    def load_credential(self) -> Credential | None:
        """Return the cached credential."""
        try:
            content = self._directory.read(CREDENTIAL)
            return None if content is None else credential_file.decode(content)
        except StateCorrupted as error:
            _logger.warning("the cached credential is ignored: %s", error)
            return None

    def save_credential(self, credential: Credential) -> None:
        """Replace the credential, and forget which processes were served the previous one.

        Raises `StateDirectoryUnwritable`, `StateDirectoryUnsafe`: the credential is not replaced.
        Notes that stay cause one trial of the new credential at most.
        """
        self._directory.write_atomic(CREDENTIAL, credential_file.encode(credential))
        with contextlib.suppress(StateDirectoryUnwritable):
            self._directory.remove(LAST_SERVED)
            self._directory.remove(FOREIGN)

    def set_credential_aside(self) -> None:
        """Keep the credential, which is of another machine, where no call finds it.

        Only a new credential replaces it. Raises `StateDirectoryUnwritable`.
        """
        self._directory.rename(CREDENTIAL, FOREIGN)

    def pending_exchanges(self) -> list[PendingExchange]:
        """Return all exchanges in progress, the newest last."""
        return self._load(PENDING, PendingExchange)

    def load_pending(self, fingerprint: str) -> PendingExchange | None:
        """Return the exchange in progress under this fingerprint, of any age."""
        return _find(self.pending_exchanges(), fingerprint)

    def save_pending(self, pending: PendingExchange) -> None:
        """Replace the stored exchange of this fingerprint; delete the exchanges that have ended."""
        self._save_pending([*self._other_pending(pending.fingerprint), pending])

    def delete_pending(self, fingerprint: str) -> None:
        """Delete the exchange and its key; delete the exchanges that have ended."""
        self._save_pending(self._other_pending(fingerprint))

    def cooldowns(self) -> list[Cooldown]:
        """Return all cooldowns, ended or not, the newest last."""
        return self._load(COOLDOWN, Cooldown)

    def load_cooldown(self, fingerprint: str) -> Cooldown | None:
        """Return the last cooldown under this fingerprint, ended or not."""
        return _find(self.cooldowns(), fingerprint)

    def save_cooldown(self, cooldown: Cooldown) -> None:
        """Replace the stored cooldown of this fingerprint."""
        others = [c for c in self.cooldowns() if c.fingerprint != cooldown.fingerprint]
        self._save(COOLDOWN, [*others, cooldown])

    def delete_cooldowns(self) -> None:
        """Delete all cooldowns: they were for the credential that was just replaced."""
        self._directory.remove(COOLDOWN)

    def served_processes(self) -> dict[int, int]:
        """Return which processes were served this credential, and when. Raises `StateCorrupted`."""
        content = self._directory.read(LAST_SERVED) or b""
        return {int(pid): int(since) for pid, since in _SERVED.findall(content)}

    def is_repeat_call(self, parent: int, now: int) -> bool:
        """Return whether this process was served this credential before, and note that it is now.

        The launcher does the same. It ignores a process for REPEAT_CALL_SECONDS after each note. A
        note that cannot be read or written costs this sign of a 401, never the credential.
        """
        try:
            notes = self.served_processes()
            since = notes.pop(parent, None)
            if since is not None and 0 <= now - since <= REPEAT_CALL_SECONDS:
                return False
            notes = {pid: time for pid, time in notes.items() if _is_running(pid)}
            latest = [*notes.items()][1 - MAX_SERVED_PROCESSES :]
            lines = [b"%d %d\n" % note for note in (*latest, (parent, now))]
            self._directory.write_atomic(LAST_SERVED, b"".join(lines))
        except (StateCorrupted, StateDirectoryUnsafe, StateDirectoryUnwritable):
            return False
        return since is not None

    def append_run_record(self, record: Mapping[str, object]) -> None:
        """Append one record; records older than two full files are dropped."""
        with os.fdopen(self._directory.open_log(RUNS, LOG_LIMIT), "ab", buffering=0) as file:
            file.write(json.dumps(record).encode() + b"\n")

    def run_records(self) -> list[dict[str, object]]:
        """Return a record of each of the last runs, oldest first, without those that are damaged.

        A run that has only started still runs, or was killed.
        """
        try:
            lines = (self._directory.read(RUNS) or b"").splitlines()
        except StateCorrupted as error:
            _logger.warning("the records of earlier runs are ignored: %s", error)
            return []
        records = [record for line in lines if (record := decode_object(line)) is not None]
        return [
            record
            for record, following in pairwise((*records, {}))
            if record.get("result") != STARTED or record.get("time") != following.get("time")
        ]

    def background_log(self) -> int:
        """Open the log of background runs; the caller closes the descriptor."""
        return self._directory.open_log(BACKGROUND_LOG, LOG_LIMIT)

    def _other_pending(self, fingerprint: str) -> list[PendingExchange]:
        """Return the exchanges that may still end well, without that of the fingerprint.

        An exchange whose key is that of the credential has ended: a kill kept it from being
        deleted.
        """
        credential = self.load_credential()
        finished_key = None if credential is None else credential.key_pair.key
        return [
            pending
            for pending in self.pending_exchanges()
            if pending.fingerprint != fingerprint
            and pending.key != finished_key
            and pending.is_live(self._clock)
        ]

    def _save_pending(self, exchanges: list[PendingExchange]) -> None:
        if exchanges:
            self._save(PENDING, exchanges)
        else:
            self._directory.remove(PENDING)

    def _load(self, name: str, kind: type[Entry]) -> list[Entry]:
        try:
            content = self._directory.read(name)
            return [] if content is None else decode_entries(kind, content)
        except StateCorrupted as error:
            _logger.warning("%s is ignored: %s", name, error)
        except (KeyError, TypeError, ValueError):
            _logger.warning("%s is ignored: it is damaged, or of another version", name)
        return []

    def _save(self, name: str, entries: Sequence[Entry]) -> None:
        self._directory.write_atomic(name, encode_entries(entries[-MAX_ENTRIES:]))


def _find(entries: list[Entry], fingerprint: str) -> Entry | None:
    return next((entry for entry in entries if entry.fingerprint == fingerprint), None)


def _is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
