"""Pauses before this signer writes again to a CSR that others keep changing.

Others may be able to write annotations of CSRs. Whatever they change there, the signer verifies the
CSR again and corrects what it has written, for example the challenge. The first correction of a CSR
is immediate, and each one doubles the pause before the next. While the CSR is as the signer last
wrote it, there is no pause: it may wait for a change of another object.
"""

from dataclasses import dataclass
from threading import Lock
from typing import Final

from signer.fairness.backoff import Backoff
from signer.kinds.csr import Csr

_BACKOFF: Final = Backoff(initial=2.0, maximum=60.0)
"""A node waits ten minutes for a challenge: these are fourteen corrections."""


@dataclass(slots=True)
class _LastWrite:
    version: str
    """resourceVersion that the write made; if it failed, the one that was verified before it."""
    corrections: int = 0
    until: float = 0.0


class RewritePauses:
    """Corrections by CSR name, for any number of threads. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._writes: dict[str, _LastWrite] = {}

    def note_write(self, csr: Csr, written: str | None, now: float) -> None:
        """Note a write to the CSR that was verified; `written` is `None` if the write failed."""
        with self._lock:
            last = self._writes.get(csr.name)
            if last is None:
                last = self._writes[csr.name] = _LastWrite(csr.resource_version)
            if csr.resource_version != last.version:
                last.until = now + _BACKOFF.delay(last.corrections, 0.0)
                last.corrections += 1
            last.version = written or last.version

    def remaining(self, csr: Csr, now: float) -> float:
        """Return the seconds before this version of a CSR is to be reconciled, 0 for none."""
        with self._lock:
            last = self._writes.get(csr.name)
            if last is None or csr.resource_version == last.version:
                return 0.0
            return max(0.0, last.until - now)

    def forget(self, name: str) -> None:
        """Forget a CSR that is deleted or decided."""
        with self._lock:
            self._writes.pop(name, None)

    def __len__(self) -> int:
        """Return the number of CSRs that this signer has written to."""
        return len(self._writes)
