"""A store in memory: `authenticator.state.store.Store` for tests of its callers."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from authenticator.errors import DeadlinePassed, StateDirectoryUnwritable
from authenticator.model import Cooldown, Deadline, PendingExchange
from authenticator.state.credential import Credential


@dataclass
class FakeStore:
    """The stored values, which tests may inspect. With `is_full` every write fails."""

    credential: Credential | None = None
    exchanges: dict[str, PendingExchange] = field(default_factory=dict)
    cooldowns: dict[str, Cooldown] = field(default_factory=dict)
    is_full: bool = False
    is_locked: bool = False

    @property
    def pending(self) -> PendingExchange | None:
        """The newest exchange in progress."""
        return next(reversed(self.exchanges.values()), None)

    @property
    def cooldown(self) -> Cooldown | None:
        """The newest cooldown."""
        return next(reversed(self.cooldowns.values()), None)

    @contextmanager
    def lock(self, deadline: Deadline) -> Iterator[None]:
        """Never wait."""
        if self.is_locked:
            raise DeadlinePassed(f"locked, with {deadline.remaining()} s to wait")
        self.is_locked = True
        try:
            yield
        finally:
            self.is_locked = False

    def load_credential(self) -> Credential | None:
        return self.credential

    def save_credential(self, credential: Credential) -> None:
        self._require_space()
        self.credential = credential

    def load_pending(self, fingerprint: str) -> PendingExchange | None:
        return self.exchanges.get(fingerprint)

    def save_pending(self, pending: PendingExchange) -> None:
        self._require_space()
        self.exchanges.pop(pending.fingerprint, None)
        self.exchanges[pending.fingerprint] = pending

    def delete_pending(self, fingerprint: str) -> None:
        self._require_space()
        self.exchanges.pop(fingerprint, None)

    def load_cooldown(self, fingerprint: str) -> Cooldown | None:
        return self.cooldowns.get(fingerprint)

    def save_cooldown(self, cooldown: Cooldown) -> None:
        self._require_space()
        self.cooldowns.pop(cooldown.fingerprint, None)
        self.cooldowns[cooldown.fingerprint] = cooldown

    def delete_cooldowns(self) -> None:
        self._require_space()
        self.cooldowns.clear()

    def _require_space(self) -> None:
        if self.is_full:
            raise StateDirectoryUnwritable("no space left")
