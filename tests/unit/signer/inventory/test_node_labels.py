"""The labels of Nodes as the API server has them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from common.errors import ApiServerUnavailable
from signer.inventory.caches import read_node
from signer.inventory.node_labels import ATTESTED, BOOT_STATE, POLICY, TRUST_BASIS, NodeLabelClient
from signer.kinds.decode import MAX_TEXT
from signer.kinds.node import Node
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient

ALL = {ATTESTED: "true", TRUST_BASIS: "Registered", POLICY: "edge", BOOT_STATE: "Verified"}


def stored(labels: Mapping[str, str]) -> dict[str, Any]:
    """Return a Node as the API server has it."""
    return {"metadata": {"name": "node-1", "uid": "uid-1", "labels": dict(labels)}}


def test_labels_of_the_signer_are_read() -> None:
    node = read_node(stored({**ALL, "kubernetes.io/arch": "amd64"}))
    assert node == Node(name="node-1", provider_id="", uid="uid-1", labels=ALL)


def test_kubelet_cannot_make_its_node_unreadable_by_many_labels() -> None:
    """The checks M4 and M6 must see every Node."""
    own = {f"example.com/{n}": "x" * 5000 for n in range(2000)}
    assert read_node(stored(own | {ATTESTED: "true"})).labels == {ATTESTED: "true"}


def test_kubelet_cannot_make_its_node_unreadable_by_a_long_provider_id() -> None:
    """Kubernetes limits no provider ID. The label of a banned node would stay."""
    node = stored(ALL) | {"spec": {"providerID": "x" * 100_000}}
    read = read_node(node)
    assert read.labels == ALL
    assert read.provider_id == "x" * (MAX_TEXT + 1)


def test_labels_are_written_to_the_node_that_was_read() -> None:
    cluster = FakeCluster()
    cluster.put("/api/v1/nodes", stored({POLICY: "edge", "own": "1"}))
    client = NodeLabelClient(FakeClient(cluster))
    node = Node(name="node-1", provider_id="", uid="uid-1")
    client.change(node, {ATTESTED: "true", POLICY: None})
    labels = {"own": "1", ATTESTED: "true"}
    assert cluster.objects["/api/v1/nodes/node-1"]["metadata"]["labels"] == labels
    with pytest.raises(ApiServerUnavailable, match="422"):
        client.change(replace(node, uid="created again"), {ATTESTED: None})
    client.change(replace(node, name="deleted"), {ATTESTED: None})
    assert cluster.objects["/api/v1/nodes/node-1"]["metadata"]["labels"] == labels
