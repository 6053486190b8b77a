"""Rate limits with a token bucket for each key."""

from collections.abc import Callable, Hashable
from threading import Lock


class TokenBuckets:
    """Buckets of all keys, for any number of threads. A full bucket is forgotten.

    No key can use the tokens of another.
    """

    def __init__(self, *, qps: float, burst: float, monotonic: Callable[[], float]) -> None:
        """Fill each bucket with `qps` tokens a second, up to `burst` tokens."""
        self._qps = qps
        self._burst = burst
        self._monotonic = monotonic
        self._lock = Lock()
        self._spent: dict[Hashable, tuple[float, float]] = {}
        """When a bucket was last used, and how many tokens were missing from it then."""
        self._last_sweep = monotonic()

    def try_acquire(self, key: Hashable) -> bool:
        """Take one token; return whether there was one."""
        with self._lock:
            now = self._monotonic()
            self._sweep(now)
            missing = self._missing(key, now)
            if missing > self._burst - 1:
                return False
            self._spent[key] = (now, missing + 1)
            return True

    def _missing(self, key: Hashable, now: float) -> float:
        used_at, missing = self._spent.get(key, (now, 0.0))
        return max(0.0, missing - (now - used_at) * self._qps)

    def _sweep(self, now: float) -> None:
        """Forget full buckets, not more often than an empty one takes to fill."""
        if now - self._last_sweep < self._burst / self._qps:
            return
        self._last_sweep = now
        full = [key for key in self._spent if self._missing(key, now) == 0.0]
        for key in full:
            del self._spent[key]


class SharedTokens:
    """Tokens that some tenants share in equal parts; not thread-safe.

    Tenants that have taken tokens get one part each, and one part is left for the next tenant. A
    tenant that is alone gets half. Many tenants together never get more than all in the long run.
    """

    def __init__(
        self,
        *,
        qps: float,
        burst: float,
        monotonic: Callable[[], float],
        processes: Callable[[], int] = lambda: 1,
    ) -> None:
        """Share `qps` tokens a second, and a burst of `burst` tokens, with other `processes`."""
        self._qps = qps
        self._burst = burst
        self._monotonic = monotonic
        self._processes = processes
        self._refilled_at = monotonic()
        self._spent: dict[Hashable, float] = {}
        """How many tokens are missing from the part of each tenant that has taken some."""

    def try_acquire(self, tenant: Hashable) -> bool:
        """Take one token; return whether the tenant's part had one."""
        self._refill()
        spent = self._spent.get(tenant, 0.0)
        part = self._burst / self._processes() / (len(self._spent.keys() | {tenant}) + 1)
        if spent > max(part, 1.0) - 1:
            return False
        self._spent[tenant] = spent + 1
        return True

    def _refill(self) -> None:
        now = self._monotonic()
        qps = self._qps / self._processes()
        refill = (now - self._refilled_at) * qps / (len(self._spent) + 1)
        self._refilled_at = now
        self._spent = {o: spent - refill for o, spent in self._spent.items() if spent > refill}
