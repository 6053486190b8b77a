"""Limits processes to a share of one CPU: each is stopped while it has used more.

A quota of a control group does the same, but needs root and differs between systems.
"""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from typing import Final

_STEP_SECONDS: Final = 0.005
_BURST_SECONDS: Final = 0.05
"""CPU time that a process may save while it does nothing."""
_CPU_CLOCK: Final = 2
"""Clock of a process's CPU time (clock_getcpuclockid(3) on Linux)."""


@dataclass(slots=True)
class _Limited:
    pid: int
    spent: float
    allowed: float
    stopped: bool = False


def cpu_time(pid: int) -> float:
    """Return the CPU seconds of a process, more exactly than /proc shows them."""
    return time.clock_gettime((~pid << 3) | _CPU_CLOCK)


@contextmanager
def limited_to(share: float, pids: Sequence[int]) -> Iterator[None]:
    """Let each of these processes use this share of one CPU."""
    done = Event()
    thread = Thread(target=_limit, args=(share, pids, done))
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _limit(share: float, pids: Sequence[int], done: Event) -> None:
    limited = [_Limited(pid, cpu_time(pid), cpu_time(pid)) for pid in pids]
    last = time.monotonic()
    while not done.wait(_STEP_SECONDS):
        now = time.monotonic()
        for process in limited:
            process.spent = cpu_time(process.pid)
            earned = process.allowed + share * (now - last)
            process.allowed = min(earned, process.spent + _BURST_SECONDS)
            _set_stopped(process, stopped=process.spent > process.allowed)
        last = now
    for process in limited:
        _set_stopped(process, stopped=False)


def _set_stopped(process: _Limited, *, stopped: bool) -> None:
    if process.stopped != stopped:
        os.kill(process.pid, signal.SIGSTOP if stopped else signal.SIGCONT)
        process.stopped = stopped
