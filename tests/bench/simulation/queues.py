"""Servers that work in the order of arrival, and outages."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

MINUTE: Final = 60


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which something does not answer, in seconds since the start."""

    start: float = 0.0
    end: float = 0.0

    def over(self, now: float) -> float:
        """Return the first moment from `now` on that is not in the outage."""
        return self.end if self.start <= now < self.end else now


@dataclass(slots=True)
class Server:
    """Serves one job after another with `speed` seconds of work a second."""

    outage: Outage
    speed: float = 1.0
    free_at: float = 0.0
    busy: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds of work by the minute in which they began."""

    def serve(self, arrival: float, work: float) -> float:
        """Return when a job is done. Jobs must be given in the order of their arrival."""
        start = self.start(arrival)
        self.free_at = start + work / self.speed
        self.busy[int(start // MINUTE)] += work
        return self.free_at

    def start(self, arrival: float) -> float:
        """Return when a job that arrives now would begin."""
        return self.outage.over(max(arrival, self.free_at))

    def peak_load(self) -> float:
        """Return the share of its capacity that it used in its busiest minute."""
        return max(self.busy.values(), default=0.0) / (MINUTE * self.speed)


@dataclass(slots=True)
class TokenBucket:
    """A limit of `rate` a second and `burst` at once, for one requester."""

    rate: float
    burst: float
    full_at: float = 0.0

    def admit(self, arrival: float) -> float:
        """Return when a job may begin."""
        self.full_at = max(self.full_at, arrival) + 1 / self.rate
        return max(arrival, self.full_at - self.burst / self.rate)


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which this share of sorted values is, 0 of none."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
