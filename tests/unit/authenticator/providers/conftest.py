"""Deadlines that tests hold in their hands."""

from dataclasses import dataclass

import pytest


@dataclass
class Countdown:
    """A deadline that `step` seconds come closer each time that somebody looks at it."""

    left: float = 60.0
    step: float = 0.0

    def remaining(self) -> float:
        """See `Deadline`."""
        self.left -= self.step
        return self.left


@pytest.fixture
def deadline() -> Countdown:
    """Return one that never comes closer."""
    return Countdown()


@pytest.fixture
def soon() -> Countdown:
    """Return one that is near: what waits for longer fails."""
    return Countdown(left=0.2)


@pytest.fixture
def passing() -> Countdown:
    """Return one on which time passes fast, without anybody waiting."""
    return Countdown(step=1.0)
