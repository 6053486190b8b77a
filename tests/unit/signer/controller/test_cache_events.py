"""Events of the caches of a workload cluster."""

from dataclasses import replace

from signer.controller.queue.workqueue import WorkQueue
from signer.controller.workers import connect_caches
from signer.inventory.node_labels import ATTESTED
from signer.model import Node
from tests.builders.workload import unconnected_workload


def test_new_node_and_changed_labels_start_a_round_of_maintenance() -> None:
    """Its labels must not wait for the next round. Other changes of a Node need none."""
    workload = unconnected_workload()
    queue = WorkQueue(workers=1, max_workers_per_cluster=1, monotonic=lambda: 0.0, jitter=lambda: 0)
    connect_caches(workload, queue)
    workload.nodes.replace({})
    node = Node(name="node-1", provider_id="")
    for changed, due in (
        (node, True),
        (replace(node, provider_id="metal://1"), False),
        (replace(node, provider_id="metal://1", labels={ATTESTED: "true"}), True),
    ):
        workload.maintenance_due.clear()
        workload.nodes.upsert("node-1", changed)
        assert workload.maintenance_due.is_set() is due
    workload.maintenance_due.clear()
    workload.nodes.delete("node-1")
    assert not workload.maintenance_due.is_set()
