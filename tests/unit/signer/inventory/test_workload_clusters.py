"""Which workload clusters are open: those that opted in, by the Secret as it is now."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import pytest

from common.names import CLIENT_SIGNER
from signer.inventory.cluster import CLIENT_SIGNER_ANNOTATION, read_cluster
from signer.inventory.management import ManagementCluster
from signer.inventory.workload import WorkloadCluster
from signer.inventory.workload_clusters import WorkloadClusters
from signer.kube.client import ApiClient
from signer.kube.kubeconfig import Connection, parse_kubeconfig
from tests.builders import kube_objects
from tests.builders.kube_objects import HOME, INSECURE_CLIENT_SIGNER
from tests.fakes.secrets import FakeSecrets
from tests.harness import kubeconfig, pki

AUTHORITY = pki.Authority.make("test", pki.ec_key())


def text(host: str = "192.0.2.1", credential: str = "first") -> bytes:
    made = kubeconfig.with_token(f"https://{host}:6443", AUTHORITY.pair.certificate, credential)
    return made.encode()


def unconnected() -> Connection:
    return parse_kubeconfig(text())


@dataclass(slots=True)
class Landscape:
    """A management cluster with one Cluster, and what became of its workload cluster."""

    secrets: FakeSecrets = field(default_factory=FakeSecrets)
    seconds: float = 0.0
    opened: list[WorkloadCluster] = field(default_factory=list)
    management: ManagementCluster = field(init=False)
    clusters: WorkloadClusters = field(init=False)

    def __post_init__(self) -> None:
        api = ApiClient("management", unconnected(), user_agent="test")
        self.management = ManagementCluster(api, Event(), lambda _cluster, _topic: None)
        self.clusters = WorkloadClusters(
            self.management,
            self.secrets,
            agent="test",
            opened=self.opened.append,
            monotonic=lambda: self.seconds,
        )
        self.store(text())
        self.management.clusters.replace({"team-a/blue": read_cluster(self.body())})

    def body(self, signers: str = CLIENT_SIGNER, uid: str = "uid") -> dict[str, Any]:
        made = kube_objects.cluster(**{CLIENT_SIGNER_ANNOTATION: signers})
        made["metadata"]["uid"] = uid
        return made

    def put(self, body: dict[str, Any]) -> None:
        self.management.clusters.upsert("team-a/blue", read_cluster(body))

    def store(self, value: bytes) -> None:
        self.secrets.put("team-a", "blue-kubeconfig", {"value": value})

    def after(self, seconds: float) -> WorkloadCluster | None:
        """Let time pass and tend; return the open workload cluster."""
        self.seconds += seconds
        self.clusters.sync()
        return self.clusters.get(HOME)


@pytest.fixture
def landscape(monkeypatch: pytest.MonkeyPatch) -> Iterator[Landscape]:
    monkeypatch.setattr(WorkloadCluster, "start", lambda _: None)
    made = Landscape()
    yield made
    made.clusters.stop()


def test_a_cluster_that_opted_in_is_opened_once(landscape: Landscape) -> None:
    workload = landscape.after(0)
    assert workload is not None
    assert (workload.key, workload.uid) == (HOME, "uid")
    assert workload.connection.host == "192.0.2.1"
    for _ in range(5):
        assert landscape.after(100) is workload
    assert landscape.opened == [workload]


def test_nothing_is_opened_before_clusters_are_known(landscape: Landscape) -> None:
    landscape.management.clusters._filled = False
    assert landscape.after(0) is None


@pytest.mark.parametrize("signers", ["", INSECURE_CLIENT_SIGNER])
def test_a_cluster_that_has_not_opted_in_is_not_connected_to(
    landscape: Landscape, signers: str
) -> None:
    landscape.put(landscape.body(signers))
    assert landscape.after(0) is None
    assert landscape.secrets.reads == 0


def test_a_cluster_that_names_two_signers_is_opened_and_told_of(landscape: Landscape) -> None:
    """Its requests wait, and say why (R0)."""
    landscape.put(landscape.body(f"{CLIENT_SIGNER},{INSECURE_CLIENT_SIGNER}"))
    assert landscape.after(0) is not None


Change = Callable[[Landscape], None]


@pytest.mark.parametrize(
    "change",
    [
        lambda at: at.put(at.body("")),
        lambda at: at.management.clusters.delete("team-a/blue"),
    ],
    ids=["opted out", "deleted"],
)
def test_a_cluster_that_leaves_is_closed(landscape: Landscape, change: Change) -> None:
    workload = landscape.after(0)
    assert workload is not None
    change(landscape)
    assert landscape.after(1) is None
    assert workload.stopped.is_set()


@pytest.mark.parametrize(
    "change",
    [
        lambda at: at.store(text("192.0.2.2")),
        lambda at: at.store(text(credential="renewed")),
        lambda at: at.put(at.body(uid="another")),
    ],
    ids=["moved", "renewed", "made anew"],
)
def test_a_cluster_that_changed_is_opened_again(landscape: Landscape, change: Change) -> None:
    first = landscape.after(0)
    assert first is not None
    change(landscape)
    second = landscape.after(60)
    assert second is not None
    assert second is not first
    assert (first.stopped.is_set(), second.stopped.is_set()) == (True, False)


def test_a_secret_that_is_missing_or_refused_is_looked_for_again(
    landscape: Landscape, caplog: pytest.LogCaptureFixture
) -> None:
    landscape.store(b"users: [{name: u, user: {exec: {command: /bin/sh}}}]")
    assert landscape.after(0) is None
    assert landscape.after(5) is None
    del landscape.secrets.stored["team-a", "blue-kubeconfig"]
    assert landscape.after(5) is None
    landscape.store(text())
    assert landscape.after(5) is not None
    said = [vars(r)["fields"]["message"] for r in caplog.records if r.levelname == "WARNING"]
    assert len(said) == 2
    assert said[1] == "the kubeconfig Secret is refused: it is missing"


def test_a_secret_that_is_spoilt_later_leaves_the_connection(landscape: Landscape) -> None:
    workload = landscape.after(0)
    landscape.store(b"spoilt")
    assert landscape.after(60) is workload


def test_a_cluster_that_could_not_be_opened_is_opened_again(
    landscape: Landscape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be no more threads for a while."""

    def fails(_: WorkloadCluster) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(WorkloadCluster, "start", fails)
        with pytest.raises(RuntimeError):
            landscape.after(0)
    assert landscape.opened[0].stopped.is_set()
    assert landscape.clusters.get(HOME) is None
    assert landscape.after(15) is landscape.opened[1]


def test_one_bad_cluster_costs_the_others_nothing(landscape: Landscape) -> None:
    landscape.secrets.put("team-a", "bad-kubeconfig", {"value": b"bad"})
    body = landscape.body()
    body["metadata"]["name"] = "bad"
    good = landscape.management.clusters.get("team-a/blue")
    assert good is not None
    landscape.management.clusters.replace({"team-a/bad": read_cluster(body), "team-a/blue": good})
    assert landscape.after(0) is not None


def test_everything_is_closed_at_the_end(landscape: Landscape) -> None:
    workload = landscape.after(0)
    assert workload is not None
    landscape.clusters.stop()
    assert workload.stopped.is_set()
    assert landscape.clusters.get(HOME) is None
