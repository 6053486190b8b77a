"""Loops of the controller, and whether its threads make progress."""

from collections.abc import Callable
from threading import Event
from unittest.mock import patch

import pytest

from signer.controller import threads
from signer.controller.threads import Contact, Health, Loop


def make_loop(
    step: Callable[[], object], stop: Event, *, last: Callable[[], object] | None = None
) -> Loop:
    return Loop("test", step, pause=lambda: 0.001, stop=stop, last=last)


def test_loop_repeats_a_step_that_fails_and_takes_the_last_step() -> None:
    stop, ended, rounds = Event(), Event(), 0

    def step() -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 3:
            stop.set()
        raise ValueError

    loop = make_loop(step, stop, last=ended.set)
    loop.start()
    assert ended.wait(30)
    assert rounds == 3


def test_loop_whose_step_hangs_makes_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, stop, seconds = Event(), Event(), 0.0

    def step() -> None:
        entered.set()
        stop.wait()

    monkeypatch.setattr("time.monotonic", lambda: seconds)
    loop = make_loop(step, stop)
    loop.start()
    assert entered.wait(30)
    seconds = threads.MAX_SECONDS - 1
    assert loop.is_healthy()
    seconds = threads.MAX_SECONDS
    assert not loop.is_healthy()
    stop.set()
    assert loop.is_healthy()


def test_step_that_takes_longer_than_the_pause_starts_again_immediately() -> None:
    """Otherwise a slow API server would make the pauses between renewals longer still."""
    stop, pauses, seconds = Event(), list[float](), iter([0.0, 0.5, 3.0])
    loop = Loop("test", lambda: None, pause=lambda: 2.0, stop=stop, from_start=True)

    def wait(pause: float) -> bool:
        pauses.append(pause)
        return len(pauses) == 2

    with patch("time.monotonic", lambda: next(seconds)), patch.object(stop, "wait", wait):
        loop._run()
    assert pauses == [2.0, 0.0]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_loop_whose_thread_has_ended_makes_no_progress() -> None:
    """Before its start it is healthy: a loop that starts earlier asks for all of them."""

    def pause() -> float:
        raise SystemExit

    loop = Loop("test", lambda: None, pause=pause, stop=Event())
    assert loop.is_healthy()
    loop.start()
    loop.join(30)
    assert not loop.is_healthy()


def test_three_minutes_without_a_successful_request_are_one_alarm(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After a rotation of the CA, no request succeeded, and the replica was ready."""
    caplog.set_level("INFO")
    succeeded_at, now = 1000.0, 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    contact = Contact(lambda: succeeded_at)
    now += threads.MAX_SILENCE_SECONDS - 1
    assert contact.is_good()
    now += 1
    assert [contact.is_good(), contact.is_good()] == [False, False]
    succeeded_at = now
    assert contact.is_good()
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert vars(caplog.records[0])["fields"]["alarm"]


def test_check_that_fails_makes_the_health_bad_with_one_alarm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    blocked, stop = Event(), Event()
    health = Health(stop)
    health.add("workers", lambda: True)
    health.add("log", lambda: not blocked.is_set())
    assert health.is_good()
    blocked.set()
    assert not health.is_good()
    assert not health.is_good()
    [record] = caplog.records
    assert vars(record)["fields"] == {"threads": ["log"], "alarm": True}
    stop.set()
    assert health.is_good()
