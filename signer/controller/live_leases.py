"""Which Leases are live: this process saw a renewal less than the duration of the Lease ago.

Times are those of this process's monotonic clock, so no clocks have to agree. A process that has
ended renews no Lease, so a replica that starts never counts the Lease of such a process.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from signer.inventory.replica_records.replica_leases import LEASE_SECONDS
from signer.kube.leases import Lease

RENEW_SECONDS: Final = 2.0
"""Seconds between the starts of two renewals of a Lease. This, the next one and `LEASE_SECONDS` are
the defaults of client-go's leader election."""
RENEW_DEADLINE: Final = 10.0
"""Seconds for one request."""
_PROOF_SECONDS: Final = 5.0
_PROOF_READS: Final = 3
"""A running replica renews its Lease within this many seconds and reads."""
_ABANDONED_SECONDS: Final = 600.0
"""Seconds after which the Lease of a replica that was killed is deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    lease: Lease
    changed_at: float
    reads: int
    """How often it was read since then."""
    renewed: bool
    """True: a renewal was seen at `changed_at`. False: the Lease existed when it was first read."""


class LiveLeases:
    """The Leases of the other replicas as last read; for one thread."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._first_read_at = 0.0
        self.reads = 0

    def update(self, leases: Iterable[Lease], now: float) -> None:
        """Note the present Leases."""
        if self.reads == 0:
            self._first_read_at = now
        self.reads += 1
        self._seen = {lease.name: self._see(lease, now) for lease in leases}

    def is_settled(self, now: float) -> bool:
        """Return whether every holder that runs had the time to renew its Lease.

        Leases that appear later change nothing: a replica in a crash loop makes a new one at each
        start.
        """
        return _is_over(self.reads, self._first_read_at, now) or not self.unproved(now)

    def live(self, now: float) -> Sequence[Lease]:
        """Return the live Leases."""
        return [s.lease for s in self._seen.values() if s.renewed and not _is_old(s, now)]

    def lapsed(self, now: float) -> Sequence[Lease]:
        """Return the Leases that were live; their holders ended, or could not renew them."""
        return [s.lease for s in self._seen.values() if s.renewed and _is_old(s, now)]

    def unproved(self, now: float) -> Sequence[Lease]:
        """Return the Leases without a renewal that were found a moment ago: they may be live."""
        return [
            seen.lease
            for seen in self._seen.values()
            if not (seen.renewed or _is_over(seen.reads, seen.changed_at, now))
        ]

    def abandoned(self, now: float) -> Sequence[Lease]:
        """Return the Leases that were not renewed for a long time."""
        seen = self._seen.values()
        return [s.lease for s in seen if now - s.changed_at >= _ABANDONED_SECONDS]

    def _see(self, lease: Lease, now: float) -> _Seen:
        before = self._seen.get(lease.name)
        if before is not None and before.lease.renewed == lease.renewed:
            return replace(before, lease=lease, reads=before.reads + 1)
        return _Seen(lease=lease, changed_at=now, reads=1, renewed=before is not None)


def _is_over(reads: int, since: float, now: float) -> bool:
    """Return whether the time is over in which a holder that runs renews a Lease."""
    return reads >= _PROOF_READS and now - since >= _PROOF_SECONDS


def _is_old(seen: _Seen, now: float) -> bool:
    return now - seen.changed_at >= LEASE_SECONDS
