"""The interfaces to the outside that a call uses; `wiring` builds the real ones."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from authenticator.model import ApiCredential, Clock, CsrApi, Deadline, Server
from authenticator.providers.provider import Identity
from authenticator.state.run_record import RunRecorder
from authenticator.state.store import FileStore
from authenticator.tpm.device import Tpm


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrollDependencies:
    """The interfaces of one call. `open_tpm` is called only when the TPM is needed."""

    clock: Clock
    store: FileStore
    connect: Callable[[Server, ApiCredential, Deadline], CsrApi]
    open_tpm: Callable[[Deadline], AbstractContextManager[Tpm]]
    load_bootstrap: Callable[[Path], ApiCredential]
    query_provider: Callable[[str, Deadline], Identity]
    event_log: Callable[[], bytes | None]
    pcr_signatures: Callable[[Mapping[str, Sequence[int]]], bytes | None]
    token_hex: Callable[[], str]
    """128 random bits in hex."""
    jitter: Callable[[], float]
    """A random number from 0 to 1."""
    phases: RunRecorder
