"""What each step of a judgement has proved, told to whoever listens; it changes nothing.

A verdict alone does not say how far the checks came. Steps are told by the numbers of their checks,
in the order in which they are made, and only once they have passed. No secret is ever told.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
Listener = Callable[[str, object], None]
"""Hears the numbers of the checks that a step made, divided by blanks, and what it proved."""


def unheard(checks: str, proved: object) -> None:
    """Listen to nothing."""


@dataclass(frozen=True, slots=True)
class Telling:
    """Tells a listener, and hands on what was told."""

    listener: Listener

    def __call__(self, checks: str, proved: T) -> T:
        """Tell of one step."""
        self.listener(checks, proved)
        return proved
