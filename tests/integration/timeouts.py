"""Calls that end by their budget. A busy machine needs more of it for the same progress."""

from collections.abc import Callable

from tests.harness.node import Call

SECONDS = (2, 4, 8, 16, 32)
QUIET = 5
"""Seconds after which a call that waits says why, before the line at its end."""


def within(seconds: int) -> str:
    """Return the flag that gives a call this budget and changes nothing else."""
    return f"--timeout-seconds={seconds}"


def enough(call: Callable[[str], Call], came_so_far: Callable[[Call], bool]) -> int:
    """Repeat a failing call with larger budgets until one is enough, and return that call."""
    ended = None
    for seconds in SECONDS:
        ended = call(within(seconds))
        assert ended.status == 1
        assert 1 <= ended.complaint.count("\n") <= (1 if seconds < QUIET else 2)
        if came_so_far(ended):
            return seconds
    raise AssertionError(f"no budget was enough: {ended}")
