"""Conditions that follow from claims: on the Machine whose node has the key, and on no other."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from common.formats.strict_json import format_time
from signer.claims.node_problem import NodeProblem, ProblemKind
from signer.controller.reports.derived_conditions import (
    CountsByCluster,
    NodeCounts,
    enqueue_bans,
    enqueue_conditions,
)
from signer.controller.reports.machine_reports import ATTESTED_MESSAGE, MachineReports
from signer.inventory.caches import ManagementCaches
from signer.inventory.cluster_api.machine_object import (
    CONDITION,
    AttestedCondition,
    MachineObject,
    read_machine,
)
from signer.inventory.cluster_api.machine_status import MachineCondition, MachineStatusClient
from signer.kinds.attested_node import AttestedNodeObject, Refusal
from signer.kinds.cluster import ClusterKey
from signer.kinds.endorsement_key import EndorsementKeyObject, KeyHolder, Release
from signer.seams import WentBack
from tests.builders.attested_nodes import attested_node
from tests.builders.endorsement_keys import BAN, endorsement_key, key_holder
from tests.fakes.caches import FakeCaches
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient
from tests.fakes.cluster_objects import MACHINES

CLUSTER = ClusterKey(namespace="team-a", name="blue")
ATTESTED_AT = datetime(2026, 11, 22, tzinfo=UTC)
NOW = ATTESTED_AT + timedelta(days=1)
KEY = endorsement_key("ab" * 32, held_by=key_holder(CLUSTER, provider_id="metal3://1"))
BANNED = KEY.replace(banned=BAN)
NODE = attested_node(
    CLUSTER,
    provider_id="metal3://1",
    machine_uid="u",
    key=KEY.name,
    credential_ids=("X509SHA256=1",),
    last_attested=ATTESTED_AT,
)


def machine_body(*conditions: Mapping[str, object], **metadata: object) -> dict[str, Any]:
    return {
        "metadata": {"name": "machine-1", "namespace": "team-a", "uid": "u", **metadata},
        "spec": {"clusterName": "blue", "providerID": "metal3://1"},
        "status": {"conditions": list(conditions)},
    }


def machine_object(*conditions: Mapping[str, object], **metadata: object) -> MachineObject:
    return read_machine(machine_body(*conditions, **metadata))


def caches_with(
    key: EndorsementKeyObject, node: AttestedNodeObject | None, machine: MachineObject
) -> ManagementCaches:
    caches = FakeCaches()
    caches.machines.replace({f"team-a/{machine.name}": machine})
    caches.pools.replace({})
    caches.clusters.replace({})
    caches.keys.replace({key.name: key})
    caches.nodes.replace({} if node is None else {f"team-a/{node.name}": node})
    caches.set_went_back({CLUSTER: None})
    return caches


def noted(
    *,
    key: EndorsementKeyObject = BANNED,
    node: AttestedNodeObject | None = NODE,
    serves: Callable[[ClusterKey], bool] = lambda _: True,
) -> list[MachineCondition]:
    conditions: list[MachineCondition] = []
    enqueue_bans(caches_with(key, node, machine_object()), conditions.append, serves)
    return conditions


def test_ban_is_noted_for_the_machine_of_the_node() -> None:
    [condition] = noted()
    assert (condition.namespace, condition.name, condition.uid) == ("team-a", "machine-1", "u")
    assert (condition.attested, condition.proved) == (False, True)
    assert condition.reason == "EndorsementKeyBanned"
    assert noted(serves=lambda cluster: cluster != CLUSTER) == [], "another replica notes it"


@pytest.mark.parametrize(
    ("key", "node"),
    [
        (KEY, NODE),
        (BANNED.replace(held_by=None), NODE),
        (BANNED, None),
        (BANNED, NODE.replace(endorsement_key="cd" * 32)),
        (BANNED, NODE.replace(machine_name="machine-0")),
    ],
    ids=["not banned", "not held", "never attested", "another TPM since", "a former Machine"],
)
def test_other_machines_are_not_noted(
    key: EndorsementKeyObject, node: AttestedNodeObject | None
) -> None:
    assert noted(key=key, node=node) == []


def attested(
    *,
    key: EndorsementKeyObject = KEY,
    node: AttestedNodeObject = NODE,
    condition: AttestedCondition | None = None,
    machine: Mapping[str, str] | None = None,
    serves: Callable[[ClusterKey], bool] = lambda _: True,
) -> list[MachineCondition]:
    """Return what is noted for a Machine with this condition and these changes of its metadata."""
    shown = [] if condition is None else [as_object(condition)]
    caches = caches_with(key, node, machine_object(*shown, **(machine or {})))
    conditions: list[MachineCondition] = []
    enqueue_conditions(caches, conditions.append, serves, NOW)
    return conditions


def as_object(condition: AttestedCondition) -> Mapping[str, str]:
    return {
        "type": CONDITION,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": condition.since,
    }


def ban_ended(when: datetime) -> AttestedCondition:
    return AttestedCondition("False", "EndorsementKeyBanned", format_time(when))


@pytest.mark.parametrize(
    "condition",
    [
        None,
        AttestedCondition("False", "EndorsementKeyMismatch", format_time(NOW)),
        ban_ended(ATTESTED_AT - timedelta(seconds=1)),
    ],
    ids=["none", "of a request that is not proved", "of a ban before the attestation"],
)
def test_lost_condition_of_a_node_that_attested_is_noted(
    condition: AttestedCondition | None,
) -> None:
    """The signer ended just after a certificate, and the Machine never became ready."""
    [noted] = attested(condition=condition)
    assert (noted.namespace, noted.name, noted.uid) == ("team-a", "machine-1", "u")
    assert (noted.attested, noted.proved, noted.reason) == (True, True, "Attested")


@pytest.mark.parametrize(
    "changes",
    [
        {"condition": AttestedCondition("True", "Attested", format_time(NOW), ATTESTED_MESSAGE)},
        {"condition": ban_ended(ATTESTED_AT + timedelta(seconds=1))},
        {"machine": {"uid": "another"}},
        {"node": NODE.replace(cluster_name="green")},
        {"node": NODE.replace(machine_name="")},
        {"node": NODE.replace(credential_ids=())},
        {"node": NODE.replace(endorsement_key="cd" * 32)},
        {"key": BANNED},
        {"key": KEY.replace(released_from=(Release.of(CLUSTER, provider_id=None),))},
        {"serves": lambda cluster: cluster != CLUSTER},
    ],
    ids=[
        "reported",
        "a ban ended it",
        "the Machine was made again",
        "another Cluster's claim",
        "a pool's member",
        "no certificate was recorded",
        "incomplete claim",
        "banned",
        "released",
        "of another replica",
    ],
)
def test_no_other_machine_is_noted_as_attested(changes: Mapping[str, Any]) -> None:
    assert attested(**changes) == []


REFUSED = NODE.replace(
    last_refusal=Refusal(
        reason="PcrPolicyMismatch", message="PCR 4 is not allowed", time=NOW, request="csr-1"
    ),
)
OVERDUE = NODE.replace(renewal_deadline=NOW)
UNTIL = "the last certificate of the node is valid until 2026-11-29T00:00:00Z"
EXPIRED = "the last certificate of the node expired at 2026-11-23T00:00:00Z"
PROBLEMS = {
    "refused": (REFUSED, "PcrPolicyMismatch", f"PCR 4 is not allowed; {UNTIL}"),
    "refused and overdue": (
        REFUSED.replace(renewal_deadline=NOW),
        "PcrPolicyMismatch",
        f"PCR 4 is not allowed; {UNTIL}",
    ),
    "overdue": (
        OVERDUE,
        "RenewalOverdue",
        f"the node has not renewed its certificate by 2026-11-23T00:00:00Z; {UNTIL}",
    ),
    "expired without a deadline": (
        NODE.replace(not_after=NOW),
        "RenewalOverdue",
        f"the node has not renewed its certificate by 2026-11-23T00:00:00Z; {EXPIRED}",
    ),
}
SHOWN = {
    "attested": AttestedCondition("True", "Attested", format_time(NOW), ATTESTED_MESSAGE),
    "of a stranger": AttestedCondition("False", "EndorsementKeyMismatch", format_time(NOW)),
    "another message": AttestedCondition("False", "PcrPolicyMismatch", format_time(NOW), "PCR 7"),
    "a ban that was lifted": ban_ended(NOW),
    "none": None,
}


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("shown", SHOWN)
def test_problem_of_a_claim_replaces_every_other_condition(problem: str, shown: str) -> None:
    """A node whose renewal was denied kept its Machine at True until its certificate expired."""
    node, reason, message = PROBLEMS[problem]
    [noted] = attested(node=node, condition=SHOWN[shown])
    assert (noted.attested, noted.proved, noted.reason) == (False, True, reason)
    assert noted.message == message
    shown_now = AttestedCondition("False", reason, format_time(NOW), message)
    assert attested(node=node, condition=shown_now) == []
    [restored] = attested(node=NODE, condition=shown_now)
    assert restored.attested, "the next certificate removes the problem from the claim"


@pytest.mark.parametrize("problem", PROBLEMS)
def test_problem_of_a_claim_is_unknown_after_claims_were_lost(problem: str) -> None:
    """A restore made 6 to 53 % of healthy nodes overdue, and their Machines were deleted."""
    node, reason, _ = PROBLEMS[problem]
    caches = caches_with(KEY, node, machine_object())
    conditions: list[MachineCondition] = []

    def attested_after(at: datetime) -> Sequence[tuple[str, str]]:
        conditions.clear()
        caches.set_went_back({CLUSTER: WentBack(at=at, until=NOW + timedelta(days=1))})
        enqueue_conditions(caches, conditions.append, lambda _: True, NOW)
        return [(noted.status, noted.reason) for noted in conditions]

    assert attested_after(NOW) == [("Unknown", "ClaimsOutOfDate")]
    before = ATTESTED_AT - timedelta(seconds=1)
    assert attested_after(before) == [("False", reason)], "the node attested after the loss"
    caches.set_went_back({})
    conditions.clear()
    enqueue_conditions(caches, conditions.append, lambda _: True, NOW)
    assert not conditions, "the marker was not read yet"


def test_condition_follows_the_generation_of_the_machine() -> None:
    shown = {**as_object(SHOWN["attested"]), "observedGeneration": 1}  # type: ignore[arg-type]
    for generation, expected in ((1, 0), (2, 1)):
        caches = caches_with(KEY, NODE, machine_object(shown, generation=generation))
        conditions: list[MachineCondition] = []
        enqueue_conditions(caches, conditions.append, lambda _: True, NOW)
        assert len(conditions) == expected


def counted(key: EndorsementKeyObject, node: AttestedNodeObject, **machine: str) -> CountsByCluster:
    caches = caches_with(key, node, machine_object(**machine))
    return enqueue_conditions(caches, lambda _: None, lambda _: True, NOW)


def problems(
    key: EndorsementKeyObject, node: AttestedNodeObject
) -> Mapping[tuple[ProblemKind, str], int]:
    [counts] = counted(key, node).values()
    return counts.problems


def test_problems_are_counted_by_reason() -> None:
    assert problems(KEY, REFUSED) == {(ProblemKind.REFUSED, "PcrPolicyMismatch"): 1}
    assert problems(KEY, OVERDUE) == {(ProblemKind.OVERDUE, "RenewalOverdue"): 1}
    assert problems(KEY, NODE) == {}


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (None, None),
        (NodeProblem(kind=ProblemKind.OVERDUE, reason="r", message=""), ProblemKind.OVERDUE),
    ],
)
def test_certificate_that_expires_next_is_found(
    problem: NodeProblem | None, kind: ProblemKind | None
) -> None:
    """One that has expired is no longer a certificate that ends soon."""
    counts = NodeCounts()
    for days in (3, 2, -1):
        counts.add(NODE.replace(not_after=NOW + timedelta(days=days)), problem, NOW)
    assert counts.earliest_ends == {kind: NOW + timedelta(days=2)}


def test_claim_that_is_over_is_no_problem() -> None:
    """Its key is banned, or its Machine is gone."""
    assert counted(BANNED, OVERDUE) == {}
    assert counted(KEY, OVERDUE, name="machine-2") == {}
    assert problems(KEY, OVERDUE.replace(credential_ids=())) == {}


@dataclass(slots=True)
class Storm:
    """Many Machines of one namespace that attest within a minute, and the caches of them."""

    machines: int
    caches: ManagementCaches = field(default_factory=FakeCaches)
    seconds: float = 0.0
    reports: MachineReports = field(init=False)

    def __post_init__(self) -> None:
        api = FakeCluster(on_change=self._on_change)
        client = MachineStatusClient(FakeClient(api))
        self.reports = MachineReports(client, now=lambda: NOW, monotonic=lambda: self.seconds)
        numbers = range(self.machines)
        keys = (KEY.replace(name=f"{n:064x}", held_by=self._holder(n)) for n in numbers)
        self.caches.keys.replace({key.name: key for key in keys})
        nodes = (
            NODE.replace(
                name=f"claim-{n}",
                node_name=f"node-{n}",
                machine_name=f"machine-{n}",
                machine_uid=f"u-{n}",
                endorsement_key=f"{n:064x}",
            )
            for n in numbers
        )
        self.caches.nodes.replace({f"team-a/{node.name}": node for node in nodes})
        self.caches.pools.replace({})
        self.caches.clusters.replace({})
        self.caches.machines.replace({})
        names = (f"machine-{n}" for n in numbers)
        api.put(
            MACHINES.collection_path("team-a"),
            *(machine_body(name=name, uid=f"u-{name[8:]}") for name in names),
        )

    def _on_change(self, _kind: str, path: str, body: Mapping[str, Any]) -> None:
        """Read a Machine, as the watch does."""
        if "/machines/" in path:
            machine = read_machine(body)
            self.caches.machines.upsert(f"team-a/{machine.name}", machine)

    @staticmethod
    def _holder(number: int) -> KeyHolder:
        assert KEY.held_by is not None
        return KEY.held_by.replace(node_name=f"node-{number}")

    def derive(self) -> list[MachineCondition]:
        """Return what is noted from the claims."""
        conditions: list[MachineCondition] = []
        enqueue_conditions(self.caches, conditions.append, lambda _: True, NOW)
        return conditions

    def pass_second(self) -> None:
        self.seconds += 1
        if self.seconds % 2 == 0:
            self.reports.flush()


def test_every_machine_of_a_storm_is_reported_in_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of 3,000 nodes that joined at 60 a second, 1,520 were never reported."""
    storm = Storm(3000)
    waiting = storm.derive()
    while waiting:
        for condition in waiting[:60]:
            storm.reports.note(condition)
        del waiting[:60]
        storm.pass_second()
        assert len(storm.reports._due) <= 1000
    storm.reports.log_dropped()
    [record] = caplog.records
    assert vars(record)["fields"]["count"] > 1000
    for _ in range(6):
        for condition in storm.derive():
            storm.reports.note(condition)
        for _ in range(60):
            storm.pass_second()
    shown = [machine.attested for machine in storm.caches.machines.all()]
    assert len([condition for condition in shown if condition is not None]) == 3000
    assert storm.derive() == []
