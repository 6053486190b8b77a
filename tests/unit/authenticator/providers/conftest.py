"""Deadlines that tests control."""

from dataclasses import dataclass

import pytest


@dataclass
class Countdown:
    """A deadline. Each call of `remaining` brings it `step` seconds closer."""

    left: float = 60.0
    step: float = 0.0

    def remaining(self) -> float:
        self.left -= self.step
        return self.left


@pytest.fixture
def deadline() -> Countdown:
    """Return a deadline on which no time passes."""
    return Countdown()


@pytest.fixture
def soon() -> Countdown:
    """Return a deadline in 0.2 s: a longer wait fails."""
    return Countdown(left=0.2)


@pytest.fixture
def passing() -> Countdown:
    """Return a deadline on which a second passes at each look, without a real wait."""
    return Countdown(step=1.0)
