"""Conditions of Machines: written once, bounded, and never changed by unproved requests."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest

from common.errors import ApiServerUnavailable
from signer.controller.reports import machine_reports
from signer.controller.reports.machine_reports import MachineReports
from signer.inventory.cluster_api.machine_status import MachineCondition, MachineStatusClient

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
WAITS = MachineCondition(
    namespace="team-a",
    name="machine-1",
    uid="uid-1",
    attested=False,
    reason="BootstrapNotReady",
    message="the bootstrap data is not ready",
)
DENIED = replace(WAITS, reason="EndorsementKeyMismatch", message="another key is registered")
BANNED = replace(
    WAITS, reason="EndorsementKeyBanned", message="the endorsement key is banned", proved=True
)
ATTESTED = replace(WAITS, attested=True, reason="Attested", message="it has a certificate")


@dataclass(slots=True)
class Reports(MachineStatusClient):
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
    at.note(ATTESTED)
    at.note(ALARM)
    assert at.written == [ATTESTED, ALARM]


def test_alarm_is_written_again_half_a_minute_later() -> None:
    """Its Event expires. The condition of the Machine is not written again."""
    at = Reports()
    at.note(ATTESTED)
    at.note(ALARM)
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


def test_machine_that_lost_its_condition_gets_it_again() -> None:
    """It equals what was written last, which was compared for as long as the signer ran."""
    at = Reports()
    for at.seconds in (0.0, 29.0, 30.0):
        at.note(ATTESTED)
    assert at.written == [ATTESTED, ATTESTED]


def test_alarm_that_fails_delays_no_condition_of_the_namespace() -> None:
    at = Reports(away=True)
    at.note(ALARM)
    at.away = False
    at.note(replace(ATTESTED, uid="uid-2"))
    assert [condition.uid for condition in at.written] == ["uid-2"]


def many(count: int, namespace: str) -> list[MachineCondition]:
    return [replace(WAITS, namespace=namespace, uid=f"{namespace}-{n}") for n in range(count)]


def test_requests_that_are_not_proved_do_not_displace_a_machine_that_attests(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A bootstrap token suffices to name every Machine of a Cluster, and filled the queue."""
    at = Reports()
    for condition in many(1001, "team-a"):
        at.reports.note(condition)
    at.note(replace(ATTESTED, uid="team-a-0"), replace(ATTESTED, uid="team-a-1000"))
    attested = [condition.uid for condition in at.written if condition.attested]
    assert sorted(attested) == ["team-a-0", "team-a-1000"]
    at.reports.log_dropped()
    at.reports.log_dropped()
    [record] = caplog.records
    assert record.message == "conditions of machines dropped"
    assert vars(record)["fields"] == {"namespace": "team-a", "count": 1}


def test_all_machines_that_attested_are_written_before_the_end() -> None:
    at = Reports()
    for condition in many(50, "team-a"):
        at.reports.note(replace(condition, attested=condition.uid != "team-a-7"))
    at.reports.flush_last()
    assert len(at.written) == 49
    assert all(condition.attested for condition in at.written)


def test_the_end_does_not_wait_for_an_api_server_that_is_away() -> None:
    at = Reports(away=True)
    at.reports.note(ATTESTED)
    at.reports.flush_last()
    assert len(at.reports._due) == 1


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
    assert at.reports._counts.total() == 0
