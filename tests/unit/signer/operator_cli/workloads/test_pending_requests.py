"""Which requests `pending` shows."""

from dataclasses import replace
from datetime import timedelta

import pytest

from signer.inventory.cluster_api.cluster import read_cluster
from signer.inventory.cluster_api.machine_object import AttestedCondition
from signer.kinds.cluster import ClusterKey
from signer.operator_cli.commands.fleet import pending
from signer.operator_cli.output import time_text
from signer.operator_cli.workloads.pending_requests import PendingRequest, unanswered
from tests.builders.operator_snapshot import CLUSTER, MACHINE, METADATA, NODE, NOW, snapshot
from tests.fakes.cluster import FakeCluster
from tests.fakes.management_api import Console

MINUTE = timedelta(minutes=1)


def request(
    created: timedelta = -MINUTE, provider_id: str = "", *, challenged: bool = False
) -> PendingRequest:
    return PendingRequest(
        name="csr",
        kind="offer",
        requester="system:bootstrap:abcdef",
        created=NOW + created,
        reported="",
        challenged=challenged,
        provider_id=provider_id or NODE.provider_id,
    )


@pytest.mark.parametrize(
    ("waiting", "is_shown"),
    [
        (request(challenged=True), False),
        (request(MINUTE, challenged=True), True),
        (request(provider_id="test://2", challenged=True), True),
        (request(), True),
    ],
    ids=["answered", "newer than the last attestation", "another machine", "waits"],
)
def test_answered_offer_is_not_shown(waiting: PendingRequest, is_shown: bool) -> None:  # noqa: FBT001 - a parameter of the case
    shown = unanswered([waiting], CLUSTER, snapshot())
    assert shown == [waiting] * is_shown
    other = ClusterKey(namespace="team-b", name="c1")
    assert unanswered([waiting], other, snapshot()) == [waiting]


DOCUMENT = {
    "namespace": "team-a",
    "cluster": "c1",
    "request": "csr-1",
    "kind": "offer",
    "node": "node-1",
    "machine": None,
    "providerID": "metal3://host-7",
    "endorsementKey": None,
    "reason": "MachineNotFound",
    "reported": "MachineNotFound: no Machine of this Cluster has the provider ID",
    "requester": "system:bootstrap:abcdef",
    "created": time_text(NOW),
}


@pytest.mark.parametrize(
    ("machine", "lines"),
    [
        (None, ["  provider id: metal3://host-7"]),
        ("machine-1", []),
    ],
)
def test_provider_id_that_no_machine_has_is_shown(machine: str | None, lines: list[str]) -> None:
    """Operators compare it with those of the Machines; only the wide table had it."""
    document = DOCUMENT | {"machine": machine}
    console = Console(FakeCluster())
    pending._show_tables(console.session(), [document], [])
    assert console.output.splitlines()[2:] == lines


RECORDED = ("team-a", "machine-1", "cd" * 32)
WAITING = AttestedCondition("False", "MachineNotReady", "2026-11-22T00:00:00Z")


@pytest.mark.parametrize(
    ("condition", "key", "expected"),
    [
        (None, "ab" * 32, "Pending"),
        (WAITING, "ab" * 32, "MachineNotReady"),
        (replace(WAITING, status="True", reason="Attested"), "ab" * 32, "Pending"),
        (None, "cd" * 32, "EndorsementKeyNotRegistered"),
    ],
    ids=["nothing", "condition of the Machine", "renewal", "recorded key"],
)
def test_reason_is_the_signers_and_not_the_requesters(
    condition: AttestedCondition | None, key: str, expected: str
) -> None:
    """A requester filed its request with the annotation of the signer."""
    forged = replace(request(), reported="EndorsementKeyBanned: run ban", endorsement_key=key)
    machine = replace(MACHINE, attested=condition)
    cluster = read_cluster({"metadata": METADATA | {"name": "c1"}, "spec": {}})
    read = snapshot(machines=[machine])
    [document] = pending._documents(cluster, [forged], read, {RECORDED})
    assert document["reason"] == expected
    assert document["reported"] == "EndorsementKeyBanned: run ban"


def test_key_that_the_signer_has_not_recorded_gets_no_command() -> None:
    """The holder of another bootstrap token was offered a ready `register` command."""
    unregistered = {"reason": "EndorsementKeyNotRegistered", "reported": None}
    document = DOCUMENT | unregistered | {"machine": "machine-1", "endorsementKey": "ab" * 32}
    console = Console(FakeCluster())
    pending._show_tables(console.session(), [document], [])
    assert "kubectl" not in console.output
