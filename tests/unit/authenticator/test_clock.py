"""The clock's contract, over the fake and the kernel's."""

import pytest

from authenticator.clock import SystemClock
from authenticator.errors import DeadlinePassed
from authenticator.model import Clock, Deadline
from tests.fakes.clock import FakeClock


@pytest.fixture(params=[FakeClock, SystemClock])
def clock(request: pytest.FixtureRequest) -> Clock:
    """Return each kind of clock."""
    made: Clock = request.param()
    return made


def test_sleep_moves_both_clocks(clock: Clock) -> None:
    wall, boot = clock.now(), clock.boottime()
    clock.sleep(0.01)
    assert clock.boottime() - boot > 0.009
    assert clock.now() > wall


def test_boot_has_one_name(clock: Clock) -> None:
    assert clock.boot_id() == clock.boot_id() != ""


def test_deadline_gives_the_smaller_of_its_own_and_what_is_asked(clock: Clock) -> None:
    deadline = Deadline(clock, 100)
    assert deadline.clamp(1) == 1
    assert 90 < deadline.clamp(1000) <= 100
    assert 90 < deadline.remaining() <= 100


def test_deadline_ends(clock: Clock) -> None:
    with pytest.raises(DeadlinePassed):
        Deadline(clock, 0).clamp(1)
