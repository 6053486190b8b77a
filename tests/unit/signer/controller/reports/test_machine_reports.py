"""Conditions of Machines: written once, bounded, and never changed by unproved requests."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from signer.controller.reports import machine_reports
from signer.controller.reports.machine_reports import MachineReports
from signer.inventory.cluster_api.machine_status import MachineCondition, MachineStatusClient
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient
from tests.fakes.cluster_objects import CAPI

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


MACHINES = f"/apis/{CAPI}/namespaces/team-a/machines"


@dataclass(slots=True)
class Reports:
    """Reports to a management cluster with Machines, `machine-1` and further ones."""

    machines: int = 1
    seconds: float = 0.0
    api: FakeCluster = field(default_factory=FakeCluster)
    reports: MachineReports = field(init=False)

    def __post_init__(self) -> None:
        client = MachineStatusClient(FakeClient(self.api))
        self.reports = MachineReports(client, now=lambda: NOW, monotonic=lambda: self.seconds)
        self.lose_conditions()

    def lose_conditions(self) -> None:
        numbers = range(1, self.machines + 1)
        machines = [{"metadata": {"name": f"machine-{n}", "uid": f"uid-{n}"}} for n in numbers]
        self.api.put(MACHINES, *machines)

    def away(self) -> None:
        self.api.intercept(503, times=math.inf)

    def back(self) -> None:
        self.api.interceptions.clear()
        self.api.requests.clear()

    @property
    def written(self) -> list[tuple[str, str]]:
        """The Machine and the reason of each Event, which tells of a change or an alarm."""
        events: list[Any] = [r.body for r in self.api.writes if r.path.endswith("/events")]
        return [(event["involvedObject"]["name"], event["reason"]) for event in events]

    def note(self, *conditions: MachineCondition) -> None:
        for condition in conditions:
            self.reports.note(condition)
        self.reports.flush()


def of(number: int, condition: MachineCondition) -> MachineCondition:
    return replace(condition, name=f"machine-{number}", uid=f"uid-{number}")


def names_and_reasons(*conditions: MachineCondition) -> list[tuple[str, str]]:
    return [(condition.name, condition.reason) for condition in conditions]


ALARM = replace(WAITS, reason="RequesterCredentialUnknown", message="other", event_only=True)


def test_alarm_of_a_machine_that_has_attested_is_written_each_half_a_minute() -> None:
    """Its Event expires. The condition of the Machine is not written again."""
    at = Reports()
    at.note(ATTESTED)
    at.note(ALARM)
    at.note(ATTESTED, ALARM)
    at.seconds = 30.0
    at.note()
    assert at.written == names_and_reasons(ATTESTED, ALARM, ALARM)


def test_same_condition_is_written_once() -> None:
    at = Reports()
    at.note(WAITS, WAITS)
    at.note(WAITS)
    assert at.written == names_and_reasons(WAITS)


def test_two_requests_that_name_one_machine_do_not_write_without_end() -> None:
    """A stolen bootstrap token and the real node wait for different reasons."""
    at = Reports()
    for _ in range(10):
        at.note(WAITS)
        at.note(DENIED)
    assert at.written == names_and_reasons(WAITS)
    at.seconds += 31
    at.note()
    assert at.written == names_and_reasons(WAITS, DENIED)


def test_machine_that_attests_is_written_at_once() -> None:
    at = Reports()
    at.note(WAITS)
    at.note(ATTESTED)
    assert at.written == names_and_reasons(WAITS, ATTESTED)


@pytest.mark.parametrize("flush", [True, False])
def test_request_does_not_change_a_machine_that_has_attested(*, flush: bool) -> None:
    at = Reports()
    at.reports.note(ATTESTED)
    if flush:
        at.reports.flush()
    at.seconds += 31
    at.note(DENIED)
    assert at.written == names_and_reasons(ATTESTED)


def test_ban_replaces_the_condition_of_a_machine_that_has_attested_at_once() -> None:
    at = Reports()
    at.note(ATTESTED)
    at.note(BANNED)
    at.note(BANNED)
    assert at.written == names_and_reasons(ATTESTED, BANNED)


def test_request_does_not_change_a_machine_whose_node_is_banned() -> None:
    at = Reports()
    at.note(BANNED)
    at.seconds += 31
    at.note(DENIED)
    assert at.written == names_and_reasons(BANNED)
    at.note(ATTESTED)
    assert at.written == names_and_reasons(BANNED, ATTESTED)


@pytest.mark.parametrize("condition", [WAITS, ATTESTED])
def test_failed_write_is_tried_again_after_a_pause(
    condition: MachineCondition, caplog: pytest.LogCaptureFixture
) -> None:
    at = Reports()
    at.away()
    for _ in range(5):
        at.note(condition)
    assert [r.message for r in caplog.records] == ["machine not reported"]
    at.back()
    at.seconds = 31
    at.note()
    assert at.written == names_and_reasons(condition)


def test_machine_that_lost_its_condition_gets_it_again() -> None:
    """It equals what was written last, which was compared for as long as the signer ran."""
    at = Reports()
    for at.seconds in (0.0, 29.0, 30.0):
        at.lose_conditions()
        at.note(ATTESTED)
    assert at.written == names_and_reasons(ATTESTED, ATTESTED)


def test_alarm_that_fails_delays_no_condition_of_the_namespace() -> None:
    at = Reports(machines=2)
    at.away()
    at.note(ALARM)
    at.back()
    at.note(of(2, ATTESTED))
    assert at.written == names_and_reasons(of(2, ATTESTED))


def many(count: int) -> list[MachineCondition]:
    return [of(number, WAITS) for number in range(1, count + 1)]


def test_requests_that_are_not_proved_do_not_displace_a_machine_that_attests(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A bootstrap token suffices to name every Machine of a Cluster, and filled the queue."""
    at = Reports(machines=1001)
    for condition in many(1001):
        at.reports.note(condition)
    at.note(of(1, ATTESTED), of(1001, ATTESTED))
    attested = {machine for machine, reason in at.written if reason == "Attested"}
    assert attested == {"machine-1", "machine-1001"}
    at.reports.log_dropped()
    at.reports.log_dropped()
    [record] = caplog.records
    assert record.message == "conditions of machines dropped"
    assert vars(record)["fields"] == {"namespace": "team-a", "count": 1}


def test_all_machines_that_attested_are_written_before_the_end() -> None:
    at = Reports(machines=50)
    for number in range(1, 51):
        at.reports.note(of(number, WAITS if number == 7 else ATTESTED))
    at.reports.flush_last()
    assert len(set(at.written)) == 49
    assert {reason for _, reason in at.written} == {"Attested"}


def test_the_end_does_not_wait_for_an_api_server_that_is_away() -> None:
    at = Reports()
    at.away()
    at.reports.note(ATTESTED)
    at.reports.flush_last()
    assert len(at.reports._due) == 1


def test_condition_of_a_forgotten_machine_goes_to_the_writer_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The writer reads the Machine, and leaves a condition that is true."""
    monkeypatch.setattr(machine_reports, "_MAX_WRITTEN", 1)
    at = Reports(machines=2)
    for condition in (ATTESTED, of(2, ATTESTED), WAITS):
        at.note(condition)
    assert at.written == names_and_reasons(ATTESTED, of(2, ATTESTED))
    assert at.api.requests[-1].path == f"{MACHINES}/machine-1"


@pytest.mark.parametrize("limit", ["_MAX_DUE", "_MAX_WRITTEN"])
def test_memory_is_bounded(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_reports, limit, 5)
    at = Reports(machines=10)
    sizes: dict[str, Callable[[], int]] = {
        "_MAX_DUE": lambda: len(at.reports._due),
        "_MAX_WRITTEN": lambda: len(at.reports._written),
    }
    for condition in many(10):
        at.reports.note(condition)
    if limit == "_MAX_WRITTEN":
        at.reports.flush()
    assert sizes[limit]() == 5
    at.reports.flush()
    assert at.reports._due == {}
    assert at.reports._counts.total() == 0
