"""The threads that reconcile CSRs, and the events of CSRs that fill their queue.

A write gives a CSR a new resourceVersion, and the watch delivers it later. Until then the cache has
a version that the write replaced: to verify it again would only lead to a conflict. The version
that the last write of a finished reconciliation made needs no verification either. `OwnWrites`
remembers both. Events of Nodes and bindings requeue CSRs and start maintenance.
"""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from threading import Lock, Thread
from typing import Final
from weakref import WeakKeyDictionary

from common.errors import Unavailable
from signer.clusters.management_cluster import ManagementCluster
from signer.clusters.workload_cluster import WorkloadCluster
from signer.clusters.workload_clusters import WorkloadClusters
from signer.controller.queue.fair_queue import Item
from signer.controller.queue.rewrite_pauses import RewritePauses
from signer.controller.queue.workqueue import DONE, RETRY, Requeue, Result, WorkQueue
from signer.controller.reconcile.dependencies import ClusterContext
from signer.controller.reconcile.limits import RequesterShares
from signer.controller.reconcile.reconciler import CsrReconciler
from signer.controller.reconcile.withheld_certificates import WithheldCertificates
from signer.controller.recording_writer import RecordingCsrWriter
from signer.controller.threads import MAX_SECONDS
from signer.inventory.cached_inventory import CachedInventory
from signer.kinds.cluster import ClusterKey
from signer.kinds.csr import Csr
from signer.kinds.node import Node
from signer.verify.requests.parse import is_probable_answer

_logger = logging.getLogger(__name__)

WORKERS: Final = 64
MAX_WORKERS_PER_CLUSTER: Final = 16
"""Each call to a cluster may take half a minute to fail; `FairQueue` limits the tenants. A worker
waits for most of a call: for a cluster that is 50 ms away, four of 32 workers issued 9 certificates
a second; without this limit, 64 issued 37."""
_FREE_CPU: Final = 0.1
"""Seconds of CPU of one reconciliation that do not count for its tenant. An answer takes 12 ms
(docs/performance.md); a conflict may read all MachinePools and Machines of a namespace."""


class OwnWrites:
    """resourceVersions by CSR name, for any number of threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._versions: dict[str, set[str]] = {}

    def add(self, name: str, versions: set[str]) -> None:
        """Note versions of a CSR that need no reconciliation."""
        with self._lock:
            self._versions.setdefault(name, set()).update(versions)

    def observe(self, name: str, csr: Csr | None) -> None:
        """Forget a CSR's versions if the cache now has another one, or no such CSR."""
        with self._lock:
            if csr is None or csr.resource_version not in self._versions.get(name, ()):
                self._versions.pop(name, None)

    def includes(self, csr: Csr) -> bool:
        """Return whether this version of the CSR needs no reconciliation."""
        with self._lock:
            return csr.resource_version in self._versions.get(csr.name, ())

    def __len__(self) -> int:
        """Return the number of CSRs with such versions."""
        return len(self._versions)


@dataclass(frozen=True, slots=True)
class _ClusterCsrs:
    """What the workers remember of the CSRs of one cluster."""

    shares: RequesterShares = field(default_factory=RequesterShares)
    handled: OwnWrites = field(default_factory=OwnWrites)
    pauses: RewritePauses = field(default_factory=RewritePauses)
    withheld: WithheldCertificates = field(default_factory=WithheldCertificates)


class CsrWorkers:
    """The workers of all clusters."""

    def __init__(
        self,
        queue: WorkQueue,
        management: ManagementCluster,
        clusters: WorkloadClusters,
        reconciler: CsrReconciler,
        *,
        monotonic: Callable[[], float],
    ) -> None:
        self._queue = queue
        self._management = management
        self._clusters = clusters
        self._reconciler = reconciler
        self._monotonic = monotonic
        self._states: WeakKeyDictionary[WorkloadCluster, _ClusterCsrs] = WeakKeyDictionary()
        self._threads = [
            Thread(target=self._work, args=(n,), name=f"worker {n}", daemon=True)
            for n in range(WORKERS)
        ]
        self._began = [math.inf] * WORKERS
        """When each worker began to process its item; infinity without an item."""

    def start(self) -> None:
        """Start the threads; they end when the queue shuts down."""
        for thread in self._threads:
            thread.start()

    def join(self, seconds: float) -> None:
        """Wait until the threads have ended, but at most this time for all of them."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def are_healthy(self) -> bool:
        """Return whether every thread runs, and none processes one item for too long."""
        late = self._monotonic() - min(self._began) > MAX_SECONDS
        return not late and all(thread.is_alive() for thread in self._threads)

    def add_cluster(self, workload: WorkloadCluster) -> None:
        """Reconcile the CSRs of a workload cluster, now and after each change."""
        key = workload.key
        state = self._states[workload] = _ClusterCsrs()

        def csr_changed(name: str, before: Csr | None, after: Csr | None) -> None:
            state.shares.update(before, after)
            state.handled.observe(name, after)
            if after is None or (before is not None and before.uid != after.uid):
                state.pauses.forget(name)
            if workload.stopped.is_set():
                return
            if after is not None:
                self._queue.add(_item(key, after))
            elif before is not None and state.withheld.unreleased(name):
                self._queue.add(_item(key, before))
            elif before is not None:
                state.withheld.forget(name)
                self._queue.forget(_item(key, before))

        workload.csrs.add_event_handler(csr_changed)

    def _work(self, number: int) -> None:
        while (item := self._queue.get()) is not None:
            result, seconds = RETRY, None
            self._began[number] = self._monotonic()
            try:
                result, seconds = self._reconcile(item)
            except Unavailable:
                pass  # a cache is not filled yet
            except Exception:
                fields = item.cluster.log_fields() | {"csr": item.name}
                _logger.exception("reconciliation failed", extra={"fields": fields})
            finally:
                self._began[number] = math.inf
                self._queue.done(item, result, seconds=seconds)

    def _reconcile(self, item: Item) -> tuple[Result, float | None]:
        """Reconcile an item; return the result, and how long the cluster's slowest call took."""
        workload = self._clusters.get(item.cluster)
        if workload is None:
            return DONE, None
        csr, state = workload.csrs.get(item.name), self._states[workload]
        writer = RecordingCsrWriter(workload.writer, self._monotonic)
        context = self._context(workload, state, writer)
        if csr is None:
            forget = partial(self._reconciler.forget_unreleased, item.name, context)
            workload.cpu.call(forget, free=_FREE_CPU)
            return DONE, writer.seconds
        if _item(item.cluster, csr) != item or state.handled.includes(csr):
            return DONE, None
        pause = state.pauses.remaining(csr, self._monotonic())
        if pause:
            return Result(requeue=Requeue.ON_CHANGE, seconds=pause), None
        reconcile = partial(self._reconciler.reconcile, csr, context)
        result, _ = workload.cpu.call(reconcile, free=_FREE_CPU)
        if writer.attempted:
            state.pauses.note_write(csr, writer.written, self._monotonic())
            if workload.csrs.get(csr.name) is None:
                state.pauses.forget(csr.name)
        if writer.written is not None:
            state.handled.add(csr.name, writer.replaced)
            if result == DONE:
                state.handled.add(csr.name, {writer.written})
            # The watch may have delivered a later version, or the end, before.
            state.handled.observe(csr.name, workload.csrs.get(csr.name))
        if writer.accepted:
            workload.cpu.refund()
        return result, writer.seconds

    def _context(
        self, workload: WorkloadCluster, state: _ClusterCsrs, writer: RecordingCsrWriter
    ) -> ClusterContext:
        return ClusterContext(
            key=workload.key,
            inventory=CachedInventory(self._management, workload),
            csrs=writer,
            ended=workload.ended,
            shares=state.shares,
            withheld=state.withheld,
            on_authority_failure=workload.full_maintenance_due.set,
        )


def _item(cluster: ClusterKey, csr: Csr) -> Item:
    return Item(
        cluster=cluster,
        requester=csr.username,
        name=csr.name,
        is_probable_answer=is_probable_answer(csr.request),
    )


def connect_caches(workload: WorkloadCluster, queue: WorkQueue) -> None:
    """Connect the Nodes and the bindings of a workload cluster with the queue."""
    key = workload.key

    def node_changed(_: str, before: Node | None, after: Node | None) -> None:
        if after is None:
            if workload.keeps_bindings:
                workload.maintenance_due.set()
        elif before is None or (before.labels, before.tainted) != (after.labels, after.tainted):
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
