"""Workload clusters: opened for Clusters that opted in, and by their current Secret."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from threading import Event, Thread
from typing import Any, cast

import pytest

from common.errors import ApiServerUnavailable
from common.names import CLIENT_SIGNER
from signer.clusters import kubeconfig_secret, workload_clusters
from signer.clusters.management_cluster import ManagementCluster
from signer.clusters.workload_cluster import WorkloadCluster
from signer.clusters.workload_clusters import WorkloadClusters
from signer.fairness.memory_budget import Budgets
from signer.inventory.cluster_api.cluster import CLIENT_SIGNER_ANNOTATION, read_cluster
from signer.kinds.cluster import ClusterKey
from signer.kube.secrets import SecretClient
from signer.kube.transport.kubeconfig import Connection
from signer.kube.watches.watch_threads import Watch
from tests.builders import kube_objects
from tests.builders.kube_objects import HOME, INSECURE_CLIENT_SIGNER
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient
from tests.fakes.late_threads import LateLine
from tests.harness import kubeconfig, pki

CREATED = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
EARLIER, LATER = CREATED - timedelta(seconds=1), CREATED + timedelta(seconds=1)
SECRETS = "/api/v1/namespaces/team-a/secrets"
KUBECONFIG = "blue-kubeconfig"
AUTHORITY = pki.Authority.make("test", pki.ec_key())


def text(host: str = "192.0.2.1", credential: str = "first") -> bytes:
    made = kubeconfig.with_token(f"https://{host}:6443", AUTHORITY.pair.certificate, credential)
    return made.encode()


@dataclass(slots=True)
class Landscape:
    """A management cluster with one Cluster, and the workload clusters that were opened."""

    cluster: FakeCluster = field(default_factory=FakeCluster)
    seconds: float = 0.0
    line: LateLine = field(default_factory=LateLine)
    opened: list[WorkloadCluster] = field(default_factory=list)
    of_others: set[ClusterKey] = field(default_factory=set)
    """Clusters that other replicas serve."""
    management: ManagementCluster = field(init=False)
    connecting: list[ClusterKey] = field(default_factory=list)
    clusters: WorkloadClusters = field(init=False)

    def __post_init__(self) -> None:
        budgets = Budgets()
        self.management = ManagementCluster(
            FakeClient(self.cluster),
            Event(),
            lambda _cluster, _name: None,
            budgets=budgets,
            infrastructure_groups=(),
        )
        self.clusters = WorkloadClusters(
            self.management,
            SecretClient(FakeClient(self.cluster)),
            user_agent="test",
            budgets=budgets,
            line=self.line,
            serves=lambda key: key not in self.of_others,
            connecting=self.connecting.append,
            opened=self.opened.append,
            monotonic=lambda: self.seconds,
        )
        self.store(text())
        management = self.management
        management.clusters.replace({"team-a/blue": read_cluster(self.body())})
        for cache in (management.machines, management.pools, management.keys, management.nodes):
            cache.replace({})
        management.policies.replace({})

    def body(self, signers: str = CLIENT_SIGNER, uid: str = "uid") -> dict[str, Any]:
        made = kube_objects.cluster(**{CLIENT_SIGNER_ANNOTATION: signers})
        made["metadata"] |= {"uid": uid, "creationTimestamp": CREATED.isoformat()}
        return made

    def put(self, body: dict[str, Any]) -> None:
        self.management.clusters.upsert("team-a/blue", read_cluster(body))

    def store(self, value: bytes, name: str = KUBECONFIG, **fields: Any) -> None:  # noqa: ANN401 # fields of a Secret
        self.cluster.put(SECRETS, kube_objects.secret(name, {"value": value}, **fields))

    @property
    def refreshes(self) -> int:
        """Return how often the Secrets of the Cluster were read: its own, and the other one."""
        return len(self.cluster.reads) // 2

    def after(self, seconds: float) -> WorkloadCluster | None:
        """Advance the clock, sync and run what it submits; return the open workload cluster."""
        self.seconds += seconds
        self.clusters.sync()
        self.line.run()
        return self.clusters.get(HOME)


@pytest.fixture
def landscape(monkeypatch: pytest.MonkeyPatch) -> Iterator[Landscape]:
    monkeypatch.setattr(WorkloadCluster, "start", lambda _: None)
    monkeypatch.setattr(random, "random", lambda: 0.0)
    made = Landscape()
    yield made
    made.clusters.stop()


def test_cluster_that_opted_in_is_opened_once(landscape: Landscape) -> None:
    workload = landscape.after(0)
    assert workload is not None
    assert (workload.key, workload.uid) == (HOME, "uid")
    assert workload.connection.host == "192.0.2.1"
    for _ in range(5):
        assert landscape.after(100) is workload
    assert landscape.opened == [workload]


def test_cluster_that_another_replica_serves_is_closed(landscape: Landscape) -> None:
    workload = landscape.after(0)
    assert workload is not None
    landscape.of_others.add(HOME)
    assert landscape.after(1) is None
    assert workload.stopped.is_set()
    landscape.of_others.clear()
    assert landscape.after(1) is not None


def test_new_replica_has_tried_all_clusters_of_its_share(landscape: Landscape) -> None:
    """Its Lease makes the others close these Clusters."""
    assert not landscape.clusters.has_tried_all()
    workload = landscape.after(0)
    assert workload is not None
    assert not landscape.clusters.has_tried_all()
    for cache in (workload.csrs, workload.nodes, workload.bindings):
        cache.replace({})
    assert landscape.clusters.has_tried_all()


def test_cluster_with_a_problem_or_of_another_replica_was_tried(landscape: Landscape) -> None:
    landscape.store(b"spoilt")
    landscape.after(0)
    assert landscape.clusters.problem(HOME) is not None
    assert landscape.clusters.has_tried_all()
    landscape.clusters.stop()
    assert not landscape.clusters.has_tried_all()
    landscape.of_others.add(HOME)
    assert landscape.clusters.has_tried_all()


@pytest.mark.parametrize("kind", ["clusters", "machines", "pools", "keys", "nodes"])
def test_nothing_is_opened_before_the_management_cluster_is_listed(
    landscape: Landscape, kind: str
) -> None:
    """Connections that can verify nothing yet made the signer ready seconds later."""
    cache = getattr(landscape.management, kind)
    cache._synced = False
    assert landscape.after(0) is None
    assert not landscape.cluster.reads
    cache._synced = True
    assert landscape.after(0) is not None


@pytest.mark.parametrize(
    ("signers", "opted_in"),
    [
        ("", False),
        (INSECURE_CLIENT_SIGNER, False),
        (f"{CLIENT_SIGNER},{INSECURE_CLIENT_SIGNER}", True),
    ],
)
def test_cluster_that_has_not_opted_in_is_not_connected_to(
    landscape: Landscape, signers: str, *, opted_in: bool
) -> None:
    """The requests of a Cluster that names two signers wait, and report why (R0)."""
    landscape.put(landscape.body(signers))
    assert (landscape.after(0) is not None) == opted_in
    assert bool(landscape.cluster.reads) == opted_in


Change = Callable[[Landscape], None]


@pytest.mark.parametrize(
    "change",
    [
        lambda at: at.put(at.body("")),
        lambda at: at.management.clusters.delete("team-a/blue"),
    ],
    ids=["opted out", "deleted"],
)
def test_cluster_that_opts_out_or_is_deleted_is_closed(
    landscape: Landscape, change: Change
) -> None:
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
    ids=["moved", "renewed", "new UID"],
)
def test_cluster_that_changed_is_opened_again(landscape: Landscape, change: Change) -> None:
    first = landscape.after(0)
    assert first is not None
    change(landscape)
    second = landscape.after(600)
    assert second is not None
    assert second is not first
    assert (first.stopped.is_set(), second.stopped.is_set()) == (True, False)


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [vars(r)["fields"]["message"] for r in caplog.records if r.levelname == "WARNING"]


def test_missing_or_refused_secret_is_read_again_after_a_growing_pause(
    landscape: Landscape, caplog: pytest.LogCaptureFixture
) -> None:
    landscape.store(b"users: [{name: u, user: {exec: {command: /bin/sh}}}]")
    for _ in range(100):
        assert landscape.after(1) is None
    # At 1, 6, 16, 36 and 66 seconds, and at 96; each time, the signer's own Secret is looked up.
    assert landscape.refreshes == 6
    del landscape.cluster.objects[f"{SECRETS}/{KUBECONFIG}"]
    assert landscape.after(30) is None
    landscape.store(text())
    assert landscape.after(30) is not None
    assert landscape.connecting == [HOME] * 8, "its opt-in is noted before there is a Secret"
    assert len(messages(caplog)) == 2
    assert messages(caplog)[1] == "the kubeconfig Secret is refused: it is missing"
    assert vars(caplog.records[0])["fields"].items() >= {
        ("cluster", "team-a/blue"),
        ("namespace", "team-a"),
    }


POISONED = {
    "huge number of a directive": b"%YAML " + b"9" * 5000 + b".1\n--- a",
    "nested deeply": b"[" * 8000,
    "too large": text() + b"#" + b"x" * (16 << 10),
}


@pytest.mark.parametrize("poison", POISONED)
def test_poisoned_kubeconfig_secret_does_not_stop_later_clusters(
    landscape: Landscape, caplog: pytest.LogCaptureFixture, poison: str
) -> None:
    """Unusual errors of the YAML parser ended the loop before it reached later Clusters."""
    body = landscape.body()
    body["metadata"]["name"] = "a-first"
    landscape.management.clusters.upsert("team-a/a-first", read_cluster(body))
    landscape.store(POISONED[poison], name="a-first-kubeconfig", of="a-first")
    assert landscape.after(0) is not None
    assert landscape.clusters.get(replace(HOME, name="a-first")) is None
    assert [m.partition(":")[0] for m in messages(caplog)] == ["the kubeconfig Secret is refused"]


def test_clusters_of_one_tenant_above_the_limit_do_not_take_threads(
    landscape: Landscape, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant may create any number of Clusters, and a process has a limit of threads."""
    monkeypatch.setattr(workload_clusters, "_MAX_CLUSTERS", 3)
    for number in range(6):
        body = landscape.body()
        body["metadata"] |= {"namespace": "hostile", "name": f"c-{number}"}
        body["metadata"]["creationTimestamp"] = (CREATED + timedelta(days=6 - number)).isoformat()
        landscape.management.clusters.upsert(f"hostile/c-{number}", read_cluster(body))
    for _ in range(3):
        assert landscape.after(1) is not None
    served = {key.name for key in landscape.clusters._connectors if key.namespace == "hostile"}
    assert served == {"c-3", "c-4", "c-5"}
    alarms = [vars(r)["fields"] for r in caplog.records if "too many" in r.message]
    assert alarms == [{"namespace": "hostile", "served": 3, "alarm": True}]
    landscape.management.clusters.delete("hostile/c-4")
    landscape.after(1)
    served = {key.name for key in landscape.clusters._connectors if key.namespace == "hostile"}
    assert served == {"c-2", "c-3", "c-5"}


def test_bug_while_one_cluster_is_opened_does_not_stop_the_others(
    landscape: Landscape, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: bytes) -> Connection:
        raise LookupError

    with monkeypatch.context() as patched:
        patched.setattr(kubeconfig_secret, "parse_kubeconfig", fails)
        assert landscape.after(0) is None
    assert landscape.after(5) is not None


def test_slow_secret_of_one_cluster_makes_no_other_wait(landscape: Landscape) -> None:
    """Each is read on a thread of its own."""
    body = landscape.body()
    body["metadata"]["name"] = "other"
    landscape.management.clusters.upsert("team-a/other", read_cluster(body))
    landscape.clusters.sync()
    assert not landscape.cluster.reads
    names = {name for name, _ in landscape.line.submitted}
    assert names == {"team-a/blue Secret", "team-a/other Secret"}


def test_secrets_of_many_clusters_are_not_read_at_the_same_moment(
    landscape: Landscape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500 Clusters are opened when a replica starts."""
    monkeypatch.setattr(workload_clusters, "_OPENED_PER_SECOND", 5)
    monkeypatch.setattr(random, "random", lambda: 0.5)
    body = landscape.body()
    body["metadata"]["name"] = "other"
    landscape.management.clusters.upsert("team-a/other", read_cluster(body))
    landscape.clusters.sync()
    connectors = landscape.clusters._connectors.values()
    assert [connector.jitter for connector in connectors] == [0.2, 0.2]
    landscape.line.run()
    assert [connector.jitter for connector in connectors] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"type": "Opaque"}, "its type must be cluster.x-k8s.io/secret"),
        ({"type": "kubernetes.io/tls"}, "its type must be cluster.x-k8s.io/secret"),
        ({"labels": {}}, "its label cluster.x-k8s.io/cluster-name must name the Cluster"),
        ({"of": "green"}, "its label cluster.x-k8s.io/cluster-name must name the Cluster"),
    ],
)
def test_secret_that_is_not_of_the_cluster_is_refused(
    landscape: Landscape, caplog: pytest.LogCaptureFixture, metadata: dict[str, Any], message: str
) -> None:
    """Any Secret may be named `<cluster>-kubeconfig`."""
    landscape.store(text(), **metadata)
    assert landscape.after(0) is None
    assert messages(caplog) == [f"the kubeconfig Secret is refused: {message}"]


OWN = "blue-attestation-kubeconfig"


def test_own_secret_of_the_signer_is_preferred(landscape: Landscape) -> None:
    landscape.store(text("192.0.2.2"), name=OWN)
    workload = landscape.after(0)
    assert workload is not None
    assert workload.connection.host == "192.0.2.2"
    del landscape.cluster.objects[f"{SECRETS}/{OWN}"]
    workload = landscape.after(600)
    assert workload is not None
    assert workload.connection.host == "192.0.2.1"


def test_own_secret_that_is_refused_is_not_replaced_by_the_administrators(
    landscape: Landscape, caplog: pytest.LogCaptureFixture
) -> None:
    """An operator who limited the signer's rights must not get them extended by a typing error."""
    landscape.store(b"users: [{name: u, user: {exec: {command: /bin/sh}}}]", name=OWN)
    assert landscape.after(0) is None
    [record] = caplog.records
    assert vars(record)["fields"]["secret"] == OWN


def test_administrators_secret_of_another_cluster_is_not_the_own_one(landscape: Landscape) -> None:
    """A Cluster `blue-attestation` has a Secret of the name `blue-attestation-kubeconfig`."""
    landscape.store(text("192.0.2.2"), name=OWN, of="blue-attestation")
    workload = landscape.after(0)
    assert workload is not None
    assert workload.connection.host == "192.0.2.1"


def made(created: datetime, kind: str = "", uid: str = "") -> dict[str, Any]:
    """Return metadata with a creation time and an owner."""
    owner = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "uid": uid}
    owners = {"ownerReferences": [owner]} if kind else {}
    return {"creationTimestamp": created.isoformat(), **owners}


@pytest.mark.parametrize(
    ("metadata", "stale"),
    [
        (made(LATER, "Cluster", "old"), True),
        (made(EARLIER, "KubeadmControlPlane", "old"), True),
        (made(LATER, "Cluster", "uid"), False),
        (made(CREATED, "KubeadmControlPlane", "any"), False),
        (made(EARLIER), False),
    ],
    ids=[
        "owned by the old Cluster",
        "older than the Cluster",
        "of this Cluster",
        "as old as the Cluster",
        "a user's",
    ],
)
def test_stale_kubeconfig_of_an_earlier_cluster_is_refused(
    landscape: Landscape, caplog: pytest.LogCaptureFixture, metadata: dict[str, Any], *, stale: bool
) -> None:
    """A Cluster that is made again must not be served through the connection of the old one."""
    landscape.store(text(), **metadata)
    assert (landscape.after(0) is None) == stale
    assert ["Cluster" in m and "delete it" in m for m in messages(caplog)] == [True] * stale


def test_cluster_that_is_closed_while_it_is_opened_is_not_left_open(landscape: Landscape) -> None:
    landscape.clusters.sync()
    connector = landscape.clusters._connectors[HOME]
    connector._opened = lambda _: connector._stop.set()
    connector.refresh()
    assert connector.workload is not None
    assert connector.workload.stopped.is_set()


def test_secret_that_becomes_unreadable_leaves_the_connection_open(landscape: Landscape) -> None:
    workload = landscape.after(0)
    landscape.store(b"spoilt")
    assert landscape.after(60) is workload


def test_cluster_that_could_not_be_opened_is_retried(
    landscape: Landscape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process may have no threads left for a while."""

    def fails(_: WorkloadCluster) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(WorkloadCluster, "start", fails)
        assert landscape.after(0) is None
    assert landscape.opened[0].stopped.is_set()
    assert landscape.after(15) is landscape.opened[1]


def test_cluster_whose_thread_did_not_start_is_connected_by_the_next_sync(
    landscape: Landscape,
) -> None:
    landscape.line.exhausted = True
    with pytest.raises(RuntimeError):
        landscape.after(0)
    landscape.line.exhausted = False
    assert landscape.after(1) is not None


def watch_failure(status: int) -> ApiServerUnavailable:
    error = ApiServerUnavailable("away")
    error.status = status
    return error


def test_secret_in_use_is_read_every_ten_minutes(landscape: Landscape) -> None:
    """Each Secret was read every 15 seconds: 33 reads a second for 500 idle Clusters."""
    landscape.after(0)
    for _ in range(599):
        landscape.after(1)
    assert landscape.refreshes == 1
    landscape.after(1)
    assert landscape.refreshes == 2


def test_secret_of_an_unreachable_cluster_is_read_again_soon(
    landscape: Landscape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server may have moved, and its credential may have been replaced."""
    landscape.after(0)
    landscape.after(100)
    monkeypatch.setattr(WorkloadCluster, "failure", ("Nodes", watch_failure(0)))
    landscape.after(0)
    assert landscape.refreshes == 2
    for _ in range(30):
        landscape.after(1)
    assert landscape.refreshes == 4


def test_secret_whose_credential_is_refused_is_read_again_once(landscape: Landscape) -> None:
    """A token expires while the watches go on."""
    workload = landscape.after(0)
    assert workload is not None
    landscape.after(100)
    workload._api.endpoint.unauthorized = True
    for _ in range(20):
        landscape.after(1)
    assert landscape.refreshes == 2
    assert landscape.after(0) is workload


def test_renewed_secret_is_used_as_soon_as_its_old_credential_is_refused(
    landscape: Landscape,
) -> None:
    first = landscape.after(0)
    assert first is not None
    landscape.after(100)
    landscape.store(text(credential="renewed"))
    first._api.endpoint.unauthorized = True
    second = landscape.after(0)
    assert second is not None
    assert second is not first


def test_secret_of_a_cluster_that_changes_is_read_again(landscape: Landscape) -> None:
    landscape.after(0)
    landscape.after(100)
    changed = landscape.body()
    changed["spec"]["paused"] = True
    landscape.put(changed)
    landscape.after(0)
    assert landscape.refreshes == 2


def test_secret_that_is_being_read_is_not_read_twice(landscape: Landscape) -> None:
    for _ in range(3):
        landscape.clusters.sync()
    assert len(landscape.line.submitted) == 1


def test_cluster_stays_open_while_its_infrastructure_is_unknown(
    landscape: Landscape, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = landscape.after(0)
    assert workload is not None

    def unknown(*_: object) -> None:
        raise ApiServerUnavailable("TestClusters are not known yet")

    monkeypatch.setattr(workload_clusters, "infrastructure_signer", unknown)
    assert landscape.after(1) is workload


def test_stop_closes_every_cluster(landscape: Landscape) -> None:
    workload = landscape.after(0)
    assert workload is not None
    landscape.clusters.stop()
    assert workload.stopped.is_set()
    assert landscape.clusters.get(HOME) is None


def test_signer_that_has_lost_a_watch_of_an_open_cluster_is_not_healthy(
    landscape: Landscape,
) -> None:
    """Its requests were never decided, and no probe showed it."""
    workload = landscape.after(0)
    assert workload is not None
    ended = Thread(target=lambda: None)
    ended.start()
    ended.join(60.0)
    assert landscape.clusters.is_watching()
    workload._watches = [Watch(cast("Any", None), ended)]
    assert not landscape.clusters.is_watching()
    workload.stopped.set()
    assert landscape.clusters.is_watching()
    workload._watches = []
