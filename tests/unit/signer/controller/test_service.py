"""The threads beside the workers: hostile clusters neither drive nor outlive them."""

import time
from threading import Event, Thread
from types import MappingProxyType

import pytest

from signer.config import Config
from signer.controller import service
from signer.controller.service import Controller
from signer.inventory.management import ManagementCluster
from signer.inventory.workload import WorkloadCluster
from signer.inventory.workload_clusters import WorkloadClusters
from signer.kube.budget import MemoryBudget
from signer.kube.kubeconfig import parse_kubeconfig
from signer.policy import PolicySet
from tests.builders.kube_objects import HOME
from tests.harness import kubeconfig, pki


@pytest.fixture
def workload() -> WorkloadCluster:
    ca = pki.Authority.make("test", pki.ec_key()).pair.certificate
    made = parse_kubeconfig(kubeconfig.with_token("https://192.0.2.1:6443", ca, "t").encode())
    return WorkloadCluster(HOME, "uid", made, user_agent="test", budget=MemoryBudget())


def service_of(workload: WorkloadCluster) -> Controller:
    config = Config(
        management=workload.connection,
        namespace="n",
        policies=PolicySet(by_cluster=MappingProxyType({}), default=None),
        anchors={},
        metrics_address=None,
    )
    return Controller(config, agent="test")


def tending(workload: WorkloadCluster) -> Thread:
    """Return the upkeep of a workload cluster."""
    return Thread(target=service_of(workload)._maintain_workload, args=(workload,), daemon=True)


def test_a_cluster_that_always_asks_for_upkeep_is_given_a_round_at_a_time(
    workload: WorkloadCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[float] = []

    def read_hosts() -> None:
        rounds.append(time.monotonic())
        workload.maintenance_due.set()
        if len(rounds) == 3:
            workload.stop()

    monkeypatch.setattr(workload, "read_hosts", read_hosts)
    monkeypatch.setattr(service, "_MIN_MAINTENANCE_INTERVAL", 0.2)
    upkeep = tending(workload)
    upkeep.start()
    upkeep.join(30)
    assert not upkeep.is_alive()
    assert rounds[-1] - rounds[0] >= 0.4


def test_upkeep_ends_with_its_cluster(
    workload: WorkloadCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever it is closed: nothing is removed from a cluster that is not ours any more."""
    rounds = 0

    def read_hosts() -> None:
        nonlocal rounds
        rounds += 1

    clear = workload.maintenance_due.clear

    def closed_meanwhile() -> None:
        workload.stop()
        clear()

    monkeypatch.setattr(workload, "read_hosts", read_hosts)
    monkeypatch.setattr(workload.maintenance_due, "clear", closed_meanwhile)
    monkeypatch.setattr(service, "_MIN_MAINTENANCE_INTERVAL", 0.0)
    workload.maintenance_due.set()
    upkeep = tending(workload)
    upkeep.start()
    upkeep.join(30)
    assert not upkeep.is_alive()
    assert rounds == 1


def test_the_end_waits_for_no_management_cluster(
    workload: WorkloadCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each Secret that is asked for in vain takes half a minute."""
    asked, ended, stop = Event(), Event(), Event()

    def hang(_: WorkloadClusters) -> None:
        asked.set()
        ended.wait()

    monkeypatch.setattr(ManagementCluster, "start", lambda _: None)
    monkeypatch.setattr(WorkloadClusters, "sync", hang)
    running = Thread(target=service_of(workload).run, args=(stop,), daemon=True)
    running.start()
    assert asked.wait(30)
    stop.set()
    running.join(30)
    assert not running.is_alive()
    ended.set()
