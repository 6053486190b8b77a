"""Bindings stay for Nodes from before the opt-in, and for no others."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from common.errors import ApiServerUnavailable
from signer.controller.maintenance.binding_removal import BindingRemoval
from signer.inventory.caches import WorkloadCaches
from signer.inventory.cluster_api.cluster import ClusterCondition, read_cluster
from signer.inventory.cluster_api.cluster_status import ClusterStatusClient
from signer.inventory.replica_records.opt_in_leases import OptIns
from signer.kinds.cluster import ClusterKey
from signer.kinds.node import Node
from signer.kube.leases import LeaseClient
from signer.kube.unreadable import Unreadable
from signer.policy.policy import Approval, AutoApproveBindings, Policy, PolicyMode
from tests.builders import kube_objects
from tests.builders.attested_nodes import attested_node
from tests.builders.kube_objects import HOME
from tests.builders.scenario import NOW
from tests.fakes.caches import FakeCaches
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient
from tests.fakes.cluster_objects import CLUSTERS

POLICY = Policy(name="edge")
BEFORE, AFTER = NOW - timedelta(days=30), NOW + timedelta(days=1)
PROVIDER_ID = "metal3://1"


@dataclass(slots=True)
class Scene:
    """One Cluster that opted in at NOW, with kubeadm's binding and Nodes."""

    policy: Policy = POLICY
    now: datetime = NOW
    api: FakeCluster = field(default_factory=FakeCluster)
    management: FakeCaches = field(default_factory=FakeCaches)
    workload: WorkloadCaches = field(init=False)
    conditions: list[ClusterCondition | None] = field(default_factory=list)
    changes: list[ClusterKey] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.api.put(CLUSTERS.collection_path("team-a"), kube_objects.cluster())
        cluster = read_cluster(kube_objects.cluster())
        self.management.clusters.replace({str(HOME): cluster})
        self.api.on_change = self._on_change
        for cache in (self.management.nodes, self.management.machines, self.management.pools):
            cache.replace({})
        self.workload = WorkloadCaches(HOME, cluster.uid, host="")
        self.workload.bindings.replace({"kubeadm": "kubeadm"})

    def removal(self) -> BindingRemoval:
        """Return what a replica that starts now decides with."""
        return BindingRemoval(
            self.management,
            OptIns(LeaseClient(FakeClient(self.api), "own")),
            ClusterStatusClient(FakeClient(self.api)),
            lambda _: self.policy,
            changed=self.changes.append,
            now=lambda: self.now,
        )

    def _on_change(self, _kind: str, path: str, body: Mapping[str, Any]) -> None:
        """Read the Cluster and its condition, as the watch does."""
        if "/clusters/" in path:
            cluster = read_cluster(body)
            self.conditions.append(cluster.bindings)
            self.management.clusters.replace({str(HOME): cluster})

    def written(self) -> list[tuple[bool, str]]:
        """Return the status and the reason of each condition."""
        return [(c.removed, c.reason) for c in self.conditions if c is not None]

    def nodes(self, *nodes: Node) -> None:
        self.workload.nodes.replace({node.name: node for node in nodes})

    def attest(self, *names: str, until: datetime = NOW + timedelta(days=7)) -> None:
        changes = {"provider_id": PROVIDER_ID, "not_after": until}
        claims = [
            attested_node(HOME, n, key="ab" * 32, last_attested=NOW, **changes) for n in names
        ]
        self.management.nodes.replace({f"team-a/{claim.name}": claim for claim in claims})

    def reason(self) -> str:
        return self.removal().reason_to_keep(self.workload, self.policy)


def node(name: str, created: datetime = BEFORE, *, is_control_plane: bool = False) -> Node:
    return Node(
        name=name,
        provider_id=PROVIDER_ID,
        created=created,
        is_control_plane=is_control_plane,
    )


def test_bindings_stay_until_every_node_from_before_the_opt_in_has_attested() -> None:
    scene = Scene()
    workload = scene.workload
    scene.nodes(node("worker-1"), node("worker-2"))
    assert "worker-1, worker-2. Next, on each of them: kubelet-authenticator-tpm" in scene.reason()
    assert workload.keeps_bindings
    scene.attest("worker-1")
    assert "worker-2" in scene.reason()
    assert "worker-1" not in scene.reason()
    scene.attest("worker-1", "worker-2")
    assert scene.reason() == ""
    assert scene.changes == [HOME, HOME]
    assert scene.written() == [
        (False, "NodesNotAttested"),
        (False, "NodesNotAttested"),
        (True, "NotNeeded"),
    ]


def test_deleted_node_does_not_delay_the_removal() -> None:
    scene = Scene()
    scene.nodes(node("worker-1"))
    assert scene.reason()
    scene.nodes()
    assert scene.reason() == ""


def test_node_that_comes_later_does_not_delay_the_removal() -> None:
    """The holder of a bootstrap token could add one while the bindings exist."""
    scene = Scene()
    scene.nodes(node("worker-1"))
    assert scene.reason()
    scene.now = AFTER
    scene.attest("worker-1", until=AFTER + timedelta(days=1))
    scene.nodes(node("worker-1"), node("intruder", NOW + timedelta(seconds=1)))
    assert scene.reason() == ""


def test_removal_is_final() -> None:
    """`kubeadm upgrade apply` makes the bindings again, and an old node may be off then."""
    scene = Scene()
    scene.nodes(node("worker-1"))
    scene.attest("worker-1")
    assert scene.reason() == ""
    scene.attest()
    assert scene.reason() == ""


def test_new_cluster_keeps_nothing_for_the_nodes_of_its_first_minutes() -> None:
    """Its opt-in is noted before it has an API server."""
    scene = Scene()
    scene.removal().note_opt_in(HOME)
    scene.now = AFTER
    scene.nodes(node("first", AFTER, is_control_plane=True), node("intruder", AFTER))
    assert scene.reason() == ""
    assert scene.conditions == []


def test_control_plane_node_of_kubeadm_init_does_not_delay_the_removal() -> None:
    scene = Scene()
    first = node("first", is_control_plane=True)
    scene.nodes(first)
    assert scene.reason() == ""


def test_later_control_plane_nodes_delay_the_removal() -> None:
    """They have joined with a token, and rotate their certificates like workers."""
    scene = Scene()
    second = node("second", BEFORE + timedelta(minutes=5), is_control_plane=True)
    scene.nodes(node("first", is_control_plane=True), second)
    assert "deleted: second." in scene.reason()


def test_expired_claim_of_an_earlier_opt_in_does_not_count() -> None:
    """After a migration back, the claim stays; the node has another certificate."""
    scene = Scene()
    scene.nodes(node("worker-1"))
    scene.attest("worker-1", until=NOW - timedelta(seconds=1))
    assert "worker-1" in scene.reason()


@pytest.mark.parametrize("change", ["lease", "nodes", "claims", "a Node"])
def test_what_cannot_be_read_keeps_the_bindings(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests wait, too: whether the bindings must stay is unknown."""
    scene = Scene()
    scene.nodes(node("first", is_control_plane=True))
    if change == "lease":
        scene.api.intercept(503)
    elif change == "nodes":
        monkeypatch.setattr(scene.workload.nodes, "require_complete", fail)
    elif change == "a Node":
        scene.workload.nodes.refuse("deep", Unreadable(key="deep", problem="nested too deeply"))
    else:
        monkeypatch.setattr(scene.management, "require_complete", fail)
    assert "it cannot be decided which Nodes need them" in scene.reason()
    assert scene.written() == [(False, "NodesUnknown")]
    assert not scene.workload.keeps_bindings


def fail(_: str) -> None:
    raise ApiServerUnavailable("away")


@pytest.mark.parametrize(
    "mode", [AutoApproveBindings.ALARM, AutoApproveBindings.REMOVE, AutoApproveBindings.WAIT]
)
def test_every_other_choice_of_an_operator_decides_alone(mode: AutoApproveBindings) -> None:
    """With the end of the condition, if the bindings stayed before."""
    scene = Scene()
    scene.nodes(node("worker-1"))
    assert scene.reason()
    scene.policy = replace(POLICY, auto_approve_bindings=mode)
    assert scene.reason() == ""
    assert scene.written()[-1] == (True, "NotNeeded")


@pytest.mark.parametrize(
    "changes", [{"approval": Approval.DISABLED}, {"mode": PolicyMode.SERVING_ONLY}]
)
def test_nodes_that_join_before_certificates_are_issued_count(
    changes: Mapping[str, object],
) -> None:
    """Until then, the bindings are the only way to join."""
    scene = Scene(policy=replace(POLICY, **changes))  # type: ignore[arg-type] # any field
    scene.removal().note_opt_in(HOME)
    scene.now, scene.policy = AFTER, POLICY
    scene.nodes(node("joined-meanwhile", NOW + timedelta(hours=1)))
    assert "joined-meanwhile" in scene.reason()


def test_message_names_few_nodes_of_many() -> None:
    scene = Scene()
    scene.nodes(*(node(f"{n}{'x' * 300}") for n in range(7)))
    assert scene.reason().count("xxx,") == 4
    assert " and 2 more. Next" in scene.reason()
    assert len(scene.reason()) < 1024
