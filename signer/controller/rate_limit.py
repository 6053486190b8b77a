"""Rate limit of challenges: a token bucket for each requester of each cluster.

A challenge costs the signer a MakeCredential and a write. An attacker with a stolen bootstrap token
delays only the machines that share the token.
"""

from collections.abc import Callable, Hashable
from typing import Final

from signer.errors import TooManyChallenges
from signer.token_buckets import TokenBuckets

QPS: Final = 20.0
BURST: Final = 100.0
"""Enough for a pool of a thousand machines that share one token: they join within a minute."""


class ChallengeRateLimiter:
    """Buckets of all requesters, for any number of threads."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._buckets = TokenBuckets(qps=QPS, burst=BURST, monotonic=monotonic)

    def acquire(self, requester: Hashable) -> None:
        """Take one token.

        Raises:
            TooManyChallenges: the bucket is empty.

        """
        if not self._buckets.try_acquire(requester):
            raise TooManyChallenges("this requester gets challenges too fast")
