"""Budgets of CPU time: what a tenant sends without a pause must not slow the others.

Python runs one thread at a time. What a thread spends on the bytes of a tenant's API servers, from
TLS to the caches, counts for the tenant. Above its share, a thread or a watch of the tenant pauses
before it reads more, so that the server has to wait (TCP flow control). All CPU time of a round of
maintenance counts, too: the next round waits until the tenant's share allows it. Of the CPU time of
a reconciliation, what exceeds the usual counts. What an accepted request costs to read is given
back: the share limits only work that leads to no certificate. The objects in the tenant's namespace
of the management cluster count as well (`signer.kube.watches.cache_writer`).
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock, local
from typing import Final, TypeVar

_logger = logging.getLogger(__name__)
T = TypeVar("T")

SHARE: Final = 0.1
"""Seconds of CPU per second for one tenant, in the long run: hundreds of events per second."""
TOTAL: Final = 0.5
"""Seconds of CPU per second for all tenants that have used up their burst. Six or more of them
share it equally. The other half of the time stays for the rest."""
BURST: Final = 2.0
"""Seconds of CPU without a pause, for the lists of large clusters."""
REFUND: Final = 0.0015
"""Seconds of CPU that are given back for each challenge and each certificate. Both together cost
2.7 ms to read and write (docs/performance.md), so a storm of joins uses up no share."""
_LOG_INTERVAL: Final = 600.0


@dataclass(frozen=True, slots=True)
class CpuShare:
    """The share of one tenant."""

    budget: "CpuBudget"
    tenant: str

    def begin(self) -> None:
        """Leave out what this thread did so far."""
        self.budget.begin()

    def charge(self) -> float:
        """Charge the tenant; return the seconds for which this thread must pause."""
        return self.budget.charge(self.tenant)

    def call(self, function: Callable[[], T], *, free: float = 0.0) -> tuple[T, float]:
        """Call a function and charge the tenant; return its value, and the seconds to pause."""
        return self.budget.call(self.tenant, function, free=free)

    def refund(self) -> None:
        """Give back what an accepted request of the tenant cost."""
        self.budget.refund(self.tenant)


class CpuBudget:
    """Leaky buckets of CPU time, one per tenant, for any number of threads."""

    def __init__(
        self,
        *,
        share: float = SHARE,
        burst: float = BURST,
        monotonic: Callable[[], float] = time.monotonic,
        thread_time: Callable[[], float] = time.thread_time,
    ) -> None:
        self._share = share
        self._burst = burst
        self._monotonic = monotonic
        self._thread_time = thread_time
        self._lock = Lock()
        self._thread = local()
        self._buckets: dict[str, tuple[float, float]] = {}
        """By tenant: seconds in the bucket, and when that was."""
        self._paused: dict[str, float] = {}
        """By tenant above its burst: when its pause ends."""
        self._logged: dict[str, float] = {}

    def begin(self) -> None:
        """Leave out what this thread did so far: it may have worked for another tenant."""
        self._thread.charged = self._thread_time()

    def charge(self, tenant: str) -> float:
        """Charge the tenant for this thread's CPU time since the last call of `begin` or `charge`.

        Return the seconds for which the thread must pause before it reads more.
        """
        spent = self._thread_time()
        seconds = spent - getattr(self._thread, "charged", spent)
        self._thread.charged = spent
        now = self._monotonic()
        with self._lock:
            share = self._present_share(now)
            level, since = self._buckets.get(tenant, (0.0, now))
            level = max(0.0, level - share * (now - since)) + seconds
            self._buckets[tenant] = (level, now)
            pause = max(0.0, level - self._burst) / share
            if pause:
                self._paused[tenant] = now + pause
            log = pause > 0 and now - self._logged.get(tenant, -_LOG_INTERVAL) >= _LOG_INTERVAL
            if log:
                self._logged[tenant] = now
        if log:
            fields = {"namespace": tenant, "alarm": True}
            _logger.warning("tenant exceeds the CPU budget", extra={"fields": fields})
        return pause

    def call(self, tenant: str, function: Callable[[], T], *, free: float = 0.0) -> tuple[T, float]:
        """Call a function and charge the tenant for all CPU time that it took on this thread.

        The first `free` seconds do not count. Reads from the tenant's API servers inside `function`
        are charged twice.
        """
        began = self._thread_time()
        value = function()
        self._thread.charged = min(began + free, self._thread_time())
        return value, self.charge(tenant)

    def refund(self, tenant: str) -> None:
        """Give back what an accepted request of the tenant cost."""
        with self._lock:
            if tenant in self._buckets:
                level, since = self._buckets[tenant]
                self._buckets[tenant] = (max(0.0, level - REFUND), since)

    def _present_share(self, now: float) -> float:
        """Return the share of one tenant; called with the lock held."""
        self._paused = {tenant: until for tenant, until in self._paused.items() if until > now}
        return min(self._share, TOTAL / max(1, len(self._paused)))
