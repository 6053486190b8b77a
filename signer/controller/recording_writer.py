"""Notes the calls to one cluster's API server during one reconciliation: duration and writes."""

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeVar

from common.errors import ApiServerUnavailable
from common.names import CHALLENGE_ANNOTATION
from signer.fairness.circuit_breaker import SLOW_SECONDS
from signer.kinds.csr import Csr
from signer.kube.csrs import CsrClient

T = TypeVar("T")


class RecordingCsrWriter:
    """Passes calls on to a `CsrClient`; notes how long they took, and which versions they wrote.

    For the circuit breaker of a cluster, a call fails if a connection takes long and brings no
    answer. A call that fails fast holds no worker, and a requester can make its own request fail
    (422).
    """

    def __init__(self, writer: CsrClient, monotonic: Callable[[], float]) -> None:
        self._writer = writer
        self._monotonic = monotonic
        self.seconds: float | None = None
        """How long the slowest call took, infinite without an answer; `None` before the first."""
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
        started, answered = self._monotonic(), True
        try:
            return call()
        except ApiServerUnavailable as error:
            answered = not isinstance(error.__cause__, OSError)
            raise
        finally:
            seconds = self._monotonic() - started
            if not answered and seconds >= SLOW_SECONDS:
                seconds = math.inf
            self.seconds = max(seconds, self.seconds or 0.0)
