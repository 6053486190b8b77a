"""Threads of the controller: its start, its end and the replicas."""

from threading import Event, Thread

import pytest

from signer.controller.controller import Controller
from signer.controller.replicas import Replicas
from signer.inventory.management import ManagementCluster
from signer.inventory.workload import WorkloadCluster
from signer.inventory.workload_clusters import WorkloadClusters
from tests.builders.workload import config_with, unconnected_workload


@pytest.fixture
def workload() -> WorkloadCluster:
    return unconnected_workload()


def make_controller(workload: WorkloadCluster) -> Controller:
    return Controller(config_with(workload.connection), agent="test", host_name="host")


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
