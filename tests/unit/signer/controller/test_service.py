"""The threads beside the workers: hostile clusters neither drive nor outlive them."""

import time
from threading import Event, Thread
from types import MappingProxyType

import pytest

from signer.config import Config
from signer.controller import service
from signer.controller.service import Service
from signer.inventory.management import Management
from signer.inventory.workload import Workload
from signer.inventory.workload_clusters import Clusters
from signer.kube.kubeconfig import parse_kubeconfig
from signer.policy import Policies
from tests.builders.kube_objects import HOME
from tests.harness import kubeconfig, pki


@pytest.fixture
def workload() -> Workload:
    ca = pki.Authority.make("test", pki.ec_key()).pair.certificate
    made = parse_kubeconfig(kubeconfig.with_token("https://192.0.2.1:6443", ca, "t").encode())
    return Workload(HOME, "uid", made, agent="test")


def service_of(workload: Workload) -> Service:
    config = Config(
        management=workload.connection,
        namespace="n",
        policies=Policies(by_cluster=MappingProxyType({}), default=None),
        anchors={},
        metrics_address=None,
    )
    return Service(config, agent="test")


def tending(workload: Workload) -> Thread:
    """Return the upkeep of a workload cluster."""
    return Thread(target=service_of(workload)._tend_workload, args=(workload,), daemon=True)


def test_a_cluster_that_always_asks_for_upkeep_is_given_a_round_at_a_time(
    workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[float] = []

    def read_hosts() -> None:
        rounds.append(time.monotonic())
        workload.attend.set()
        if len(rounds) == 3:
            workload.stop()

    monkeypatch.setattr(workload, "read_hosts", read_hosts)
    monkeypatch.setattr(service, "_UPKEEP_REST", 0.2)
    upkeep = tending(workload)
    upkeep.start()
    upkeep.join(30)
    assert not upkeep.is_alive()
    assert rounds[-1] - rounds[0] >= 0.4


def test_upkeep_ends_with_its_cluster(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever it is closed: nothing is removed from a cluster that is not ours any more."""
    rounds = 0

    def read_hosts() -> None:
        nonlocal rounds
        rounds += 1

    clear = workload.attend.clear

    def closed_meanwhile() -> None:
        workload.stop()
        clear()

    monkeypatch.setattr(workload, "read_hosts", read_hosts)
    monkeypatch.setattr(workload.attend, "clear", closed_meanwhile)
    monkeypatch.setattr(service, "_UPKEEP_REST", 0.0)
    workload.attend.set()
    upkeep = tending(workload)
    upkeep.start()
    upkeep.join(30)
    assert not upkeep.is_alive()
    assert rounds == 1


def test_the_end_waits_for_no_management_cluster(
    workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each Secret that is asked for in vain takes half a minute."""
    asked, ended, stop = Event(), Event(), Event()

    def hang(_: Clusters) -> None:
        asked.set()
        ended.wait()

    monkeypatch.setattr(Management, "start", lambda _: None)
    monkeypatch.setattr(Clusters, "tend", hang)
    running = Thread(target=service_of(workload).run, args=(stop,), daemon=True)
    running.start()
    assert asked.wait(30)
    stop.set()
    running.join(30)
    assert not running.is_alive()
    ended.set()
