"""The threads that reconcile CSRs, and the events of CSRs that fill their queue."""

import logging
import time
from dataclasses import dataclass, field
from threading import Thread
from typing import Final
from weakref import WeakKeyDictionary

from common.errors import Unavailable
from signer.controller.cluster_context import ClusterContext
from signer.controller.fair_queue import Item
from signer.controller.handled_versions import HandledVersions
from signer.controller.reconcile import Reconciler
from signer.controller.requester_share import RequesterShares
from signer.controller.timed_csrs import TimedCsrWriter
from signer.controller.workqueue import DONE, RETRY, Result, WorkQueue
from signer.inventory.lister import CachedInventory
from signer.inventory.management import ManagementCluster
from signer.inventory.workload import WorkloadCluster
from signer.inventory.workload_clusters import WorkloadClusters
from signer.model import ClusterKey, Csr
from signer.verify.parse import seems_answer

_logger = logging.getLogger(__name__)

WORKERS: Final = 64
MAX_WORKERS_PER_CLUSTER: Final = 16
"""Each call to a cluster may take half a minute to fail; `FairQueue` limits the owners. A worker
waits for most of a call: for a cluster that is 50 ms away, four of 32 workers issued 9 certificates
a second; without this limit, 64 issued 37."""


@dataclass(frozen=True, slots=True)
class _CsrState:
    """What the workers remember of the CSRs of one cluster."""

    shares: RequesterShares = field(default_factory=RequesterShares)
    handled: HandledVersions = field(default_factory=HandledVersions)


class CsrWorkers:
    """The workers of all clusters."""

    def __init__(
        self,
        queue: WorkQueue,
        management: ManagementCluster,
        clusters: WorkloadClusters,
        reconciler: Reconciler,
    ) -> None:
        self._queue = queue
        self._management = management
        self._clusters = clusters
        self._reconciler = reconciler
        self._states: WeakKeyDictionary[WorkloadCluster, _CsrState] = WeakKeyDictionary()
        self._threads = [
            Thread(target=self._work, name=f"worker {n}", daemon=True) for n in range(WORKERS)
        ]

    def start(self) -> None:
        """Start the threads; they end when the queue shuts down."""
        for thread in self._threads:
            thread.start()

    def join(self, seconds: float) -> None:
        """Wait until the threads have ended, but at most this time for all of them."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def are_alive(self) -> bool:
        """Return whether every thread runs."""
        return all(thread.is_alive() for thread in self._threads)

    def add_cluster(self, workload: WorkloadCluster) -> None:
        """Reconcile the CSRs of a workload cluster, now and after each change."""
        key = workload.key
        state = self._states[workload] = _CsrState()

        def csr_changed(name: str, before: Csr | None, after: Csr | None) -> None:
            state.shares.update(before, after)
            state.handled.observe(name, after)
            if workload.stopped.is_set():
                return
            if after is not None:
                self._queue.add(_item(key, after))
            elif before is not None:
                self._queue.forget(_item(key, before))

        workload.csrs.add_event_handler(csr_changed)

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            result, slow = RETRY, None
            try:
                result, slow = self._reconcile(item)
            except Unavailable:
                pass  # a cache is not filled yet
            except Exception:
                fields = item.cluster.log_fields() | {"csr": item.name}
                _logger.exception("reconciliation failed", extra={"fields": fields})
            finally:
                self._queue.done(item, result, slow=slow)

    def _reconcile(self, item: Item) -> tuple[Result, bool | None]:
        """Reconcile an item; return the result, and whether a call to the cluster was slow."""
        workload = self._clusters.get(item.cluster)
        csr = workload.csrs.get(item.name) if workload is not None else None
        if workload is None or csr is None or _item(item.cluster, csr) != item:
            return DONE, None
        state = self._states[workload]
        if state.handled.includes(csr):
            return DONE, None
        writer = TimedCsrWriter(workload.writer, time.monotonic)
        context = ClusterContext(
            key=item.cluster,
            inventory=CachedInventory(self._management, workload),
            csrs=writer,
            credentials=workload.credentials,
            shares=state.shares,
        )
        result = self._reconciler.reconcile(csr, context)
        if writer.written is not None:
            state.handled.add(csr.name, writer.replaced)
            if result == DONE:
                state.handled.add(csr.name, {writer.written})
            # The watch may have delivered a later version, or the end, before.
            state.handled.observe(csr.name, workload.csrs.get(csr.name))
        if writer.accepted:
            workload.cpu.refund()
        return result, writer.slow


def _item(cluster: ClusterKey, csr: Csr) -> Item:
    return Item(
        cluster=cluster,
        requester=csr.username,
        name=csr.name,
        seems_answer=seems_answer(csr.request),
    )
