"""Measures the calls to one cluster's API server during one reconciliation."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeVar

from signer.controller.circuit_breaker import SLOW_CALL_SECONDS
from signer.controller.reconcile import CsrWriter
from signer.model import Csr

T = TypeVar("T")


class TimedCsrWriter:
    """Passes calls on to a `CsrWriter` and notes whether one was slow, for the circuit breaker."""

    def __init__(self, writer: CsrWriter, monotonic: Callable[[], float]) -> None:
        self._writer = writer
        self._monotonic = monotonic
        self.slow: bool | None = None
        """Whether a call was slow; `None` before the first call."""

    def read(self, name: str) -> Csr | None:
        """Return the CSR as it is now."""
        return self._time(lambda: self._writer.read(name))

    def annotate(self, csr: Csr, values: Mapping[str, str | None]) -> Csr:
        """Write annotations."""
        return self._time(lambda: self._writer.annotate(csr, values))

    def approve(self, csr: Csr, reason: str, message: str) -> Csr:
        """Add the condition Approved."""
        return self._time(lambda: self._writer.approve(csr, reason, message))

    def deny(self, csr: Csr, reason: str, message: str) -> Csr:
        """Add the condition Denied."""
        return self._time(lambda: self._writer.deny(csr, reason, message))

    def fail(self, csr: Csr, reason: str, message: str) -> Csr:
        """Add the condition Failed."""
        return self._time(lambda: self._writer.fail(csr, reason, message))

    def set_certificate(self, csr: Csr, certificate: bytes) -> Csr:
        """Write the certificate."""
        return self._time(lambda: self._writer.set_certificate(csr, certificate))

    def record_event(self, csr: Csr, reason: str, message: str, now: datetime) -> None:
        """Create an Event."""
        self._time(lambda: self._writer.record_event(csr, reason, message, now))

    def _time(self, call: Callable[[], T]) -> T:
        started = self._monotonic()
        try:
            return call()
        finally:
            slow = self._monotonic() - started >= SLOW_CALL_SECONDS
            self.slow = slow or bool(self.slow)
