"""Calls into a TPM end with the deadline."""

import threading
from collections.abc import Callable

import pytest

from authenticator.errors import TpmBusy
from authenticator.model import Deadline
from authenticator.tpm.bounded_calls import BoundedCalls
from tests.unit.authenticator.tpm.conftest import MovedTime


class Left(Deadline):
    """A deadline that the test moves."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def remaining(self) -> float:
        return self.seconds


class Passing(Exception):
    """An error that may be temporary."""


def bounded(deadline: Left) -> BoundedCalls:
    return BoundedCalls(deadline, is_retryable=lambda error: isinstance(error, Passing))


def test_result_is_returned() -> None:
    assert bounded(Left(30)).run(lambda: 5) == 5


def test_error_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        bounded(Left(30)).run(lambda: 1 // 0)


def test_call_that_does_not_return_is_abandoned() -> None:
    forever, left = threading.Event(), Left(0.01)
    calls = bounded(left)
    with pytest.raises(TpmBusy, match="did not answer"):
        calls.run(forever.wait)
    left.seconds = 30
    with pytest.raises(TpmBusy, match="no time"):
        calls.run(lambda: 5, at_least=30)
    calls.close()
    forever.set()


def test_no_call_starts_after_the_deadline() -> None:
    calls: list[int] = []
    with pytest.raises(TpmBusy, match="no time"):
        bounded(Left(0)).run(lambda: calls.append(1))
    assert calls == []


def test_cleanup_has_time_after_the_deadline() -> None:
    assert bounded(Left(-1)).run(lambda: 5, at_least=30) == 5


def test_close_ends_the_thread() -> None:
    calls = bounded(Left(30))
    thread = calls.run(threading.current_thread)
    calls.close()
    thread.join(10)
    assert not thread.is_alive()


def failing(times: int, error: Exception) -> Callable[[], int]:
    """Return a call that fails this often; then it returns the number of calls."""
    calls: list[int] = []

    def call() -> int:
        calls.append(1)
        if len(calls) <= times:
            raise error
        return len(calls)

    return call


def test_call_is_retried_after_a_temporary_error() -> None:
    assert bounded(Left(30)).run(failing(2, Passing())) == 3


def test_permanent_error_is_raised_at_once() -> None:
    call = failing(1, KeyError())
    with pytest.raises(KeyError):
        bounded(Left(30)).run(call)
    assert call() == 2


def test_temporary_error_is_raised_at_the_deadline(moved: MovedTime) -> None:
    def call() -> None:
        moved.sleep(10)
        raise Passing

    with pytest.raises(Passing):
        bounded(Left(30)).run(call)
    assert moved.now >= 30


def test_cleanup_is_retried_after_the_deadline() -> None:
    assert bounded(Left(-1)).run(failing(2, Passing()), at_least=30) == 3
