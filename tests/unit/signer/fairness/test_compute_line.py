"""Threads of workload clusters compute one or two at a time, in the order in which they came."""

from threading import Event, Thread
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from signer.fairness import compute_line
from signer.fairness.compute_line import MAX_TURN_SECONDS, ComputeLine, thread_clock, waiting
from tests.fakes.clock import FakeClock

SECONDS = 60.0


class Computing:
    """A thread that computes until it is told to end."""

    def __init__(self, line: ComputeLine) -> None:
        self.began, self._end = Event(), Event()
        self.thread = line.start("computing", self._run)

    def _run(self) -> None:
        self.began.set()
        assert self._end.wait(SECONDS)

    def end(self) -> None:
        self._end.set()
        self.thread.join(SECONDS)


def until_waiting(line: ComputeLine, count: int) -> None:
    """Wait until so many threads wait for a place."""
    while len(line._waiting) < count:
        pass


def test_places_are_handed_over_in_order() -> None:
    """1,500 threads that woke together fought for the interpreter: jobs took 314 times as long."""
    line, order = ComputeLine(2), list[int]()
    first = [Computing(line), Computing(line)]
    for each in first:
        assert each.began.wait(SECONDS)
    threads = []
    for number in range(20):
        threads.append(line.start("next", lambda number=number: order.append(number)))  # type: ignore[misc]
        until_waiting(line, number + 1)
    assert order == []
    first[0].end()
    for thread in threads:
        thread.join(SECONDS)
    assert order == list(range(20))
    first[1].end()


def test_thread_that_waits_has_no_place() -> None:
    line, passed = ComputeLine(1), Event()

    def wait() -> None:
        with waiting(), waiting():
            assert passed.wait(SECONDS)

    waits = line.start("waits", wait)
    line.start("passes", passed.set)
    waits.join(SECONDS)
    assert not waits.is_alive()
    assert line._free == 1


def test_clock_of_a_thread_stands_still_while_it_waits_for_its_place() -> None:
    """A server would be unreachable because its own threads had to wait for others."""
    line, clock, times = ComputeLine(1), FakeClock(), list[float]()
    with patch.object(compute_line, "time", SimpleNamespace(monotonic=clock.boottime)):
        holder = Computing(line)
        assert holder.began.wait(SECONDS)
        begun = clock.boottime()
        late = line.start("late", lambda: times.append(thread_clock()))
        until_waiting(line, 1)
        clock.pass_time(100.0)
        assert line.longest_wait() == 100.0
        holder.end()
        late.join(SECONDS)
        assert line.longest_wait() == 0.0
    assert times == [begun]


def test_thread_that_keeps_its_place_stops_the_line() -> None:
    line, clock = ComputeLine(1), FakeClock()
    with patch.object(compute_line, "time", SimpleNamespace(monotonic=clock.boottime)):
        assert line.is_moving()
        holder = Computing(line)
        assert holder.began.wait(SECONDS)
        assert line.is_moving()
        clock.pass_time(MAX_TURN_SECONDS)
        assert not line.is_moving()
        holder.end()
        assert line.is_moving()


def test_task_that_gets_no_thread_waits_until_one_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process may have no threads left for a while."""
    line, clock = ComputeLine(1), FakeClock()

    def fails(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    with patch.object(compute_line, "time", SimpleNamespace(monotonic=clock.boottime)):
        with monkeypatch.context() as patched:
            patched.setattr(Thread, "start", fails)
            for _ in range(3):
                with pytest.raises(RuntimeError):
                    line.start("none", lambda: None)
                clock.pass_time(30.0)
        assert line.longest_wait() == 90.0
        line.start("one", lambda: None).join(SECONDS)
        assert line.longest_wait() == 0.0


def test_place_of_a_thread_that_fails_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    line = ComputeLine(1)
    monkeypatch.setattr("threading.excepthook", lambda _: None)

    def fail() -> None:
        raise ValueError

    line.start("fails", fail).join(SECONDS)
    assert line._free == 1
    assert not line._turns
