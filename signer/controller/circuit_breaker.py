"""Circuit breaker of one workload cluster: a cluster whose API server hangs gets one worker.

closed     Calls are allowed. Slow calls in a row are counted; a fast call sets the count to zero.
open       No calls until `retry_at`.
half-open  One call at a time. A fast call closes the breaker; a slow one opens it again, longer.

Only the duration of a call counts. A call that fails fast holds no worker, and a requester that can
make its own request fail (422) must not be able to stop the requests of the whole cluster.
"""

from enum import Enum
from typing import Final

SLOW_CALL_SECONDS: Final = 3.0
"""A healthy API server answers a write within one second. A call may take half a minute to fail."""
_MAX_SLOW_CALLS: Final = 3
_INITIAL_OPEN_SECONDS: Final = 2.0
_MAX_OPEN_SECONDS: Final = 60.0


class BreakerState(Enum):
    """State of a circuit breaker, in the standard terms; the values are used in logs."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class CircuitBreaker:
    """Counts slow calls of one cluster. Not thread-safe: the work queue calls it under its lock."""

    def __init__(self) -> None:
        self._slow_calls = 0
        self._times_opened = 0
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
        return self._slow_calls == self._times_opened == 0

    def max_workers(self, most: int, now: float) -> int:
        """Return how many workers may call the cluster at once; `most` while closed."""
        allowed = {BreakerState.CLOSED: most, BreakerState.OPEN: 0, BreakerState.HALF_OPEN: 1}
        return allowed[self.state(now)]

    def record(self, *, slow: bool, now: float) -> bool:
        """Count one finished call; return whether it opened the breaker."""
        if not slow:
            self._slow_calls = self._times_opened = 0
            return False
        self._slow_calls += 1
        # Calls that began before the breaker opened end while it is open: they prove nothing new.
        if self.state(now) is BreakerState.OPEN or self._slow_calls < _MAX_SLOW_CALLS:
            return False
        pause = _INITIAL_OPEN_SECONDS * 2.0 ** min(self._times_opened, 16)
        self._times_opened += 1
        self.retry_at = now + min(pause, _MAX_OPEN_SECONDS)
        return True
