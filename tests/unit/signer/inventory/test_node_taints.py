"""The taint of Nodes as the API server has it."""

from dataclasses import replace
from typing import Any

import pytest

from common.errors import ApiServerUnavailable
from signer.inventory.caches import read_node
from signer.inventory.node_taints import EFFECT, KEY, NodeTaintClient
from signer.kinds.node import Node
from signer.kube.transport.client import Request
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient

NODE = Node(name="node-1", provider_id="", uid="uid-1")
OWN = {"key": KEY, "effect": EFFECT}
OTHER = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": "any"}


def stored(*taints: dict[str, str]) -> dict[str, Any]:
    """Return a Node as the API server has it."""
    return {"metadata": {"name": "node-1", "uid": "uid-1"}, "spec": {"taints": list(taints)}}


def changed(*taints: dict[str, str], tainted: bool) -> list[dict[str, str]]:
    """Return the taints of a Node after the change."""
    cluster = FakeCluster()
    cluster.put("/api/v1/nodes", stored(*taints))
    NodeTaintClient(FakeClient(cluster)).change(NODE, tainted=tainted)
    written: list[dict[str, str]] = cluster.objects["/api/v1/nodes/node-1"]["spec"]["taints"]
    return written


@pytest.mark.parametrize(
    ("taints", "tainted"),
    [([OTHER, OWN], True), ([OTHER], False), ([{**OWN, "effect": "NoExecute"}], False)],
    ids=["own", "other", "another effect"],
)
def test_taint_of_the_signer_is_read(
    taints: list[dict[str, str]],
    tainted: bool,  # noqa: FBT001 - a parameter of the case
) -> None:
    assert read_node(stored(*taints)).tainted is tainted


def test_other_taints_stay() -> None:
    assert changed(OTHER, tainted=True) == [OTHER, OWN]
    assert changed(OWN, OTHER, tainted=False) == [OTHER]
    assert changed(OWN, tainted=True) == [OWN]


def test_node_that_changes_meanwhile_is_left_to_the_next_round() -> None:
    """The taint that another program adds between read and write would be lost."""
    cluster = FakeCluster()
    cluster.put("/api/v1/nodes", stored())

    def add_another(_: Request) -> None:
        cluster.put("/api/v1/nodes", stored(OTHER))

    cluster.intercept(add_another, "PATCH")
    NodeTaintClient(FakeClient(cluster)).change(NODE, tainted=True)
    assert cluster.objects["/api/v1/nodes/node-1"]["spec"]["taints"] == [OTHER]


@pytest.mark.parametrize("node", [replace(NODE, uid="former"), replace(NODE, name="deleted")])
def test_another_node_of_the_name_is_not_changed(node: Node) -> None:
    cluster = FakeCluster()
    cluster.put("/api/v1/nodes", stored())
    NodeTaintClient(FakeClient(cluster)).change(node, tainted=True)
    assert cluster.writes == []


def test_kubelet_cannot_make_its_node_unreadable_by_many_taints() -> None:
    """It may register with any. The checks M4 and M6 must see every Node."""
    many = ({"key": f"example.com/{n}", "effect": "NoSchedule"} for n in range(2000))
    node = stored(*many)
    assert read_node(node).name == "node-1"
    cluster = FakeCluster()
    cluster.put("/api/v1/nodes", node)
    with pytest.raises(ApiServerUnavailable, match="cannot be read"):
        NodeTaintClient(FakeClient(cluster)).change(NODE, tainted=True)
    assert cluster.writes == []


def test_answer_of_another_form_is_an_outage() -> None:
    cluster = FakeCluster()
    cluster.intercept((200, {"metadata": {}, "spec": {"taints": ["any"]}}), "GET")
    with pytest.raises(ApiServerUnavailable, match="cannot be read"):
        NodeTaintClient(FakeClient(cluster)).change(NODE, tainted=True)
