"""Events of Nodes and bindings in workload clusters: they requeue CSRs and start maintenance."""

from signer.controller.workqueue import WorkQueue
from signer.inventory.workload import WorkloadCluster
from signer.model import Node


def connect_caches(workload: WorkloadCluster, queue: WorkQueue) -> None:
    """Connect the Nodes and the bindings of a workload cluster with the queue."""
    key = workload.key

    def node_changed(_: str, before: Node | None, after: Node | None) -> None:
        if after is not None and (before is None or before.labels != after.labels):
            workload.maintenance_due.set()
        for node in (before, after):
            if node is not None:
                queue.notify(key, node.name)
                queue.notify(key, node.provider_id)

    def bindings_changed(_: str, _before: str | None, _after: str | None) -> None:
        queue.notify(key, None)
        workload.maintenance_due.set()

    workload.nodes.add_event_handler(node_changed)
    workload.bindings.add_event_handler(bindings_changed)
