"""Threads of the controller: a hostile cluster neither speeds them up nor outlives its end."""

from dataclasses import replace
from http import HTTPStatus
from threading import Event, Thread

import pytest

from common.errors import ApiServerUnavailable
from signer.config import Config
from signer.controller import workload_rounds
from signer.controller.controller import Controller
from signer.controller.fair_queue import Item
from signer.controller.replicas import Replicas
from signer.controller.workqueue import DONE
from signer.inventory.cluster_connector import CONNECTING
from signer.inventory.management import ManagementCluster
from signer.inventory.workload import WorkloadCluster
from signer.inventory.workload_clusters import WorkloadClusters
from signer.model import Node
from signer.policy import NodeLabels, Policy
from tests.builders.kube_objects import HOME
from tests.builders.workload import unconnected_workload


@pytest.fixture
def workload() -> WorkloadCluster:
    return unconnected_workload()


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
