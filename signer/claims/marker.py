"""Whether the claims of a Cluster went back, as after a restore of the management cluster.

The newest claim is also marked down in the workload cluster, another store. When no claim is as new
as the marker, claims were lost: their nodes may have renewed since. So a claim that is not newer
than the marker shows neither that a renewal is overdue nor that a certificate is unknown.
"""

from dataclasses import dataclass
from datetime import datetime

from signer.seams import WentBack


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """The newest state of all claims of a Cluster."""

    last_attested: datetime
    not_after: datetime
    """The highest of all claims."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """What is marked down in the workload cluster."""

    newest: Newest | None = None
    went_back: WentBack | None = None


def next_marker(marker: Marker, present: Newest | None, now: datetime) -> Marker:
    """Return the marker that follows; `present` is `None` for a Cluster without claims.

    A marker whose certificates have all ended shows nothing: its claims may have been deleted.
    """
    newest, went_back = marker.newest, marker.went_back
    if went_back is not None and now >= went_back.until:
        went_back = None
    if newest is not None and now < newest.not_after and _is_older(present, newest):
        before = went_back or WentBack(at=newest.last_attested, until=newest.not_after)
        went_back = WentBack(
            at=max(before.at, newest.last_attested), until=max(before.until, newest.not_after)
        )
    return Marker(newest=present or newest, went_back=went_back)


def _is_older(present: Newest | None, newest: Newest) -> bool:
    return present is None or present.last_attested < newest.last_attested
