"""Which Leases are live: this process saw a renewal less than the duration of the Lease ago.

Times are those of this process's monotonic clock, so no clocks have to agree. A process that has
ended renews no Lease, so a replica that starts never counts the Lease of such a process.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from signer.kube.leases import Lease

RENEW_SECONDS: Final = 2.0
"""Seconds between two renewals of a Lease."""
LEASE_SECONDS: Final = 10
"""How long a Lease counts after its last renewal: four renewals may fail or be late."""
PROOF_SECONDS: Final = 5.0
"""Seconds in which a holder that runs renews a Lease that was found."""
_ABANDONED_SECONDS: Final = 600.0
"""Seconds after which the Lease of a replica that was killed is deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    lease: Lease
    changed_at: float
    renewed: bool
    """Whether it was seen to be renewed at `changed_at`; else it was found then."""


class LiveLeases:
    """The Leases of the other replicas as last read; for one thread."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def update(self, leases: Iterable[Lease], now: float) -> None:
        """Note the present Leases."""
        self._seen = {lease.name: self._see(lease, now) for lease in leases}

    def live(self, now: float) -> Sequence[Lease]:
        """Return the live Leases."""
        return [s.lease for s in self._seen.values() if _is_live(s, now)]

    def unproved(self, now: float) -> Sequence[Lease]:
        """Return the Leases without a renewal that were found a moment ago: they may be live."""
        return [
            seen.lease
            for seen in self._seen.values()
            if not seen.renewed and now - seen.changed_at < PROOF_SECONDS
        ]

    def abandoned(self, now: float) -> Sequence[Lease]:
        """Return the Leases that were not renewed for a long time."""
        seen = self._seen.values()
        return [s.lease for s in seen if now - s.changed_at >= _ABANDONED_SECONDS]

    def _see(self, lease: Lease, now: float) -> _Seen:
        before = self._seen.get(lease.name)
        if before is not None and before.lease.renewed == lease.renewed:
            return _Seen(lease=lease, changed_at=before.changed_at, renewed=before.renewed)
        return _Seen(lease=lease, changed_at=now, renewed=before is not None)


def _is_live(seen: _Seen, now: float) -> bool:
    return seen.renewed and now - seen.changed_at < LEASE_SECONDS
