"""Trace of the checks that passed, for audit records and `explain`. It changes no verdict.

Checks are reported by number, in order, after they have passed. The trace never receives a secret.
"""

from typing import Protocol, TypeVar

from signer.verify.checks import Step

T = TypeVar("T")


class CheckTrace(Protocol):
    """Receives each step that passed."""

    def __call__(self, step: Step, proved: T, /) -> T:
        """Record a step and return `proved`."""


def no_trace(step: Step, proved: T, /) -> T:  # noqa: ARG001 - the signature is the protocol's
    """Record nothing."""
    return proved
