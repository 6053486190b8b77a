"""The condition KubeletAttested: written only where it changes, next to those of others."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from common.errors import ApiServerUnavailable
from signer.inventory.cluster_api.machine_status import MachineCondition, MachineStatusClient
from signer.kube.transport.client import Request
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient
from tests.fakes.cluster_objects import CAPI

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
EARLIER = "2026-11-22T11:00:00Z"
WAITS = MachineCondition(
    namespace="team-a",
    name="machine-1",
    uid="uid-1",
    attested=False,
    reason="BootstrapNotReady",
    message="the bootstrap data is not ready",
)
BANNED = replace(WAITS, reason="EndorsementKeyBanned", message="banned", proved=True)
ATTESTED = replace(WAITS, attested=True, reason="Attested", message="it has a certificate")
OLD = {"type": "Ready", "status": "True"}
READY = {"type": "Ready", "status": "False", "reason": "NotReady", "extra": ["kept"]}


def entry(condition: MachineCondition, since: str) -> dict[str, Any]:
    return {
        "type": "KubeletAttested",
        "status": str(condition.attested),
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": since,
        "observedGeneration": 3,
    }


METADATA = {"name": "machine-1", "uid": "uid-1", "generation": 3}
MACHINES = f"/apis/{CAPI}/namespaces/team-a/machines"
EVENTS = "/api/v1/namespaces/team-a/events"


class Management(FakeCluster):
    """A management cluster with one Machine."""

    def __init__(self, *conditions: dict[str, Any], uid: str = "uid-1") -> None:
        super().__init__()
        self.put(
            MACHINES,
            {"metadata": {**METADATA, "uid": uid}, "status": {"conditions": list(conditions)}},
        )

    @property
    def conditions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.objects[f"{MACHINES}/machine-1"]["status"]["conditions"]
        return found

    @property
    def recorded(self) -> list[dict[str, Any]]:
        """Return the Events."""
        return [body for path, body in self.objects.items() if path.startswith(EVENTS)]

    def write(self, condition: MachineCondition) -> None:
        MachineStatusClient(FakeClient(self)).write(condition, NOW)


def test_condition_is_added_to_those_of_others() -> None:
    api = Management(READY)
    api.write(WAITS)
    assert api.conditions == [READY, entry(WAITS, "2026-11-22T12:00:00Z")]
    [event] = api.recorded
    assert (event["type"], event["reason"]) == ("Warning", "BootstrapNotReady")
    assert event["involvedObject"]["uid"] == "uid-1"


def test_namespace_that_refuses_events_gets_its_conditions(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A failure would pause the namespace after each condition."""
    api = Management()
    api.intercept(403, "POST", EVENTS, times=2)
    api.write(WAITS)
    assert api.conditions
    assert [r.message for r in caplog.records] == ["event about a machine not written"]
    with pytest.raises(ApiServerUnavailable):
        api.write(replace(WAITS, event_only=True))


def test_alarm_is_an_event_and_no_condition() -> None:
    """The node has attested, and an offer that is not proved must not change that."""
    api = Management(entry(ATTESTED, EARLIER))
    api.write(replace(WAITS, event_only=True))
    assert api.conditions == [entry(ATTESTED, EARLIER)]
    [event] = api.recorded
    assert (event["type"], event["reason"]) == ("Warning", "BootstrapNotReady")
    assert event["involvedObject"]["uid"] == "uid-1"


def test_path_of_the_machines_is_discovered_again_only_after_a_404() -> None:
    api = Management()
    client = MachineStatusClient(FakeClient(api))
    api.intercept(404, "GET", "/machine-1", skip=2)
    for times in (1, 1, 1, 2):
        client.write(WAITS, NOW)
        assert [r.path for r in api.requests].count("/apis/cluster.x-k8s.io") == times


def test_condition_of_v1beta1_is_in_its_own_list() -> None:
    api = FakeCluster()
    api.kinds["cluster.x-k8s.io/v1beta1"] = api.kinds.pop(CAPI)
    machines = MACHINES.replace("v1beta2", "v1beta1")
    api.put(
        machines,
        {
            "metadata": METADATA,
            "status": {"conditions": [OLD], "v1beta2": {"conditions": [READY]}},
        },
    )
    MachineStatusClient(FakeClient(api)).write(ATTESTED, NOW)
    written = [READY, entry(ATTESTED, "2026-11-22T12:00:00Z")]
    assert api.objects[f"{machines}/machine-1"]["status"] == {
        "conditions": [OLD],
        "v1beta2": {"conditions": written},
    }


@pytest.mark.parametrize(
    ("present", "condition"),
    [(WAITS, WAITS), (ATTESTED, ATTESTED), (ATTESTED, WAITS)],
    ids=["same reason", "attested again", "attested before"],
)
def test_nothing_is_written_where_nothing_may_change(
    present: MachineCondition, condition: MachineCondition
) -> None:
    api = Management(entry(present, EARLIER))
    api.write(condition)
    assert not api.writes


def test_ban_replaces_a_condition_that_is_true() -> None:
    api = Management(entry(ATTESTED, EARLIER))
    api.write(BANNED)
    assert api.conditions == [entry(BANNED, "2026-11-22T12:00:00Z")]


def test_time_of_the_transition_stays_while_the_status_does() -> None:
    api = Management(entry(WAITS, EARLIER))
    other = replace(WAITS, reason="MachineNotFound")
    api.write(other)
    assert api.conditions == [entry(other, EARLIER)]


def test_machine_that_is_gone_is_left_alone() -> None:
    gone, created_again = Management(), Management(uid="another")
    gone.objects.clear()
    for api in (gone, created_again):
        api.write(WAITS)
        assert not api.writes


def test_conflict_is_tried_again_with_a_new_read() -> None:
    api = Management()

    def meanwhile(_: Request) -> None:
        api.put(MACHINES, {"metadata": METADATA, "status": other})

    other = {"conditions": [READY]}
    api.intercept(meanwhile, "PATCH", times=2)
    api.write(WAITS)
    assert api.conditions == [READY, entry(WAITS, "2026-11-22T12:00:00Z")]
    assert len(api.recorded) == 1
    api.intercept(409, "PATCH", times=3)
    with pytest.raises(ApiServerUnavailable, match="too often"):
        api.write(BANNED)


def test_condition_of_an_earlier_generation_is_written_again_without_an_event() -> None:
    """A change of the Machine is no news about its node."""
    api = Management({**entry(ATTESTED, EARLIER), "observedGeneration": 2})
    api.write(ATTESTED)
    assert api.conditions == [entry(ATTESTED, EARLIER)]
    assert api.recorded == []
