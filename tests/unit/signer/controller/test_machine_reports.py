"""Conditions of Machines: written once, bounded, and never changed by unproved requests."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest

from common.errors import ApiServerUnavailable
from signer.controller import machine_reports
from signer.controller.machine_reports import MachineReports
from signer.inventory.machine_status import MachineCondition

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
WAITS = MachineCondition(
    namespace="team-a",
    name="machine-1",
    uid="uid-1",
    attested=False,
    reason="BootstrapNotReady",
    message="the bootstrap data is not ready",
)
DENIED = replace(WAITS, reason="EndorsementKeyMismatch", message="another key is on record")
BANNED = replace(
    WAITS, reason="EndorsementKeyBanned", message="the endorsement key is banned", by_operator=True
)
ATTESTED = replace(WAITS, attested=True, reason="Attested", message="it has a certificate")


@dataclass(slots=True)
class Reports:
    """Reports, and what was written."""

    seconds: float = 0.0
    away: bool = False
    written: list[MachineCondition] = field(default_factory=list)
    reports: MachineReports = field(init=False)

    def __post_init__(self) -> None:
        self.reports = MachineReports(self, now=lambda: NOW, monotonic=lambda: self.seconds)

    def write(self, condition: MachineCondition, now: datetime) -> None:
        assert now == NOW
        if self.away:
            raise ApiServerUnavailable("away")
        self.written.append(condition)

    def note(self, *conditions: MachineCondition) -> None:
        for condition in conditions:
            self.reports.note(condition)
        self.reports.flush()


ALARM = replace(WAITS, reason="RequesterCredentialUnknown", message="other", event_only=True)


def test_alarm_is_written_for_a_machine_that_has_attested() -> None:
    at = Reports()
    at.note(ATTESTED, ALARM)
    assert at.written == [ATTESTED, ALARM]


def test_alarm_is_written_again_half_a_minute_later() -> None:
    """Its Event expires. The condition of the Machine is not written again."""
    at = Reports()
    at.note(ATTESTED, ALARM)
    at.note(ATTESTED, ALARM)
    at.seconds = 30.0
    at.note()
    assert at.written == [ATTESTED, ALARM, ALARM]


def test_same_condition_is_written_once() -> None:
    at = Reports()
    at.note(WAITS, WAITS)
    at.note(WAITS)
    assert at.written == [WAITS]


def test_two_requests_that_name_one_machine_do_not_write_without_end() -> None:
    """A stolen bootstrap token and the real node wait for different reasons."""
    at = Reports()
    for _ in range(10):
        at.note(WAITS)
        at.note(DENIED)
    assert at.written == [WAITS]
    at.seconds += 31
    at.note()
    assert at.written == [WAITS, DENIED]


def test_machine_that_attests_is_written_at_once() -> None:
    at = Reports()
    at.note(WAITS)
    at.note(ATTESTED)
    assert at.written == [WAITS, ATTESTED]


@pytest.mark.parametrize("flush", [True, False])
def test_request_does_not_change_a_machine_that_has_attested(*, flush: bool) -> None:
    at = Reports()
    at.reports.note(ATTESTED)
    if flush:
        at.reports.flush()
    at.seconds += 31
    at.note(DENIED)
    assert at.written == [ATTESTED]


def test_ban_replaces_the_condition_of_a_machine_that_has_attested_at_once() -> None:
    at = Reports()
    at.note(ATTESTED)
    at.note(BANNED)
    at.note(BANNED)
    assert at.written == [ATTESTED, BANNED]


def test_request_does_not_change_a_machine_whose_node_is_banned() -> None:
    at = Reports()
    at.note(BANNED)
    at.seconds += 31
    at.note(DENIED)
    assert at.written == [BANNED]
    at.note(ATTESTED)
    assert at.written == [BANNED, ATTESTED]


@pytest.mark.parametrize("condition", [WAITS, ATTESTED])
def test_failed_write_is_tried_again_after_a_pause(
    condition: MachineCondition, caplog: pytest.LogCaptureFixture
) -> None:
    at = Reports(away=True)
    for _ in range(5):
        at.note(condition)
    assert [r.message for r in caplog.records] == ["machine not reported"]
    at.away, at.seconds = False, 31
    at.note()
    assert at.written == [condition]


def many(count: int, namespace: str) -> list[MachineCondition]:
    return [replace(WAITS, namespace=namespace, uid=f"{namespace}-{n}") for n in range(count)]


def test_namespace_with_many_machines_delays_only_its_own() -> None:
    at = Reports()
    at.note(*many(100, "large"), *many(1, "small"))
    assert len(at.written) == 21
    assert at.written[-1].namespace == "small"


def test_condition_of_a_forgotten_machine_goes_to_the_writer_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The writer reads the Machine, and leaves a condition that is true."""
    monkeypatch.setattr(machine_reports, "_MAX_WRITTEN", 1)
    at = Reports()
    other = replace(ATTESTED, uid="uid-2")
    at.note(ATTESTED)
    at.note(other)
    at.note(WAITS)
    assert at.written == [ATTESTED, other, WAITS]


@pytest.mark.parametrize("limit", ["_MAX_DUE", "_MAX_WRITTEN"])
def test_memory_is_bounded(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_reports, limit, 5)
    at = Reports()
    sizes: dict[str, Callable[[], int]] = {
        "_MAX_DUE": lambda: len(at.reports._due),
        "_MAX_WRITTEN": lambda: len(at.reports._written),
    }
    for condition in many(10, "team-a"):
        at.reports.note(condition)
    if limit == "_MAX_WRITTEN":
        at.reports.flush()
    assert sizes[limit]() == 5
    at.reports.flush()
    assert at.reports._due == {}
    assert at.reports._counts["team-a"] == 0
