"""Threads of the controller: its start, its end and the replicas."""

from threading import Event, Thread

import pytest

from signer.clusters.management_cluster import ManagementCluster
from signer.clusters.workload_cluster import WorkloadCluster
from signer.clusters.workload_clusters import WorkloadClusters
from signer.controller.controller import Controller
from signer.controller.live_leases import RENEW_SECONDS
from signer.controller.replicas import Replicas
from signer.logs import LogWriter
from tests.builders.workload import config_with, unconnected_workload


@pytest.fixture
def workload() -> WorkloadCluster:
    return unconnected_workload()


def make_controller(workload: WorkloadCluster) -> Controller:
    return Controller(config_with(workload.connection), LogWriter(), agent="test", host_name="host")


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
    monkeypatch.setattr(Replicas, "has_share_of_clusters", property(lambda _: next(joined)))
    monkeypatch.setattr(signer._sharing, "_stop", leaving)
    monkeypatch.setattr(signer._sharing, "_began", 1.0)
    with monkeypatch.context() as clock:
        clock.setattr("time.monotonic", lambda: 1.0)
        signer._sharing._run()
    assert leaving.pauses == [0.1, RENEW_SECONDS, RENEW_SECONDS]


def test_clusters_are_connected_to_as_soon_as_the_management_cluster_is_listed(
    workload: WorkloadCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    signer, listed = make_controller(workload), iter([False, True])
    monkeypatch.setattr(ManagementCluster, "has_synced", lambda _: next(listed))
    assert [signer._sync_pause(), signer._sync_pause()] == [0.1, 1.0]
