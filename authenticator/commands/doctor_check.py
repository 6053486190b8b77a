"""What `doctor` looks at, and what it finds."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from authenticator.enroll.enroll import Call
from authenticator.model import Clock, Deadline, Requester
from authenticator.tpm.device import Tpm
from common.errors import AttestationError


class Problem(Exception):
    """Something is wrong; the message says what was found."""


class NotLookedAt(Problem):
    """The call that the kubelet makes has to be right before this can be looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found; `remedy` is empty when all is well."""

    check: str
    found: str
    remedy: str = ""


class Probe(Protocol):
    """The API server, as far as it is looked at."""

    def date(self) -> str | None:
        """Return the Date header of an answer."""
        ...

    def may_file_requests(self) -> bool:
        """Tell whether this requester may create CSRs."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What is looked at."""

    kubeconfig: Path
    root: Path
    """Where the machine's files are; `/` but in tests."""
    clock: Clock
    call: Call | AttestationError
    """The kubelet's call, or why it cannot be made."""
    open_tpm: Callable[[Call, Deadline], AbstractContextManager[Tpm]]
    probe: Callable[[Call, Requester, Deadline], Probe]

    def kubelets_call(self) -> Call:
        """Return the kubelet's call. Raises NotLookedAt without one."""
        if isinstance(self.call, AttestationError):
            raise NotLookedAt("not looked at")
        return self.call

    def place(self, path: Path) -> Path:
        """Return a path of the machine that is looked at."""
        return self.root / Path("/", path).relative_to("/")
