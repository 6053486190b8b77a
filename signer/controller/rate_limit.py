"""Rate limit of challenges: a token bucket for each requester of each cluster.

A challenge costs the signer a MakeCredential and a write. An attacker with a stolen bootstrap token
delays only the machines that share the token.
"""

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Final

from signer.errors import TooManyChallenges

QPS: Final = 20.0
BURST: Final = 100.0
"""Enough for a pool of a thousand machines that share one token: they join within a minute."""


class ChallengeRateLimiter:
    """Buckets of all requesters, for any number of threads. A full bucket is forgotten."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = Lock()
        self._spent: dict[Hashable, tuple[float, float]] = {}
        """When a bucket was last used, and how many tokens were missing from it then."""
        self._last_sweep = monotonic()

    def acquire(self, requester: Hashable) -> None:
        """Take one token.

        Raises:
            TooManyChallenges: the bucket is empty.

        """
        with self._lock:
            now = self._monotonic()
            self._sweep(now)
            missing = self._missing(requester, now)
            if missing > BURST - 1:
                raise TooManyChallenges("this requester gets challenges too fast")
            self._spent[requester] = (now, missing + 1)

    def _missing(self, requester: Hashable, now: float) -> float:
        used_at, missing = self._spent.get(requester, (now, 0.0))
        return max(0.0, missing - (now - used_at) * QPS)

    def _sweep(self, now: float) -> None:
        """Forget full buckets, not more often than an empty one takes to fill."""
        if now - self._last_sweep < BURST / QPS:
            return
        self._last_sweep = now
        full = [r for r in self._spent if self._missing(r, now) == 0.0]
        for requester in full:
            del self._spent[requester]
