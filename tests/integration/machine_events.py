"""Events on the Machines of nodes."""

from tests.harness.fleet import Fleet
from tests.harness.node import Node


def events(fleet: Fleet, node: Node) -> set[tuple[str, str]]:
    """Return type and reason of the Events on the Machine of a node."""
    path = f"/api/v1/namespaces/{node.tenant.namespace}/events"
    selector = f"involvedObject.kind=Machine,involvedObject.name={node.name}"
    found = fleet.management.admin.list(path, fieldSelector=selector)
    return {(event["type"], event["reason"]) for event in found}
