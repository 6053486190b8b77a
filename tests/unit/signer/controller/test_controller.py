"""Threads of the controller: a hostile cluster neither speeds them up nor outlives its end."""

from dataclasses import replace
from http import HTTPStatus
from threading import Event, Thread

import pytest

from common.errors import ApiServerUnavailable
from signer.config import Config
from signer.controller import controller, workload_rounds
from signer.controller.cluster_context import ClusterContext
from signer.controller.controller import Controller
from signer.controller.fair_queue import Item
from signer.controller.live_leases import RENEW_SECONDS
from signer.controller.reconcile import Reconciler
from signer.controller.replicas import Replicas
from signer.controller.workqueue import DONE, Result
from signer.inventory.cluster_connector import CONNECTING
from signer.inventory.management import ManagementCluster
from signer.inventory.node_labels import ATTESTED
from signer.inventory.workload import WorkloadCluster
from signer.inventory.workload_clusters import WorkloadClusters
from signer.kube.budget import Budgets
from signer.kube.event_loop import EventLoop
from signer.kube.kubeconfig import parse_kubeconfig
from signer.model import Csr, Node
from signer.policy import NodeLabels, Policy
from signer.task_pool import TaskPool
from tests.builders.kube_objects import HOME
from tests.builders.scenario import Scenario
from tests.fakes.csrs import FakeCsrs
from tests.harness import kubeconfig, pki


@pytest.fixture
def workload() -> WorkloadCluster:
    ca = pki.Authority.make("test", pki.ec_key()).pair.certificate
    connection = parse_kubeconfig(kubeconfig.with_token("https://192.0.2.1:6443", ca, "t").encode())
    loop = EventLoop("unused", TaskPool(1))
    return WorkloadCluster(HOME, "uid", connection, user_agent="test", budgets=Budgets(), loop=loop)


def make_controller(workload: WorkloadCluster) -> Controller:
    config = Config(
        management=workload.connection,
        own_namespace="n",
        watched_namespace="",
        infrastructure_groups=(),
        policy_file=None,
        metrics_address=None,
        metrics_secure=False,
    )
    return Controller(config, agent="test", host_name="host")


def test_full_round_of_maintenance_reads_hosts_and_authority(
    workload: WorkloadCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round read both: 17 requests a second for 500 idle clusters."""
    signer = make_controller(workload)
    reads: list[str] = []
    monkeypatch.setattr(workload, "read_hosts", lambda: reads.append("hosts"))
    rounds = signer._rounds
    monkeypatch.setattr(rounds._authorities, "authority", lambda _: reads.append("authority"))
    rounds.add(workload)
    assert rounds.problem(workload) is CONNECTING
    assert not rounds.maintain(workload, full=False)
    assert reads == []
    assert rounds.maintain(workload, full=True)
    assert rounds.problem(workload) is None
    assert reads == ["hosts", "authority"]


def test_new_node_and_changed_labels_start_a_round_of_maintenance(
    workload: WorkloadCluster,
) -> None:
    """Its labels must not wait for the next round. Other changes of a Node need none."""
    make_controller(workload)._on_cluster_added(workload)
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


def test_incomplete_caches_do_not_stop_maintenance(
    workload: WorkloadCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A namespace over its memory budget would show its Clusters as not served."""
    signer = make_controller(workload)
    rounds, policy = signer._rounds, Policy(name="any", node_labels=NodeLabels.ENABLED)
    monkeypatch.setattr(workload, "read_hosts", lambda: None)
    monkeypatch.setattr(rounds._authorities, "authority", lambda _: None)
    monkeypatch.setattr(rounds._policies, "policy_of", lambda _: policy)
    workload.nodes.replace({"node-1": Node(name="node-1", provider_id="")})
    rounds.add(workload)
    assert rounds.maintain(workload, full=True)


def test_forbidden_labels_are_one_event_and_the_cluster_is_served(
    workload: WorkloadCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever Node is tried first: each other message would be a new Event in each round."""
    signer = make_controller(workload)
    rounds, tried, recorded = signer._rounds, iter("ab"), set()

    def forbid(*_: object) -> None:
        error = ApiServerUnavailable("any", detail=f"PATCH /api/v1/nodes/{next(tried)}: no")
        error.status = HTTPStatus.FORBIDDEN
        raise error

    def record(_: object, reason: str, message: str, __: object) -> None:
        recorded.add((reason, message))

    policy = Policy(name="any", node_labels=NodeLabels.ENABLED)
    monkeypatch.setattr(workload, "read_hosts", lambda: None)
    monkeypatch.setattr(rounds._authorities, "authority", lambda _: None)
    monkeypatch.setattr(rounds._policies, "policy_of", lambda _: policy)
    monkeypatch.setattr(workload_rounds, "plan_label_changes", lambda *_, **__: ())
    monkeypatch.setattr(workload_rounds, "write_label_changes", forbid)
    monkeypatch.setattr(rounds._events, "record", record)
    workload.nodes.replace({})
    rounds.add(workload)
    for _ in range(2):
        assert rounds.maintain(workload, full=True)
        assert rounds.problem(workload) is None
    message = "the workload cluster forbids labels on Nodes: apply node-labels-rbac.yaml there"
    assert recorded == {("NodeLabelsForbidden", message)}


def test_the_shutdown_does_not_wait_for_the_management_cluster(
    workload: WorkloadCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Secret that cannot be read takes half a minute."""
    called, ended, stop = Event(), Event(), Event()

    def hang(_: WorkloadClusters) -> None:
        called.set()
        ended.wait()

    monkeypatch.setattr(ManagementCluster, "start", lambda _: None)
    monkeypatch.setattr(WorkloadClusters, "sync", hang)
    running = Thread(target=make_controller(workload).run, args=(stop,), daemon=True)
    running.start()
    assert called.wait(30)
    stop.set()
    running.join(30)
    assert not running.is_alive()
    ended.set()


@pytest.mark.parametrize("successors", [True, False])
def test_replica_that_ends_serves_until_the_others_have_taken_over(
    workload: WorkloadCluster, monkeypatch: pytest.MonkeyPatch, *, successors: bool
) -> None:
    """Without others, it ends at once."""
    steps: list[str] = []
    stop = Event()
    monkeypatch.setattr(ManagementCluster, "start", lambda _: None)
    monkeypatch.setattr(Replicas, "sync", lambda _: stop.set())
    monkeypatch.setattr(Replicas, "leave", lambda _: steps.append("Lease deleted"))
    monkeypatch.setattr(Replicas, "has_successors", successors)
    monkeypatch.setattr(WorkloadClusters, "sync", lambda _: None)
    monkeypatch.setattr(WorkloadClusters, "open_clusters", lambda _: [workload])
    monkeypatch.setattr(WorkloadClusters, "stop", lambda _: steps.append("Clusters closed"))
    monkeypatch.setattr("time.sleep", lambda _: steps.append("handed over"))
    make_controller(workload).run(stop)
    hand_over = ["handed over"] if successors else []
    assert steps == ["Lease deleted", *hand_over, "Clusters closed"]


class RecordedPauses:
    """In place of an event: records each pause, and is set after a number of them."""

    def __init__(self, number: int) -> None:
        self.pauses: list[float] = []
        self._number = number

    def wait(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        return len(self.pauses) >= self._number


def test_replica_that_starts_does_not_wait_for_the_next_renewal(
    workload: WorkloadCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was ready up to two seconds after the last list."""
    signer, leaving = make_controller(workload), RecordedPauses(3)
    joined = iter([False, True, True])
    monkeypatch.setattr(Replicas, "sync", lambda _: None)
    monkeypatch.setattr(Replicas, "leave", lambda _: None)
    monkeypatch.setattr(Replicas, "has_joined", property(lambda _: next(joined)))
    monkeypatch.setattr(signer, "_leaving", leaving)
    signer._share_clusters()
    assert leaving.pauses == [0.1, RENEW_SECONDS, RENEW_SECONDS]


def test_clusters_are_connected_to_as_soon_as_the_management_cluster_is_listed(
    workload: WorkloadCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    signer, stop = make_controller(workload), RecordedPauses(3)
    listed = iter([False, True, True])
    monkeypatch.setattr(WorkloadClusters, "sync", lambda _: None)
    monkeypatch.setattr(ManagementCluster, "has_synced", lambda _: next(listed))
    monkeypatch.setattr(signer, "_stop", stop)
    signer._sync_clusters()
    assert stop.pauses == [0.1, 1.0, 1.0]


def test_replicas_share_only_with_the_same_policies_and_infrastructure_groups(
    workload: WorkloadCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = make_controller(workload), make_controller(workload)
    assert first._settings() == second._settings()
    monkeypatch.setattr(type(second._policy_sync), "digest", "another file")
    other_file = second._settings()
    monkeypatch.undo()
    second._config = replace(second._config, infrastructure_groups=("another.group",))
    assert len({first._settings(), other_file, second._settings()}) == 3


def test_the_circuit_breaker_of_a_closed_cluster_is_reset(
    workload: WorkloadCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Cluster that is created again under the name starts without the failures of the old one."""
    signer = make_controller(workload)
    for n in range(3):
        signer._queue.add(Item(cluster=HOME, requester="r", name=str(n)))
        item = signer._queue.get()
        assert item is not None
        signer._queue.done(item, DONE, slow=True)
    assert signer._queue.state().open_breakers == {HOME}
    monkeypatch.setattr(workload, "read_hosts", lambda: None)
    signer._maintenance.sync([workload])
    signer._maintenance.sync([])
    assert signer._queue.state().open_breakers == frozenset()


def test_a_failed_step_of_the_maintenance_does_not_stop_the_next_one(
    workload: WorkloadCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    signer = make_controller(workload)
    steps: list[str] = []

    def rotate() -> None:
        steps.append("rotate")
        raise ApiServerUnavailable("away")

    def delete_unclaimed_keys() -> None:
        steps.append("keys")
        signer._stop.set()

    monkeypatch.setattr(controller, "_MAINTENANCE_INTERVAL", 0.0)
    monkeypatch.setattr(signer._challenge_keys, "rotate", rotate)
    monkeypatch.setattr(signer._cleanup, "delete_unclaimed_keys", delete_unclaimed_keys)
    signer._maintain_management()
    assert steps == ["rotate", "keys"]


def test_a_version_that_this_signer_replaced_is_not_verified_again(
    workload: WorkloadCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch delivers a write later. A second verification would cost CPU and a conflict."""
    signer = make_controller(workload)
    signer._on_cluster_added(workload)
    monkeypatch.setattr(signer._clusters, "get", lambda _: workload)
    csrs = FakeCsrs()
    workload.writer = csrs  # type: ignore[assignment] # the part of it that is called
    reconciled: list[str] = []

    def reconcile(_: Reconciler, csr: Csr, cluster: ClusterContext) -> Result:
        reconciled.append(csr.resource_version)
        cluster.csrs.annotate(csr, {"a": str(len(reconciled))})
        return DONE

    monkeypatch.setattr(Reconciler, "reconcile", reconcile)
    filed = csrs.put(Scenario().offer_csr())
    workload.csrs.replace({filed.name: filed})
    item = Item(cluster=HOME, requester=filed.username, name=filed.name)
    for _ in range(2):
        assert signer._reconcile(item)[0] == DONE
    written = csrs.stored[filed.name]
    workload.csrs.upsert(filed.name, written)
    assert signer._reconcile(item)[0] == DONE
    assert reconciled == [filed.resource_version]
    workload.csrs.upsert(filed.name, csrs.put(replace(written, annotations={"b": "theirs"})))
    signer._reconcile(item)
    assert len(reconciled) == 2
    workload.stop()
