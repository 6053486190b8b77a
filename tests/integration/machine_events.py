"""Events on the Machines of nodes, and their condition KubeletAttested."""

from typing import Any

from tests.harness.client import Object
from tests.harness.fleet import Fleet
from tests.harness.node import Node
from tests.harness.process import wait_until

MACHINES = "/apis/cluster.x-k8s.io/v1beta2/namespaces/{}/machines/{}"


def events(fleet: Fleet, node: Node) -> set[tuple[str, str]]:
    """Return type and reason of the Events on the Machine of a node."""
    path = f"/api/v1/namespaces/{node.tenant.namespace}/events"
    selector = f"involvedObject.kind=Machine,involvedObject.name={node.name}"
    found = fleet.management.admin.list(path, fieldSelector=selector)
    return {(event["type"], event["reason"]) for event in found}


def condition(fleet: Fleet, node: Node) -> Object:
    """Return the condition KubeletAttested of a node's Machine, with the Machine's generation."""
    machine = fleet.management.admin.get(MACHINES.format(node.tenant.namespace, node.name))
    conditions = {c["type"]: c for c in machine["status"].get("conditions", [])}
    found: dict[str, Any] = conditions.get("KubeletAttested", {})
    return {**found, "generation": machine["metadata"]["generation"]}


def wait_for_condition(fleet: Fleet, node: Node, status: str, reason: str) -> None:
    def shown() -> bool:
        found = condition(fleet, node)
        return (found.get("status"), found.get("reason")) == (status, reason)

    wait_until(shown, what=f"the Machine has KubeletAttested={status} {reason}", seconds=120)
