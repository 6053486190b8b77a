"""Nodes as the kubelet creates them, and the labels that the signer writes."""

from typing import Any

from tests.harness.client import Client
from tests.harness.node import Node

NODES = "/api/v1/nodes"


PREFIX = "attestation.cluster.x-k8s.io.node-restriction.kubernetes.io/"


def body_of(node: Node, labels: dict[str, str] | None = None) -> dict[str, Any]:
    """Return the Node that the kubelet creates."""
    metadata = {"name": node.name, "labels": labels or {}}
    return {"metadata": metadata, "spec": {"providerID": node.provider_id}}


def labels_of(admin: Client, name: str) -> dict[str, str]:
    """Return the labels of a Node with the signer's prefix."""
    labels = admin.get(f"{NODES}/{name}")["metadata"].get("labels", {})
    return {key: value for key, value in labels.items() if key.startswith(PREFIX)}
