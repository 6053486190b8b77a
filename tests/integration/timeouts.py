"""Calls that end by their budget; how much of it a busy machine needs to come anywhere varies."""

from collections.abc import Callable

from tests.harness.node import Call

SECONDS = (2, 4, 8, 16, 32)


def within(seconds: int) -> str:
    """Return the flag that gives a call this budget; it changes nothing else of the call."""
    return f"--timeout-seconds={seconds}"


def enough(call: Callable[[str], Call], came_so_far: Callable[[Call], bool]) -> int:
    """Make a call that fails with ever larger budgets until one was enough, and return that."""
    ended = None
    for seconds in SECONDS:
        ended = call(within(seconds))
        assert ended.status == 1
        assert ended.complaint.count("\n") == 1
        if came_so_far(ended):
            return seconds
    raise AssertionError(f"no budget was enough: {ended}")
