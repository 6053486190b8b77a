"""The content of a run record."""

import contextlib

from authenticator.errors import RequestDenied
from authenticator.state.run_record import RunRecorder
from tests.fakes.clock import FakeClock


def test_run_that_is_killed_has_said_that_it_started() -> None:
    clock, said = FakeClock(), list[object]()
    run = RunRecorder(clock, "needed", said.append)
    assert said == [], "a run that has nothing to do writes only its result"
    with run.phase("offer"), run.phase("within"):
        [start] = said
    assert start == run.record("started") | {"phases": []}


def test_record_has_phases_and_reason() -> None:
    clock = FakeClock()
    run = RunRecorder(clock, "needed")
    clock.pass_time(0.5)
    with contextlib.suppress(ZeroDivisionError), run.phase("offer"):
        clock.pass_time(1.23456)
        raise ZeroDivisionError
    record = {
        "time": "2027-01-15T08:00:00Z",
        "purpose": "needed",
        "result": "failed",
        "seconds": 1.735,
        "phases": [{"name": "offer", "seconds": 1.235}],
    }
    assert run.record("failed") == record
    why = {"reason": "RequestDenied", "message": "no"}
    assert run.record("failed", RequestDenied("no")) == record | why
    denied = RequestDenied("no", detail="MachineNotFound")
    assert run.record("failed", denied) == record | why | {"signerReason": "MachineNotFound"}
    bug = run.record("failed", ZeroDivisionError("a secret"))
    assert bug["reason"] == "ZeroDivisionError"
    assert "secret" not in str(bug)
