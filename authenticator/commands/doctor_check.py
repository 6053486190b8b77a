"""What `doctor` looks at, and what it finds."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from authenticator.config.invocation import Invocation
from authenticator.model import ApiCredential, Clock, Deadline
from authenticator.tpm.device import Tpm
from common.errors import AttestationError


class CheckFailed(Exception):
    """Something is wrong; the message says what was found."""


class CheckSkipped(CheckFailed):
    """The call that the kubelet makes has to be right before this can be looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found; `remedy` is empty when all is well."""

    check: str
    detail: str
    remedy: str = ""


class Probe(Protocol):
    """The API server, as far as it is looked at."""

    def server_date(self) -> str | None:
        """Return the Date header of an answer."""
        ...

    def can_create_csrs(self) -> bool:
        """Tell whether this requester may create CSRs."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorContext:
    """What is looked at."""

    kubeconfig: Path
    root: Path
    """Where the machine's files are; `/` but in tests."""
    clock: Clock
    call: Invocation | AttestationError
    """The kubelet's call, or why it cannot be made."""
    open_tpm: Callable[[Invocation, Deadline], AbstractContextManager[Tpm]]
    probe: Callable[[Invocation, ApiCredential, Deadline], Probe]

    def invocation(self) -> Invocation:
        """Return the kubelet's call. Raises NotLookedAt without one."""
        if isinstance(self.call, AttestationError):
            raise CheckSkipped("not looked at")
        return self.call

    def host_path(self, path: Path) -> Path:
        """Return a path of the machine that is looked at."""
        return self.root / Path("/", path).relative_to("/")
