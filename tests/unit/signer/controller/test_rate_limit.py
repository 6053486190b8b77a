"""Challenges are limited for each requester, and for nobody else."""

from dataclasses import dataclass, field

import pytest

from signer.controller.rate_limit import BURST, QPS, ChallengeRateLimiter
from signer.errors import TooManyChallenges


@dataclass(slots=True)
class Drawn:
    """A rate with a clock of its own."""

    seconds: float = 0.0
    rate: ChallengeRateLimiter = field(init=False)

    def __post_init__(self) -> None:
        self.rate = ChallengeRateLimiter(lambda: self.seconds)

    def empty(self, requester: str) -> int:
        """Draw until nothing is left; return how many there were."""
        for count in range(10_000):
            try:
                self.rate.acquire(requester)
            except TooManyChallenges:
                return count
        raise AssertionError("no limit")


def test_a_burst_is_given_and_then_the_rate() -> None:
    drawn = Drawn()
    assert drawn.empty("a") == BURST
    drawn.seconds += 1.0
    assert drawn.empty("a") == QPS
    drawn.seconds += 1000.0
    assert drawn.empty("a") == BURST


def test_one_requester_costs_another_nothing() -> None:
    drawn = Drawn()
    drawn.empty("attacker")
    drawn.rate.acquire("node")
    with pytest.raises(TooManyChallenges):
        drawn.rate.acquire("attacker")


def test_requesters_that_left_are_forgotten() -> None:
    drawn = Drawn()
    for n in range(1000):
        drawn.rate.acquire(f"node-{n}")
    drawn.seconds += 1000.0
    drawn.rate.acquire("last")
    assert set(drawn.rate._spent) == {"last"}


def test_forgetting_gives_nobody_more() -> None:
    drawn = Drawn()
    drawn.seconds += BURST / QPS - 1.0
    drawn.empty("a")
    drawn.seconds += 1.0
    drawn.rate.acquire("b")
    assert drawn.empty("a") == QPS
