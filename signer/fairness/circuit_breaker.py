"""Circuit breaker of one server: a server that does not answer in time gets few calls.

closed     Calls are allowed; the longer good calls take, the fewer together. Failed calls in a row
           are counted; a good call sets the count to zero.
open       No calls until `retry_at`.
half-open  One call at a time. A good call closes the breaker; a failed one opens it again, longer.

The caller decides which calls have failed. It must not count a failure that a single requester can
cause, because that requester could then stop the calls of all others. A call that ends is no
failure, however long it takes: a pause would make a slow server a dead one.
"""

from enum import Enum
from typing import Final

from signer.fairness.backoff import Backoff

_MAX_FAILED_CALLS: Final = 3
_OPEN: Final = Backoff(initial=2.0, maximum=60.0)
SLOW_SECONDS: Final = 3.0
"""A healthy API server answers a write within one second. Calls that take longer than this get the
fewer workers the longer they take."""


class BreakerState(Enum):
    """State of a circuit breaker, in the standard terms; the values are used in logs."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class CircuitBreaker:
    """Counts failed calls of one server. Not thread-safe: the caller has a lock."""

    def __init__(self) -> None:
        self._failed_calls = 0
        self._times_opened = 0
        self.seconds = 0.0
        """How long good calls take; half of it is forgotten with each call."""
        self.retry_at = 0.0
        """When an open breaker becomes half-open, on the monotonic clock."""

    def state(self, now: float) -> BreakerState:
        """Return the state at a time of the monotonic clock."""
        if self._times_opened == 0:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now < self.retry_at else BreakerState.HALF_OPEN

    @property
    def is_pristine(self) -> bool:
        """Whether it equals a new breaker, so that it can be forgotten."""
        return self._failed_calls == self._times_opened == 0 and self.seconds <= SLOW_SECONDS

    def max_workers(self, most: int, now: float) -> int:
        """Return how many workers may call the server together; `most` while it is fast."""
        match self.state(now):
            case BreakerState.CLOSED:
                return max(1, int(most * SLOW_SECONDS / max(SLOW_SECONDS, self.seconds)))
            case BreakerState.OPEN:
                return 0
            case BreakerState.HALF_OPEN:
                return 1

    def record(self, *, failed: bool, now: float, seconds: float = 0.0) -> bool:
        """Count one finished call; return whether it opened the breaker.

        `seconds` says how long a good call took.
        """
        if not failed:
            self._failed_calls = self._times_opened = 0
            self.seconds = max(seconds, self.seconds / 2)
            return False
        self._failed_calls += 1
        # Calls that began before the breaker opened end while it is open: they prove nothing new.
        if self.state(now) is BreakerState.OPEN or self._failed_calls < _MAX_FAILED_CALLS:
            return False
        self.retry_at = now + _OPEN.delay(self._times_opened, 0.0)
        self._times_opened += 1
        return True
