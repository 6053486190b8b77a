"""The contract of the clock, for the fake and the system clock."""

import pytest

from authenticator.clock import SystemClock
from authenticator.errors import DeadlinePassed
from authenticator.model import Clock, Deadline
from tests.fakes.clock import FakeClock


@pytest.fixture(params=[FakeClock, SystemClock])
def clock(request: pytest.FixtureRequest) -> Clock:
    factory: Clock = request.param()
    return factory


def test_sleep_moves_both_clocks(clock: Clock) -> None:
    wall, boot = clock.now(), clock.boottime()
    clock.sleep(0.01)
    assert clock.boottime() - boot > 0.009
    assert clock.now() > wall


def test_boot_id_is_constant(clock: Clock) -> None:
    assert clock.boot_id() == clock.boot_id() != ""


def test_timeout_is_limited_by_the_deadline(clock: Clock) -> None:
    deadline = Deadline(clock, 100)
    assert deadline.clamp(1) == 1
    assert 90 < deadline.clamp(1000) <= 100
    assert 90 < deadline.remaining() <= 100


def test_deadline_ends(clock: Clock) -> None:
    with pytest.raises(DeadlinePassed):
        Deadline(clock, 0).clamp(1)
