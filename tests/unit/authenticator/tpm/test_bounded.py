"""Calls end with the deadline, whatever they wait for."""

import threading
from dataclasses import dataclass

import pytest

from authenticator.tpm.bounded import BoundedCalls
from common.errors import TpmBusy


@dataclass
class Left:
    """A deadline that the test moves."""

    seconds: float

    def remaining(self) -> float:
        """Return what the test says is left."""
        return self.seconds


def test_result_comes_back() -> None:
    assert BoundedCalls(Left(30)).run(lambda: 5) == 5


def test_error_comes_back() -> None:
    with pytest.raises(ZeroDivisionError):
        BoundedCalls(Left(30)).run(lambda: 1 // 0)


def test_call_that_outlives_the_deadline_is_left_behind() -> None:
    forever, left = threading.Event(), Left(0.01)
    calls = BoundedCalls(left)
    with pytest.raises(TpmBusy, match="did not answer"):
        calls.run(forever.wait)
    left.seconds = 30
    with pytest.raises(TpmBusy, match="no time"):
        calls.run(lambda: 5, at_least=30)
    calls.close()
    forever.set()


def test_nothing_is_begun_after_the_deadline() -> None:
    made: list[int] = []
    with pytest.raises(TpmBusy, match="no time"):
        BoundedCalls(Left(0)).run(lambda: made.append(1))
    assert made == []


def test_tidying_up_has_time_after_the_deadline() -> None:
    assert BoundedCalls(Left(-1)).run(lambda: 5, at_least=30) == 5


def test_closing_ends_the_thread() -> None:
    calls = BoundedCalls(Left(30))
    thread = calls.run(threading.current_thread)
    calls.close()
    thread.join(10)
    assert not thread.is_alive()
