"""The condition KubeletAttested: written only where it changes, next to those of others."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from common.errors import ApiServerUnavailable
from signer.inventory import machine_status
from signer.inventory.machine_status import MachineCondition, MachineStatusClient
from signer.kube.client import ApiClient, Response

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
BANNED = replace(WAITS, reason="EndorsementKeyBanned", message="banned", by_operator=True)
ATTESTED = replace(WAITS, attested=True, reason="Attested", message="it has a certificate")
READY = {"type": "Ready", "status": "False", "reason": "NotReady", "extra": ["kept"]}


def entry(condition: MachineCondition, since: str) -> dict[str, Any]:
    return {
        "type": "KubeletAttested",
        "status": str(condition.attested),
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": since,
    }


@dataclass(slots=True)
class Api:
    """One Machine on an API server; the first `conflicts` writes meet another one's."""

    conditions: list[dict[str, Any]] | None = field(default_factory=lambda: [READY])
    version: str = "v1beta2"
    uid: str = "uid-1"
    conflicts: int = 0
    writes: list[Mapping[str, Any]] = field(default_factory=list)
    events: list[Mapping[str, Any]] = field(default_factory=list)

    def get(self, path: str, *, accepted: object) -> Response:
        assert accepted
        collection = f"/apis/cluster.x-k8s.io/{self.version}/namespaces/team-a/machines"
        assert path == f"{collection}/machine-1"
        if self.conditions is None:
            return Response(status=404, content=b"{}")
        written = {"conditions": self.conditions}
        body = {
            "metadata": {"uid": self.uid, "resourceVersion": "7"},
            "status": {"v1beta2": written} if self.version == "v1beta1" else written,
        }
        return Response(status=200, content=json.dumps(body).encode())

    def merge_patch(self, path: str, body: Mapping[str, Any], *, accepted: object) -> Response:
        assert accepted
        assert path.endswith("/machines/machine-1/status")
        assert body["metadata"] == {"resourceVersion": "7"}
        self.conflicts -= 1
        if self.conflicts >= 0:
            return Response(status=409, content=b"{}")
        self.writes.append(body["status"])
        return Response(status=200, content=b"{}")

    def create(self, _: str, body: Mapping[str, Any], *, accepted: object) -> Response:
        assert accepted
        self.events.append(body)
        return Response(status=201, content=b"{}")

    def write(self, condition: MachineCondition, monkeypatch: pytest.MonkeyPatch) -> None:
        path = f"/apis/cluster.x-k8s.io/{self.version}/machines"
        monkeypatch.setattr(machine_status, "collection_path", lambda *_: path)
        MachineStatusClient(cast("ApiClient", self)).write(condition, NOW)


def test_condition_is_added_to_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api()
    api.write(WAITS, monkeypatch)
    assert api.writes == [{"conditions": [READY, entry(WAITS, "2026-11-22T12:00:00Z")]}]
    [event] = api.events
    assert (event["type"], event["reason"]) == ("Warning", "BootstrapNotReady")
    assert event["involvedObject"]["uid"] == "uid-1"
    assert event["metadata"]["namespace"] == "team-a"


def test_alarm_is_an_event_and_no_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node has attested, and an offer that is not proved must not change that."""
    api = Api(conditions=[entry(ATTESTED, EARLIER)])
    api.write(replace(WAITS, event_only=True), monkeypatch)
    assert api.writes == []
    [event] = api.events
    assert (event["type"], event["reason"]) == ("Warning", "BootstrapNotReady")
    assert event["involvedObject"]["uid"] == "uid-1"


def test_path_of_the_machines_is_discovered_again_only_after_a_404(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    discovered: list[str] = []

    def discover(*_: object) -> str:
        discovered.append("")
        return "/apis/cluster.x-k8s.io/v1beta2/machines"

    monkeypatch.setattr(machine_status, "collection_path", discover)
    api = Api()
    client = MachineStatusClient(cast("ApiClient", api))
    for conditions, times in (([READY], 1), ([READY], 1), (None, 1), ([READY], 2)):
        api.conditions = conditions
        client.write(WAITS, NOW)
        assert len(discovered) == times


def test_condition_of_v1beta1_is_in_its_own_list(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api(version="v1beta1")
    api.write(ATTESTED, monkeypatch)
    [written] = api.writes
    assert written == {"v1beta2": {"conditions": [READY, entry(ATTESTED, "2026-11-22T12:00:00Z")]}}


@pytest.mark.parametrize(
    ("present", "condition"),
    [(WAITS, WAITS), (ATTESTED, ATTESTED), (ATTESTED, WAITS)],
    ids=["same reason", "attested again", "attested before"],
)
def test_nothing_is_written_where_nothing_may_change(
    present: MachineCondition, condition: MachineCondition, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Api(conditions=[entry(present, EARLIER)])
    api.write(condition, monkeypatch)
    assert (api.writes, api.events) == ([], [])


def test_ban_replaces_a_condition_that_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api(conditions=[entry(ATTESTED, EARLIER)])
    api.write(BANNED, monkeypatch)
    assert api.writes == [{"conditions": [entry(BANNED, "2026-11-22T12:00:00Z")]}]


def test_time_of_the_transition_stays_while_the_status_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api = Api(conditions=[entry(WAITS, EARLIER)])
    other = replace(WAITS, reason="MachineNotFound")
    api.write(other, monkeypatch)
    assert api.writes == [{"conditions": [entry(other, EARLIER)]}]


@pytest.mark.parametrize("api", [Api(conditions=None), Api(uid="another")], ids=["gone", "new"])
def test_machine_that_is_gone_is_left_alone(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    api.write(WAITS, monkeypatch)
    assert (api.writes, api.events) == ([], [])


def test_conflict_is_tried_again_with_a_new_read(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api(conflicts=2)
    api.write(WAITS, monkeypatch)
    assert len(api.writes) == len(api.events) == 1
    with pytest.raises(ApiServerUnavailable, match="too often"):
        Api(conflicts=3).write(WAITS, monkeypatch)
