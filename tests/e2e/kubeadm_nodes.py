"""Nodes that kubeadm has joined."""

from tests.harness.client import ApiError
from tests.harness.node import Node


def is_ready(node: Node) -> bool:
    """Return whether the Node is Ready."""
    try:
        document = node.tenant.workload.admin.get(f"/api/v1/nodes/{node.name}")
    except ApiError as error:
        if error.code != 404:
            raise
        return False
    conditions = document["status"].get("conditions", [])
    return any((c["type"], c["status"]) == ("Ready", "True") for c in conditions)
