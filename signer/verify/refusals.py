"""Collects the refusals of a request, of which the first one decides.

Until the quote is verified (Q2), the first refusal ends the verification: more reasons would be
those of a stranger (docs/decisions/0062-refused-and-overdue-renewals.md). After it, the checks go
on that need nothing which was refused. So a person sees every reason at one visit.
"""

from typing import Final, TypeVar

from common.errors import AttestationError, Denied, Waiting
from signer.kinds.attested_node import MAX_MESSAGE

T = TypeVar("T")


class UnprovedError(Exception):
    """A check needs what an earlier one refused: nobody learns whether it would pass."""


class Refusals:
    """The refusals of one request."""

    def __init__(self, *, goes_on: bool) -> None:
        """Let checks go on after a refusal, or let the first refusal end the verification."""
        self._goes_on = goes_on
        self._found: list[Denied | Waiting] = []

    @property
    def any(self) -> bool:
        """Whether a check has refused the request: no further check may call out."""
        return bool(self._found)

    def keeps(self, error: AttestationError | UnprovedError) -> bool:
        """Keep a refusal; return whether the checks go on, or else the caller raises it.

        After a refusal, what cannot be decided is no reason, and changes no verdict.
        """
        if self._goes_on and isinstance(error, (Denied, Waiting)):
            known = {(found.reason, found.message) for found in self._found}
            if (error.reason, error.message) not in known:
                self._found.append(error)
            return True
        return bool(self._found)

    def raise_first(self) -> None:
        """Raise the first refusal, which has the others as `further`, if there is one.

        No local name and no list keeps the error, whose frames have the request with its event log:
        so it goes with its last reference, and does not wait for the garbage collector.
        """
        if self._found:
            first, *further = self._found
            first.further = tuple(further)
            self._found = []
            try:
                raise first
            finally:
                del first, further


AT_ONCE: Final = Refusals(goes_on=False)
"""The first refusal ends the verification."""


def proved(value: T | None) -> T:
    """Return what a check proved. Raises `UnprovedError`: it was refused, or not made."""
    if value is None:
        raise UnprovedError
    return value


def describe_reasons(error: AttestationError) -> str:
    """Return the message with every further reason. It goes to no object that a node can read."""
    reasons = (f"{further.reason}: {further.message}" for further in error.further)
    return "; also ".join((error.message, *reasons))[:MAX_MESSAGE]
