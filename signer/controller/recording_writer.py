"""Notes the calls to one cluster's API server during one reconciliation: duration and writes."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, TypeVar

from common.names import CHALLENGE_ANNOTATION
from signer.kube.csrs import CsrClient
from signer.model import Csr

T = TypeVar("T")

SLOW_CALL_SECONDS: Final = 3.0
"""A healthy API server answers a write within one second. A call may take half a minute to fail.

Only the duration of a call counts for the circuit breaker of a cluster. A call that fails fast
holds no worker, and a requester can make its own request fail (422).
"""


class RecordingCsrWriter:
    """Passes calls on to a `CsrClient`; notes whether one was slow, and which versions it wrote."""

    def __init__(self, writer: CsrClient, monotonic: Callable[[], float]) -> None:
        self._writer = writer
        self._monotonic = monotonic
        self.slow: bool | None = None
        """Whether a call was slow; `None` before the first call."""
        self.replaced: set[str] = set()
        """resourceVersions of the CSR that a write replaced."""
        self.written: str | None = None
        """resourceVersion that the last write made."""
        self.attempted = False
        """Whether a write was attempted."""
        self.accepted = False
        """Whether the CSR got a challenge, an approval or a certificate."""

    def read(self, name: str) -> Csr | None:
        """Return the CSR as it is now."""
        return self._time(lambda: self._writer.read(name))

    def may_create(self, csr: Csr, subresource: str) -> bool:
        """Return whether RBAC allows the requester a subresource of CSRs."""
        return self._time(lambda: self._writer.may_create(csr, subresource))

    def annotate(self, csr: Csr, values: Mapping[str, str | None]) -> Csr:
        """Write annotations."""
        after = self._write(csr, lambda: self._writer.annotate(csr, values))
        self.accepted |= CHALLENGE_ANNOTATION in values
        return after

    def approve(self, csr: Csr, reason: str, message: str) -> Csr:
        """Add the condition Approved."""
        after = self._write(csr, lambda: self._writer.approve(csr, reason, message))
        self.accepted = True
        return after

    def deny(self, csr: Csr, reason: str, message: str) -> Csr:
        """Add the condition Denied."""
        return self._write(csr, lambda: self._writer.deny(csr, reason, message))

    def fail(self, csr: Csr, reason: str, message: str) -> Csr:
        """Add the condition Failed."""
        return self._write(csr, lambda: self._writer.fail(csr, reason, message))

    def set_certificate(self, csr: Csr, certificate: bytes) -> Csr:
        """Write the certificate."""
        after = self._write(csr, lambda: self._writer.set_certificate(csr, certificate))
        self.accepted = True
        return after

    def record_event(self, csr: Csr, reason: str, message: str, now: datetime) -> None:
        """Create an Event."""
        self._time(lambda: self._writer.record_event(csr, reason, message, now))

    def _write(self, csr: Csr, call: Callable[[], Csr]) -> Csr:
        self.attempted = True
        after = self._time(call)
        if after.resource_version != csr.resource_version:
            self.replaced.add(csr.resource_version)
        self.written = after.resource_version
        return after

    def _time(self, call: Callable[[], T]) -> T:
        started = self._monotonic()
        try:
            return call()
        finally:
            slow = self._monotonic() - started >= SLOW_CALL_SECONDS
            self.slow = slow or bool(self.slow)
