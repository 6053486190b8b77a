"""Rate limit of challenges, for each requester."""

from dataclasses import dataclass, field

import pytest

from signer.controller.reconcile.limits import BURST, QPS, ChallengeRateLimiter
from signer.errors import TooManyChallenges


@dataclass(slots=True)
class LimiterFixture:
    """A limiter and its clock."""

    seconds: float = 0.0
    limiter: ChallengeRateLimiter = field(init=False)

    def __post_init__(self) -> None:
        self.limiter = ChallengeRateLimiter(lambda: self.seconds)

    def empty(self, requester: str) -> int:
        """Take tokens until the bucket is empty; return how many there were."""
        for count in range(10_000):
            try:
                self.limiter.acquire(requester)
            except TooManyChallenges:
                return count
        raise AssertionError("no limit")


def test_a_burst_is_followed_by_the_rate() -> None:
    fixture = LimiterFixture()
    assert fixture.empty("a") == BURST
    fixture.seconds += 1.0
    assert fixture.empty("a") == QPS
    fixture.seconds += 1000.0
    assert fixture.empty("a") == BURST


def test_an_empty_bucket_does_not_limit_another_requester() -> None:
    fixture = LimiterFixture()
    fixture.empty("attacker")
    fixture.limiter.acquire("node")
    with pytest.raises(TooManyChallenges):
        fixture.limiter.acquire("attacker")


def test_full_buckets_are_forgotten() -> None:
    fixture = LimiterFixture()
    for n in range(1000):
        fixture.limiter.acquire(f"node-{n}")
    fixture.seconds += 1000.0
    fixture.limiter.acquire("last")
    assert set(fixture.limiter._buckets._spent) == {"last"}


def test_a_sweep_refills_no_bucket() -> None:
    fixture = LimiterFixture()
    fixture.seconds += BURST / QPS - 1.0
    fixture.empty("a")
    fixture.seconds += 1.0
    fixture.limiter.acquire("b")
    assert fixture.empty("a") == QPS
