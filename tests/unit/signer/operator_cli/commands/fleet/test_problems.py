"""`problems` lists Clusters that are not served and kubeconfigs that expire, by the signer's words.

tests/integration/test_renewal_problems.py has those of nodes and of unknown TPMs.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from common.names import CLIENT_SIGNER
from signer.inventory.cluster_api.cluster import ClusterCondition, ClusterObject
from signer.inventory.custom_resources.policy_object import PolicyObject, read_policy
from signer.inventory.unreadable_kinds import CLUSTER_MESSAGE
from signer.kinds.attested_node import Refusal
from signer.operator_cli.commands.fleet import problems
from signer.operator_cli.management.signer_state import SignerState
from signer.operator_cli.session import Session
from tests.builders.operator_clusters import CLUSTER
from tests.builders.operator_snapshot import NODE, NOW, snapshot
from tests.builders.replica_leases import replica_lease
from tests.builders.unreadable import with_managed_fields
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_objects import CAPI
from tests.fakes.management_api import Console, FakeManagement

STOPPED = SignerState(namespace="system")
RUNNING = replace(STOPPED, leases=[replica_lease()], live=frozenset({"one"}))

REFUSED = [
    {
        "type": "Ready",
        "status": "False",
        "reason": "PolicyInvalid",
        "message": "unknown key",
    }
]


def policy(conditions: Sequence[object] = (), **state: str) -> PolicyObject:
    """Return a policy for all Clusters, whose status has this state of the Cluster."""
    entry = {"namespace": "team-a", "name": "c1", **state}
    return read_policy(
        {
            "metadata": {"name": "all", "uid": "u", "resourceVersion": "1", "generation": 1},
            "spec": {},
            "status": {"selectedClusters": 1, "clusters": [entry], "conditions": conditions},
        }
    )


@pytest.mark.parametrize(
    ("signer", "status", "row"),
    [
        (replace(RUNNING, policies=[policy(state="Served")]), 0, ""),
        (
            replace(RUNNING, policies=[policy(REFUSED, state="Served")]),
            1,
            "Policy -/- PolicyInvalid: kubectl attestation policy check",
        ),
        (
            replace(RUNNING, policies=[policy(state="Served", message="it expires")]),
            1,
            "Expiring team-a/c1 KubeconfigExpires: kubectl attestation kubeconfig team-a/c1",
        ),
        (
            replace(RUNNING, policies=[policy(state="Served", message=f"{CLUSTER_MESSAGE} Nodes")]),
            1,
            "Unreadable team-a/c1 ObjectUnreadable: kubectl describe cluster c1 -n team-a",
        ),
        (
            replace(RUNNING, policies=[policy(state="KubeconfigRefused", message="a file")]),
            1,
            "Unserved team-a/c1 KubeconfigRefused: kubectl attestation doctor --cluster team-a/c1",
        ),
        (
            replace(STOPPED, policies=[policy(state="Served")]),
            1,
            "Unserved system/- NoReplica: kubectl get pods -n system",
        ),
        (SignerState(namespace="system", problem="it may not list Leases"), 3, ""),
    ],
    ids=[
        "served",
        "refused policy",
        "expiring",
        "unreadable object of the workload cluster",
        "not served",
        "no replica",
        "unknown",
    ],
)
def test_what_the_signer_wrote_is_a_row_with_the_next_command(
    monkeypatch: pytest.MonkeyPatch, signer: SignerState, status: int, row: str
) -> None:
    """A page of the documentation may follow the command."""
    assert rows(listed(monkeypatch, signer, CLUSTER, status)) == [row] * bool(row)


def rows(items: list[dict[str, Any]]) -> list[str]:
    """Return what the command lists, each in one line."""
    return [
        f"{i['problem']} {i['namespace'] or '-'}/{i['cluster'] or '-'} {i['reason']}:"
        f" {i['nextStep'].partition(', see')[0]}"
        for i in items
    ]


def test_without_any_policy_nothing_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rows(listed(monkeypatch, RUNNING, CLUSTER, 1)) == [
        "Policy -/- PolicyMissing: create one: docs/policies.md, The first policy",
        "Unserved team-a/c1 PolicyMissing: kubectl attestation doctor --cluster team-a/c1",
    ]


def listed(
    monkeypatch: pytest.MonkeyPatch, signer: SignerState, cluster: ClusterObject, status: int
) -> list[dict[str, Any]]:
    """Return what the command lists of a Cluster; `status` is the expected exit status."""
    signers = {cluster.key: frozenset({CLIENT_SIGNER})}
    read = replace(snapshot(), clusters=[cluster], signers=signers)
    monkeypatch.setattr(Session, "snapshot", lambda _: read)
    monkeypatch.setattr(problems, "read_signer", lambda _: signer)
    arguments = {"output": "json", "namespace": "", "cluster": None}
    console = Console(FakeCluster(), arguments)
    assert problems.run(console.session()) == status
    items: list[dict[str, Any]] = json.loads(console.output)["items"]
    return items


def test_cluster_of_which_nothing_is_known_is_neither_good_nor_bad(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The status of its policy was full of another tenant's Clusters, and nothing was shown."""
    full = replace(policy(), status={"selectedClusters": 9, "clustersLeftOut": 1, "clusters": []})
    warnings: list[str] = []
    monkeypatch.setattr(Session, "warn", lambda _, text: warnings.append(text))
    assert listed(monkeypatch, replace(RUNNING, policies=[full]), CLUSTER, 3) == []
    [warning] = warnings
    assert warning.startswith("Clusters of which nothing is known (1): team-a/c1: the signer has")


@pytest.mark.parametrize(("removed", "status"), [(False, 1), (True, 0)])
def test_bindings_that_stay_are_a_problem(
    monkeypatch: pytest.MonkeyPatch,
    removed: bool,  # noqa: FBT001 # one of two cases
    status: int,
) -> None:
    """Users of the Cluster may write its condition: no text of it is shown."""
    bindings = ClusterCondition(removed=removed, reason="NodesNotAttested", message="run this")
    signer = replace(RUNNING, policies=[policy(state="Served")])
    items = listed(monkeypatch, signer, replace(CLUSTER, bindings=bindings), status)
    assert [(i["problem"], i["reason"], i["nextStep"]) for i in items] == (
        [("Bindings", "NodesNotAttested", "kubectl describe cluster c1 -n team-a")] * status
    )
    assert "run this" not in str(items)


@pytest.mark.parametrize("kind", ["Machine", "Cluster", "MachinePool"])
def test_object_of_any_tenant_that_cannot_be_read_is_a_row_and_ends_no_command(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The command ended at it, for all namespaces, with exit status 3."""
    signer = replace(RUNNING, policies=[policy(state="Served")])
    monkeypatch.setattr(problems, "read_signer", lambda _: signer)
    management = FakeManagement()
    plural = f"{kind.lower()}s"
    path = f"/apis/{CAPI}/namespaces/team-b/{plural}"
    metadata = {"name": "deep", "namespace": "team-b", "uid": "u"}
    body = {"apiVersion": CAPI, "kind": kind, "metadata": metadata}
    management.objects[f"{path}/deep"] = with_managed_fields(body, 20_000)
    console = Console(management, {"output": "json", "namespace": "", "cluster": None})
    assert problems.run(console.session()) == 1
    [row] = json.loads(console.output)["items"]
    assert (row["namespace"], row["object"], row["reason"]) == (
        "team-b",
        f"{kind} deep",
        "ObjectUnreadable",
    )
    assert row["nextStep"] == (
        f"correct the object, or kubectl delete {kind.lower()} deep -n team-b"
    )
    assert f"left out: {kind} team-b/deep: nested too deeply" in console.complaint


@pytest.mark.parametrize(
    ("reason", "more"),
    [
        ("EventLogMissing", " --challenge-keys"),
        ("RequesterNotAllowed", ""),
        ("OfALaterVersion", ""),
    ],
)
def test_challenge_keys_are_asked_for_only_if_an_answer_was_refused(reason: str, more: str) -> None:
    """Who has them can forge answers."""
    refusal = Refusal(reason=reason, message="m", time=NOW, request="csr-1")
    assert problems._next_step(NODE.replace(last_refusal=refusal)) == (
        f"kubectl attestation explain csr-1 --cluster team-a/c1{more}"
    )
