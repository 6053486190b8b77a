"""The time of calls to a cluster's API server is noticed, whatever they return or raise."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from common.errors import ApiServerUnavailable
from common.names import CHALLENGE_ANNOTATION
from signer.controller.recording_writer import RecordingCsrWriter
from signer.errors import CsrChanged
from signer.fairness.circuit_breaker import SLOW_SECONDS
from signer.kinds.csr import Csr
from tests.builders.scenario import NOW, Scenario
from tests.fakes.csrs import FakeCsrs

CALLS: dict[str, Callable[[RecordingCsrWriter, Csr], object]] = {
    "read": lambda writer, csr: writer.read(csr.name),
    "annotate": lambda writer, csr: writer.annotate(csr, {"a": "b"}),
    "approve": lambda writer, csr: writer.approve(csr, "R", "m"),
    "deny": lambda writer, csr: writer.deny(csr, "R", "m"),
    "fail": lambda writer, csr: writer.fail(csr, "R", "m"),
    "set_certificate": lambda writer, csr: writer.set_certificate(csr, b"c"),
    "record_event": lambda writer, csr: writer.record_event(csr, "R", "m", NOW),
}


@dataclass(slots=True)
class SlowCsrs(FakeCsrs):
    """An API server whose calls take a while, and may fail after that."""

    now: float = 0.0
    takes: float = 0.0
    error: Exception | None = None
    clock: Callable[[], float] = field(init=False)

    def __post_init__(self) -> None:
        self.clock = self._tick

    def _tick(self) -> float:
        # Called before and after each call.
        self.now += self.takes
        return self.now


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
@pytest.mark.parametrize("takes", [0.0, SLOW_SECONDS])
def test_each_call_is_measured_and_passed_on(
    call: Callable[[RecordingCsrWriter, Csr], object], takes: float
) -> None:
    csrs = SlowCsrs(takes=takes)
    writer = RecordingCsrWriter(csrs, csrs.clock)
    assert writer.seconds is None
    call(writer, csrs.put(Scenario().offer_csr()))
    assert writer.seconds == takes


def unavailable(cause: Exception | None) -> ApiServerUnavailable:
    error = ApiServerUnavailable("any")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("takes", "error", "seconds"),
    [
        (SLOW_SECONDS, unavailable(TimeoutError()), math.inf),
        (0.1, unavailable(ConnectionRefusedError()), 0.1),
        (SLOW_SECONDS, unavailable(None), SLOW_SECONDS),
        (SLOW_SECONDS, CsrChanged("any"), SLOW_SECONDS),
    ],
    ids=["no answer", "no connection, at once", "status 500", "conflict"],
)
def test_only_a_call_that_waits_and_gets_no_answer_does_not_end(
    takes: float, error: Exception, seconds: float
) -> None:
    """The slowest call of a reconciliation counts."""

    def fail() -> None:
        raise error

    csrs = SlowCsrs(takes=takes, interrupt=fail)
    writer = RecordingCsrWriter(csrs, csrs.clock)
    csr = csrs.put(Scenario().offer_csr())
    with pytest.raises(type(error)):
        writer.annotate(csr, {"a": "b"})
    csrs.takes = 0.0
    writer.read(csr.name)
    assert writer.seconds == seconds


def test_the_versions_that_writes_replaced_and_made_are_noted() -> None:
    csrs = FakeCsrs()
    writer = RecordingCsrWriter(csrs, lambda: 0.0)
    csr = csrs.put(Scenario().offer_csr())
    approved = writer.approve(csr, "R", "m")
    certified = writer.set_certificate(approved, b"c")
    assert writer.replaced == {csr.resource_version, approved.resource_version}
    assert writer.written == certified.resource_version


def test_a_write_that_fails_replaces_no_version() -> None:
    csrs = FakeCsrs()
    writer = RecordingCsrWriter(csrs, lambda: 0.0)
    stale = csrs.put(Scenario().offer_csr())
    csrs.put(stale)
    with pytest.raises(CsrChanged):
        writer.approve(stale, "R", "m")
    assert (writer.replaced, writer.written) == (set(), None)


ACCEPTING = {"approve", "set_certificate", "challenge"}
WRITES = CALLS | {"challenge": lambda writer, csr: writer.annotate(csr, {CHALLENGE_ANNOTATION: ""})}


@pytest.mark.parametrize("call", WRITES)
def test_a_challenge_an_approval_and_a_certificate_accept_a_request(call: str) -> None:
    """Only these give a tenant CPU time back: a request that is denied or waits does not."""
    csrs = FakeCsrs()
    writer = RecordingCsrWriter(csrs, lambda: 0.0)
    WRITES[call](writer, csrs.put(Scenario().offer_csr()))
    assert writer.accepted == (call in ACCEPTING)
