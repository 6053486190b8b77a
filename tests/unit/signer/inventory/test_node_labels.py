"""The labels of Nodes as the API server has them."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from signer.inventory.caches import read_node
from signer.inventory.node_labels import (
    ATTESTED,
    BOOT_STATE,
    POLICY,
    TRUST_BASIS,
    NodeLabelClient,
)
from signer.kube.client import ApiClient, Response
from signer.kube.decode import MAX_TEXT
from signer.model import Node

ALL = {ATTESTED: "true", TRUST_BASIS: "Record", POLICY: "edge", BOOT_STATE: "Verified"}


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


@dataclass(slots=True)
class Api:
    """An API server that answers each request with one status."""

    status: int
    patches: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    def merge_patch(
        self, path: str, body: Mapping[str, Any], *, accepted: Container[int]
    ) -> Response:
        assert self.status in accepted
        self.patches.append((path, body))
        return Response(status=self.status, content=b"{}")


@pytest.mark.parametrize("status", [200, 404], ids=["changed", "deleted"])
def test_labels_are_written_to_the_node_that_was_read(status: int) -> None:
    """The API server refuses another UID (tests/integration/test_node_labels.py)."""
    api = Api(status)
    node = Node(name="node-1", provider_id="", uid="uid-1")
    NodeLabelClient(cast("ApiClient", api)).change(node, {ATTESTED: "true", POLICY: None})
    labels = {ATTESTED: "true", POLICY: None}
    body = {"metadata": {"uid": "uid-1", "labels": labels}}
    assert api.patches == [("/api/v1/nodes/node-1", body)]
