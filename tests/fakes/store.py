"""A store in memory: `authenticator.state.store.Store` for tests of what is above it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from authenticator.errors import DeadlinePassed, StateDirectoryUnwritable
from authenticator.model import Cooldown, Deadline, PendingExchange
from authenticator.state.credential import Credential


@dataclass
class FakeStore:
    """What was kept, open to look at. `is_full` refuses to keep more."""

    credential: Credential | None = None
    pending: PendingExchange | None = None
    cooldown: Cooldown | None = None
    is_full: bool = False
    is_locked: bool = False

    @contextmanager
    def lock(self, deadline: Deadline) -> Iterator[None]:
        """See `store.Store`; whoever waits here waits in vain."""
        if self.is_locked:
            raise DeadlinePassed(f"locked, with {deadline.remaining()} s to wait")
        self.is_locked = True
        try:
            yield
        finally:
            self.is_locked = False

    def load_credential(self) -> Credential | None:
        """See `store.Store`."""
        return self.credential

    def save_credential(self, credential: Credential) -> None:
        """See `store.Store`."""
        self._writes()
        self.credential = credential

    def load_pending(self) -> PendingExchange | None:
        """See `store.Store`."""
        return self.pending

    def save_pending(self, pending: PendingExchange) -> None:
        """See `store.Store`."""
        self._writes()
        self.pending = pending

    def delete_pending(self) -> None:
        """See `store.Store`."""
        self._writes()
        self.pending = None

    def load_cooldown(self) -> Cooldown | None:
        """See `store.Store`."""
        return self.cooldown

    def save_cooldown(self, cooldown: Cooldown | None) -> None:
        """See `store.Store`."""
        self._writes()
        self.cooldown = cooldown

    def _writes(self) -> None:
        if self.is_full:
            raise StateDirectoryUnwritable("no space left")
