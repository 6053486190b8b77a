"""What each step of a judgement has proved, told to whoever listens; it changes nothing.

A verdict alone does not say how far the checks came. Steps are told by the numbers of their checks,
in the order in which they are made, and only once they have passed. No secret is ever told.
"""

from typing import Protocol, TypeVar

T = TypeVar("T")


class CheckTrace(Protocol):
    """Hears what a step proved, and hands it on."""

    def __call__(self, checks: str, proved: T, /) -> T:
        """Hear of one step; `checks` are the numbers of the checks that it made, with blanks."""


def no_trace(checks: str, proved: T, /) -> T:  # noqa: ARG001 - nobody hears it
    """Listen to nothing."""
    return proved
