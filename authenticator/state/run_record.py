"""Two records per run: that it started, and its result with the duration of each phase.

A run that was killed has only the first. A run that has nothing to do has only the second.

Records hold no secrets: times, names of phases, reasons and messages of errors, names of CSRs.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from authenticator.model import Clock
from authenticator.state.credential import rfc3339
from common.errors import AttestationError

STARTED: Final = "started"
DONE: Final = "done"
FAILED: Final = "failed"
_logger = logging.getLogger(__name__)


class RunRecorder:
    """Records one run of the program, and how long each of its phases takes."""

    __slots__ = ("_announce", "_began", "_clock", "_phases", "_purpose", "_started", "has_begun")

    def __init__(
        self,
        clock: Clock,
        purpose: str,
        announce: Callable[[Mapping[str, object]], None] = lambda _: None,
    ) -> None:
        """`announce` gets the record of the start, before the first phase."""
        self.has_begun = False
        self._announce = announce
        self._clock = clock
        self._purpose = purpose
        self._started = clock.now()
        self._began = clock.boottime()
        self._phases: list[dict[str, object]] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what happens inside, also when it fails."""
        if not self.has_begun:
            self.has_begun = True
            self._announce(self.record(STARTED))
        began, outcome = self._clock.boottime(), "failed"
        try:
            yield
            outcome = "done"
        finally:
            seconds = self._since(began)
            self._phases.append({"name": name, "seconds": seconds})
            _logger.debug("phase %s: %s after %.3f s", name, outcome, seconds)

    def record(self, result: str, error: BaseException | None = None) -> dict[str, object]:
        """Return the record: `result` is one word; `error` adds its reason and message."""
        record: dict[str, object] = {
            "time": rfc3339(self._started),
            "purpose": self._purpose,
            "result": result,
            "seconds": self._since(self._began),
            "phases": [*self._phases],
        }
        if error is not None:
            record |= describe_error(error)
        return record

    def _since(self, began: float) -> float:
        return round(self._clock.boottime() - began, 3)


def describe_error(error: BaseException) -> dict[str, object]:
    """Return reason and message of an error; the reason of a bug is its type."""
    if not isinstance(error, AttestationError):
        return {"reason": type(error).__name__, "message": "a bug: see the log for its traceback"}
    description: dict[str, object] = {"reason": error.reason, "message": error.message}
    if error.detail:
        description["signerReason"] = error.detail
    return description
