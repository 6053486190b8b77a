"""Threads that reconcile CSRs, the versions that need none, and events that fill their queue."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from threading import Event
from typing import cast

import pytest

from signer.clusters.management_cluster import ManagementCluster
from signer.clusters.workload_clusters import WorkloadClusters
from signer.controller.queue.fair_queue import Item
from signer.controller.queue.workqueue import DONE, Result, WorkQueue
from signer.controller.reconcile.dependencies import ClusterContext
from signer.controller.reconcile.reconciler import CsrReconciler
from signer.controller.threads import MAX_SECONDS
from signer.controller.workers import CsrWorkers, OwnWrites, connect_caches
from signer.fairness.cpu_budget import BURST, SHARE, CpuBudget, CpuShare
from signer.inventory.node_labels import ATTESTED
from signer.kinds.csr import Csr
from signer.kinds.node import Node
from tests.builders.kube_objects import HOME
from tests.builders.reconciler import authority
from tests.builders.scenario import Scenario, signed
from tests.builders.workload import unconnected_workload
from tests.fakes.csrs import FakeCsrs


class WritingReconciler:
    """Writes an annotation each time, and remembers the versions that it reconciled."""

    def __init__(self) -> None:
        self.versions: list[str] = []
        self.decided: list[str] = []

    def forget_unreleased(self, csr_name: str, cluster: ClusterContext) -> None:
        self.decided.append(csr_name)
        cluster.withheld.forget(csr_name)

    def reconcile(self, csr: Csr, cluster: ClusterContext) -> Result:
        self.versions.append(csr.resource_version)
        cluster.csrs.annotate(csr, {"a": str(len(self.versions))})
        return DONE


class WorkersFixture:
    """Workers of one cluster, without threads. Its only CSR is `item`."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.reconciler = WritingReconciler()
        self.csrs = FakeCsrs()
        self.workload = unconnected_workload()
        self.workload.writer = self.csrs
        self.queue = WorkQueue(
            workers=1,
            max_workers_per_cluster=1,
            monotonic=lambda: self.seconds,
            jitter=lambda: 0,
        )
        self.workers = CsrWorkers(
            self.queue,
            cast(ManagementCluster, None),
            cast(WorkloadClusters, {HOME: self.workload}),
            cast(CsrReconciler, self.reconciler),
            monotonic=lambda: self.seconds,
        )
        self.workers.add_cluster(self.workload)
        filed = self.csrs.put(Scenario().offer_csr())
        self.name = filed.name
        self.item = Item(cluster=HOME, requester=filed.username, name=filed.name)
        self.workload.csrs.replace({self.name: filed})

    @property
    def stored(self) -> Csr:
        """The CSR as the API server has it."""
        return self.csrs.stored[self.name]

    def deliver(self) -> None:
        """Deliver the CSR to the cache, as the watch does."""
        self.workload.csrs.upsert(self.name, self.stored)

    def change(self) -> None:
        """Change the CSR as somebody else."""
        self.csrs.put(replace(self.stored, annotations={"b": "theirs"}))
        self.deliver()

    def run(self) -> None:
        """Reconcile what is ready, and deliver what that writes."""
        while is_ready(self.queue, self.seconds):
            item = self.queue.get()
            assert item == self.item
            result, seconds = self.workers._reconcile(item)
            self.queue.done(item, result, seconds=seconds)
            self.deliver()


def is_ready(queue: WorkQueue, now: float) -> bool:
    """Return whether `get` would not wait."""
    with queue._lock:
        queue._promote_due()
        return queue._ready.has_next(now)


@pytest.fixture
def workers() -> Iterator[WorkersFixture]:
    fixture = WorkersFixture()
    yield fixture
    fixture.workload.stop()


def test_worker_that_hangs_makes_the_workers_unhealthy(
    workers: WorkersFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica whose workers waited for its log kept its Lease, and served nothing."""
    begun, may_end = Event(), Event()

    def hang(*_: object) -> Result:
        begun.set()
        may_end.wait()
        return DONE

    monkeypatch.setattr(workers.reconciler, "reconcile", hang)
    assert not workers.workers.are_healthy()
    workers.workers.start()
    assert begun.wait(30)
    workers.seconds = MAX_SECONDS
    assert workers.workers.are_healthy()
    workers.seconds = MAX_SECONDS + 1
    assert not workers.workers.are_healthy()
    may_end.set()
    workers.queue.shut_down()
    workers.workers.join(30)


def test_reconciliation_that_takes_much_cpu_time_counts_for_its_tenant(
    workers: WorkersFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant with 10,000 Machines lets claims of its MachinePools conflict again and again."""
    cpu = 0.0
    budget = CpuBudget(monotonic=lambda: 0.0, thread_time=lambda: cpu)
    workers.workload.cpu = CpuShare(budget, HOME.namespace)

    def conflict(*_: object) -> Result:
        nonlocal cpu
        cpu += 1.5
        return DONE

    monkeypatch.setattr(workers.reconciler, "reconcile", conflict)
    for _ in range(2):
        workers.workers._reconcile(workers.item)
    assert workers.workload.cpu.charge() == pytest.approx((2 * 1.4 - BURST) / SHARE)


def test_a_version_that_this_signer_replaced_is_not_verified_again(workers: WorkersFixture) -> None:
    """The watch delivers a write later. A second verification would cost CPU and a conflict."""
    filed = workers.stored
    for _ in range(2):
        assert workers.workers._reconcile(workers.item)[0] == DONE
    workers.deliver()
    assert workers.workers._reconcile(workers.item)[0] == DONE
    assert workers.reconciler.versions == [filed.resource_version]
    workers.change()
    workers.workers._reconcile(workers.item)
    assert len(workers.reconciler.versions) == 2


def test_challenge_that_others_rewrite_is_corrected_several_times_a_second(
    workers: WorkersFixture,
) -> None:
    """Each correction doubles the pause before the next one, up to a minute."""
    workers.run()
    corrected = [workers.seconds]
    while workers.seconds < 600:
        workers.change()
        before = len(workers.reconciler.versions)
        workers.run()
        if len(workers.reconciler.versions) > before:
            corrected.append(workers.seconds)
        workers.seconds += 0.25
    assert corrected[:6] == [0, 0, 2, 6, 14, 30]
    assert len(corrected) == 15
    assert max(later - earlier for earlier, later in pairwise(corrected)) == 60


def test_change_by_others_is_corrected_when_its_pause_ends(workers: WorkersFixture) -> None:
    """No further event is needed."""
    for _ in range(3):
        workers.run()
        workers.change()
    before = len(workers.reconciler.versions)
    workers.run()
    assert len(workers.reconciler.versions) == before
    workers.seconds = 2.0
    workers.run()
    assert len(workers.reconciler.versions) == before + 1
    assert len(workers.queue) == 0


def test_pauses_are_forgotten_with_the_csr(workers: WorkersFixture) -> None:
    workers.run()
    state = workers.workers._states[workers.workload]
    assert len(state.pauses) == 1
    workers.workload.csrs.delete(workers.name)
    assert len(state.pauses) == 0


@pytest.mark.parametrize("released", [False, True])
def test_unreleased_certificate_is_looked_at_when_its_csr_waits_no_longer(
    workers: WorkersFixture, *, released: bool
) -> None:
    """Another replica decided the CSR, and the claim has the certificates of both."""
    scenario, state = Scenario(), workers.workers._states[workers.workload]
    expiry = scenario.now + timedelta(days=1)
    verified = scenario.verify_answer()
    state.withheld.get_or_sign(workers.stored, verified, authority(), expiry, signed(expiry), "")
    workers.run()
    assert workers.reconciler.decided == []
    if released:
        state.withheld.note_release(workers.stored.uid)
    workers.workload.csrs.delete(workers.name)
    assert is_ready(workers.queue, workers.seconds) is not released
    if not released:
        item = workers.queue.get()
        assert item == workers.item
        assert workers.workers._reconcile(item)[0] == DONE
    assert workers.reconciler.decided == ([] if released else [workers.name])
    assert not state.withheld.unreleased(workers.name)


CSR = replace(Scenario().offer_csr(), resource_version="1")


def test_only_versions_that_were_added_are_handled() -> None:
    handled = OwnWrites()
    handled.add(CSR.name, {"1", "2"})
    assert handled.includes(CSR)
    assert handled.includes(replace(CSR, resource_version="2"))
    assert not handled.includes(replace(CSR, resource_version="3"))
    assert not handled.includes(replace(CSR, name="another"))


def test_versions_stay_while_the_cache_has_one_of_them() -> None:
    """An approval and a certificate replace two versions, and the watch delivers one by one."""
    handled = OwnWrites()
    handled.add(CSR.name, {"1", "2"})
    handled.observe(CSR.name, CSR)
    handled.observe(CSR.name, replace(CSR, resource_version="2"))
    assert handled.includes(CSR)


@pytest.mark.parametrize("change", [None, replace(CSR, resource_version="3")])
def test_versions_are_forgotten_when_the_cache_has_none_of_them(change: object) -> None:
    """Their number stays below that of the CSRs in the cache."""
    handled = OwnWrites()
    handled.add(CSR.name, {"1", "2"})
    handled.observe(CSR.name, change)  # type: ignore[arg-type] # a CSR or none
    assert not handled.includes(CSR)
    assert len(handled) == 0


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
