"""Threads that reconcile CSRs."""

from dataclasses import replace
from typing import cast

from signer.controller.cluster_context import ClusterContext
from signer.controller.csr_workers import CsrWorkers
from signer.controller.fair_queue import Item
from signer.controller.reconcile import Reconciler
from signer.controller.workqueue import DONE, Result, WorkQueue
from signer.inventory.management import ManagementCluster
from signer.inventory.workload_clusters import WorkloadClusters
from signer.model import Csr
from tests.builders.kube_objects import HOME
from tests.builders.scenario import Scenario
from tests.builders.workload import unconnected_workload
from tests.fakes.csrs import FakeCsrs


class WritingReconciler:
    """Writes an annotation each time, and remembers the versions that it reconciled."""

    def __init__(self) -> None:
        self.versions: list[str] = []

    def reconcile(self, csr: Csr, cluster: ClusterContext) -> Result:
        self.versions.append(csr.resource_version)
        cluster.csrs.annotate(csr, {"a": str(len(self.versions))})
        return DONE


def test_a_version_that_this_signer_replaced_is_not_verified_again() -> None:
    """The watch delivers a write later. A second verification would cost CPU and a conflict."""
    workload = unconnected_workload()
    csrs = FakeCsrs()
    workload.writer = csrs  # type: ignore[assignment] # the part of it that is called
    reconciler = WritingReconciler()
    queue = WorkQueue(workers=1, max_workers_per_cluster=1, monotonic=lambda: 0.0, jitter=lambda: 0)
    clusters = {HOME: workload}
    workers = CsrWorkers(
        queue,
        cast(ManagementCluster, None),
        cast(WorkloadClusters, clusters),
        cast(Reconciler, reconciler),
    )
    workers.add_cluster(workload)
    filed = csrs.put(Scenario().offer_csr())
    workload.csrs.replace({filed.name: filed})
    item = Item(cluster=HOME, requester=filed.username, name=filed.name)
    for _ in range(2):
        assert workers._reconcile(item)[0] == DONE
    written = csrs.stored[filed.name]
    workload.csrs.upsert(filed.name, written)
    assert workers._reconcile(item)[0] == DONE
    assert reconciler.versions == [filed.resource_version]
    workload.csrs.upsert(filed.name, csrs.put(replace(written, annotations={"b": "theirs"})))
    workers._reconcile(item)
    assert len(reconciler.versions) == 2
    workload.stop()
