"""How fast one requester is given challenges: a token bucket each.

A challenge costs the signer a MakeCredential and a write. A stolen bootstrap token may ask for as
many as its bucket holds, and delays nobody but those who share the token.
"""

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Final

from signer.errors import TooManyChallenges

QPS: Final = 20.0
BURST: Final = 100.0
"""A pool whose machines share one token still joins by the thousand in minutes."""


class ChallengeRateLimiter:
    """The buckets of all requesters; a full one is forgotten."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = Lock()
        self._spent: dict[Hashable, tuple[float, float]] = {}
        """When a bucket was last drawn from, and how much was missing from it then."""
        self._swept = monotonic()

    def acquire(self, requester: Hashable) -> None:
        """Take one challenge.

        Raises `TooManyChallenges` when the bucket is empty.
        """
        with self._lock:
            now = self._monotonic()
            self._sweep(now)
            missing = self._missing(requester, now)
            if missing > BURST - 1:
                raise TooManyChallenges("this requester is challenged too often")
            self._spent[requester] = (now, missing + 1)

    def _missing(self, requester: Hashable, now: float) -> float:
        drawn, missing = self._spent.get(requester, (now, 0.0))
        return max(0.0, missing - (now - drawn) * QPS)

    def _sweep(self, now: float) -> None:
        """Forget full buckets, once in the time that the emptiest takes to fill."""
        if now - self._swept < BURST / QPS:
            return
        self._swept = now
        full = [r for r in self._spent if self._missing(r, now) == 0.0]
        for requester in full:
            del self._spent[requester]
