"""Trace of the checks that passed, for audit records and `explain`. It changes no verdict.

Checks are reported by number, in order, after they have passed. The trace never receives a secret.
"""

from typing import Protocol, TypeVar

T = TypeVar("T")


class CheckTrace(Protocol):
    """Receives each step that passed."""

    def __call__(self, checks: str, proved: T, /) -> T:
        """Record a step and return `proved`; `checks` are its numbers, separated by blanks."""


def no_trace(checks: str, proved: T, /) -> T:  # noqa: ARG001 - the signature is the protocol's
    """Record nothing."""
    return proved
