"""The state of a node that has attested."""

from dataclasses import replace
from datetime import datetime

import pytest

from signer.inventory.cluster_api.machine_object import read_machine, read_pool
from signer.kinds.attested_node import AttestedNodeObject, Refusal
from signer.kinds.csr import credential_id
from signer.kinds.endorsement_key import Release
from signer.operator_cli.commands.fleet.nodes import find_node_problem, node_state
from signer.operator_cli.management.snapshot import Snapshot
from tests.builders.endorsement_keys import key_holder
from tests.builders.operator_snapshot import CLUSTER, HOLDER, METADATA, NODE, NOW, snapshot

ABROAD = replace(CLUSTER, namespace="team-b")
ELSEWHERE = key_holder(ABROAD)
POOL = read_pool(
    {"metadata": METADATA, "spec": {"clusterName": "c1", "providerIDList": ["test://1"]}}
)


@pytest.mark.parametrize(
    ("objects", "now", "state"),
    [
        (snapshot(), NOW, "Attested"),
        (snapshot(), NODE.not_after, "Expired"),
        (snapshot(machines=[]), NOW, "MachineGone"),
        (snapshot(machines=[], pools=[POOL]), NOW, "Attested"),
        (snapshot(machines=[], pools=[replace(POOL, cluster=ABROAD)]), NOW, "MachineGone"),
        (snapshot(banned=True), NOW, "Banned"),
        (
            snapshot(released_from=(Release.of(CLUSTER, provider_id=None),)),
            NOW,
            "Released",
        ),
        (
            snapshot(released_from=(Release.of(CLUSTER, provider_id="test://2"),)),
            NOW,
            "Attested",
        ),
        (snapshot(held_by=ELSEWHERE, banned=True), NOW, "ClaimIncomplete"),
        (snapshot(held_by=HOLDER.replace(node_name="node-2")), NOW, "ClaimIncomplete"),
        (snapshot(held_by=None), NOW, "ClaimIncomplete"),
        (replace(snapshot(), keys={}), NOW, "ClaimIncomplete"),
        (
            snapshot(held_by=ELSEWHERE, released_from=(Release.of(CLUSTER, provider_id=None),)),
            NOW,
            "Released",
        ),
    ],
    ids=[
        "valid",
        "expired",
        "no Machine",
        "pool",
        "pool of another Cluster",
        "banned",
        "released",
        "other released",
        "held in another Cluster",
        "held by another node",
        "held by no node",
        "no EndorsementKey",
        "released and taken",
    ],
)
def test_state_of_a_node(objects: Snapshot, now: datetime, state: str) -> None:
    assert node_state(NODE, objects, now) == state


REFUSED = NODE.replace(
    last_refusal=Refusal(reason="PcrPolicyMismatch", message="PCR 4", time=NOW, request="c")
)
OVERDUE = NODE.replace(renewal_deadline=NOW, credential_ids=(credential_id(b"first"),))
DELETED = read_machine(
    {
        "metadata": {**METADATA, "deletionTimestamp": "2026-11-22T00:00:00Z"},
        "spec": {"clusterName": "c1", "providerID": "test://1"},
    }
)


@pytest.mark.parametrize(
    ("node", "objects", "now", "state", "reason"),
    [
        (REFUSED, snapshot(), NOW, "Refused", "PcrPolicyMismatch"),
        (OVERDUE, snapshot(), NOW, "Overdue", "RenewalOverdue"),
        (OVERDUE, snapshot(), NODE.not_after, "Expired", "RenewalOverdue"),
        (REFUSED, snapshot(machines=[DELETED]), NOW, "Attested", None),
        (REFUSED, snapshot(banned=True), NOW, "Banned", None),
    ],
    ids=["refused", "overdue", "expired", "Machine being deleted", "banned"],
)
def test_problem_of_a_node(
    node: AttestedNodeObject, objects: Snapshot, now: datetime, state: str, reason: str | None
) -> None:
    assert node_state(node, objects, now) == state
    problem = find_node_problem(node, objects, now)
    assert (problem and problem.reason) == reason
