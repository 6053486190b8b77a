"""Each Cluster is served by one replica, and never by none for long."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from common.errors import ApiServerUnavailable
from signer.controller.replicas import Replica, Replicas, serving_replica
from signer.kube.leases import Lease
from signer.model import ClusterKey
from tests.fakes.leases import FakeLeases

START = datetime(2026, 11, 22, 12, tzinfo=UTC)
CLUSTERS = [ClusterKey(namespace=f"team-{n % 7}", name=f"c-{n}") for n in range(300)]


def replica(name: str, namespace: str = "") -> Replica:
    return Replica(name=name, namespace=namespace)


@dataclass(slots=True)
class Process:
    """One replica of the signer, without what it serves."""

    landscape: "Landscape"
    name: str
    namespace: str = ""
    settings: str = "same"
    ready: bool = True
    connected: bool = True
    leases: FakeLeases = field(init=False)
    replicas: Replicas = field(init=False)

    def __post_init__(self) -> None:
        self.leases = self.landscape.leases
        self.start()

    def start(self) -> None:
        self.replicas = Replicas(
            self,
            replica(self.name, self.namespace),
            settings=lambda: self.settings,
            ready=lambda: self.ready,
            connected=lambda: self.connected,
            now=lambda: START + timedelta(seconds=self.landscape.seconds),
            monotonic=lambda: self.landscape.seconds,
        )

    cut_off: bool = False
    """Whether this replica alone cannot reach the Leases."""

    def all(self, label: str) -> Any:  # noqa: ANN401 # as the fake
        self._require_connection()
        return self.leases.all(label)

    def renew(self, name: str, **fields: Any) -> None:  # noqa: ANN401 # as the fake
        self._require_connection()
        self.leases.renew(name, **fields)

    def delete(self, name: str) -> None:
        self._require_connection()
        self.leases.delete(name)

    def delete_unchanged(self, lease: Lease) -> None:
        self._require_connection()
        self.leases.delete_unchanged(lease)

    def _require_connection(self) -> None:
        if self.cut_off:
            raise ApiServerUnavailable("forbidden")

    @property
    def served(self) -> set[ClusterKey]:
        return {cluster for cluster in CLUSTERS if self.replicas.serves(cluster)}


@dataclass(slots=True)
class Landscape:
    """All replicas, the clock, and the API server with the Leases."""

    leases: FakeLeases = field(default_factory=FakeLeases)
    seconds: float = 0.0
    running: list[Process] = field(default_factory=list)

    def start(self, name: str, **fields: Any) -> Process:  # noqa: ANN401 # fields of a process
        process = Process(self, name, **fields)
        self.running.append(process)
        return process

    def kill(self, process: Process) -> None:
        self.running.remove(process)

    def after(self, rounds: int, *, complete: bool = True) -> None:
        """Let each replica sync; require that each Cluster is served after each round."""
        for _ in range(rounds):
            for process in self.running:
                process.replicas.sync()
            if complete:
                self.require_all_served()
            self.seconds += 2.0

    def require_all_served(self) -> None:
        assert set().union(*(process.served for process in self.running)) == set(CLUSTERS)

    def counts(self) -> Counter[int]:
        """Return how many Clusters are served by how many replicas."""
        served = Counter(key for process in self.running for key in process.served)
        return Counter(served.values())


EACH_BY_ONE = Counter({1: len(CLUSTERS)})


@pytest.fixture
def landscape() -> Landscape:
    return Landscape()


def test_clusters_are_spread_evenly() -> None:
    replicas = frozenset({replica("a"), replica("b"), replica("c")})
    counts = Counter(serving_replica(replicas, cluster) for cluster in CLUSTERS)
    assert all(80 < count < 120 for count in counts.values())


def test_replica_that_ends_moves_only_its_own_clusters() -> None:
    three = frozenset({replica("a"), replica("b"), replica("c")})
    two = three - {replica("c")}
    for cluster in CLUSTERS:
        before = serving_replica(three, cluster)
        assert before == replica("c") or serving_replica(two, cluster) == before


def test_pinned_replicas_come_before_others_for_their_namespace_alone() -> None:
    general, pinned = replica("a"), replica("pinned", "team-1")
    for cluster in CLUSTERS:
        expected = pinned if cluster.namespace == "team-1" else general
        assert serving_replica(frozenset({general, pinned}), cluster) == expected


def test_cluster_that_no_replica_can_see_has_none() -> None:
    assert serving_replica(frozenset({replica("pinned", "team-1")}), CLUSTERS[0]) is None
    assert serving_replica(frozenset(), CLUSTERS[0]) is None


def test_only_replica_serves_every_cluster_at_once(landscape: Landscape) -> None:
    only = landscape.start("a")
    assert only.served == set()
    landscape.after(1)
    assert only.replicas.has_joined
    assert only.replicas.count == 1


def test_three_replicas_serve_each_cluster_once(landscape: Landscape) -> None:
    for name in "abc":
        landscape.start(name)
        landscape.after(5)
    assert landscape.counts() == EACH_BY_ONE
    assert [process.replicas.count for process in landscape.running] == [3, 3, 3]


def test_replicas_that_start_together_serve_each_cluster_once(landscape: Landscape) -> None:
    for name in "abc":
        landscape.start(name)
    landscape.after(5)
    assert landscape.counts() == EACH_BY_ONE


def test_killed_replica_is_replaced_within_its_lease(landscape: Landscape) -> None:
    first, second = landscape.start("a"), landscape.start("b")
    landscape.after(5)
    landscape.kill(second)
    landscape.after(5, complete=False)
    assert first.served != set(CLUSTERS)
    landscape.after(1)
    assert first.served == set(CLUSTERS)


def test_lease_of_a_killed_replica_is_not_waited_for_long_by_the_next_one(
    landscape: Landscape,
) -> None:
    """The Lease of the only replica is still there when it starts again."""
    first = landscape.start("a")
    landscape.after(3)
    landscape.kill(first)
    second = landscape.start("b")
    landscape.after(3, complete=False)
    assert second.served == set()
    landscape.after(1)
    assert second.replicas.has_joined


def test_new_replica_of_many_does_not_take_what_they_serve_without_them(
    landscape: Landscape,
) -> None:
    """At first, it cannot know which of the Leases are of replicas that have ended."""
    landscape.start("a")
    landscape.after(5)
    new = landscape.start("b")
    new.replicas.sync()
    assert new.served == set()
    landscape.after(2)
    assert set() < new.served < set(CLUSTERS)


def test_new_replica_connects_before_the_others_close(landscape: Landscape) -> None:
    old = landscape.start("a")
    landscape.after(3)
    new = landscape.start("b", connected=False)
    landscape.after(10)
    assert old.served == set(CLUSTERS)
    assert new.served < set(CLUSTERS)
    assert not new.replicas.has_joined
    new.connected = True
    landscape.after(4)
    assert landscape.counts() == EACH_BY_ONE


def test_cluster_that_never_answers_does_not_keep_a_replica_from_joining(
    landscape: Landscape,
) -> None:
    landscape.start("a")
    landscape.after(3)
    landscape.start("b", connected=False)
    landscape.after(20)
    assert landscape.counts() == EACH_BY_ONE


def test_replica_that_cannot_serve_yet_has_no_lease(landscape: Landscape) -> None:
    """It has not listed the objects of the management cluster."""
    landscape.start("a")
    landscape.after(3)
    new = landscape.start("b", ready=False)
    landscape.after(30)
    assert len(landscape.leases.stored) == 1
    new.ready = True
    landscape.after(3)
    assert landscape.counts() == EACH_BY_ONE


def test_replica_that_no_longer_works_loses_its_clusters(landscape: Landscape) -> None:
    first, second = landscape.start("a"), landscape.start("b")
    landscape.after(5)
    second.ready = False
    landscape.after(7)
    assert first.served == set(CLUSTERS)


def test_leaving_replica_serves_until_the_others_have_taken_over(landscape: Landscape) -> None:
    first, second = landscape.start("a"), landscape.start("b")
    landscape.after(5)
    before = second.served
    second.replicas.leave()
    assert second.replicas.has_successors
    landscape.running.remove(second)
    landscape.after(1)
    assert first.served == set(CLUSTERS)
    landscape.seconds += 100
    assert second.served == before


def test_only_replica_has_no_successors(landscape: Landscape) -> None:
    only = landscape.start("a")
    landscape.after(3)
    only.replicas.leave()
    assert not only.replicas.has_successors
    assert landscape.leases.stored == {}


def test_replicas_with_other_settings_do_not_share(landscape: Landscape) -> None:
    """A second signer with other policies must not take Clusters from the first."""
    first = landscape.start("a", settings="policies of the fleet")
    second = landscape.start("b", settings="policies of a trial")
    landscape.after(5)
    assert first.served == second.served == set(CLUSTERS)
    second.settings = first.settings
    landscape.after(3)
    assert landscape.counts() == EACH_BY_ONE


def test_pinned_replica_serves_its_namespace_and_is_replaced_by_the_others(
    landscape: Landscape,
) -> None:
    others = [landscape.start(name) for name in "ab"]
    pinned = landscape.start("pinned", namespace="team-1")
    landscape.after(5)
    team = {cluster for cluster in CLUSTERS if cluster.namespace == "team-1"}
    assert pinned.served == team
    assert landscape.counts() == EACH_BY_ONE
    landscape.kill(pinned)
    landscape.after(5, complete=False)
    landscape.after(1)
    assert others[0].served | others[1].served == set(CLUSTERS)


def test_replica_that_may_not_use_leases_serves_every_cluster_at_once(
    landscape: Landscape, caplog: pytest.LogCaptureFixture
) -> None:
    forbidden = landscape.start("a", cut_off=True)
    landscape.after(3)
    assert forbidden.served == set(CLUSTERS)
    assert forbidden.replicas.has_joined
    assert forbidden.replicas.count == 0
    [record] = caplog.records
    fields = vars(record)["fields"]
    assert record.getMessage() == "this replica serves every Cluster"
    assert fields["alarm"]
    assert fields["message"].startswith("forbidden: allow the signer to ")


def test_replica_that_loses_its_permission_serves_every_cluster_later(
    landscape: Landscape,
) -> None:
    """One failed round says nothing; after ten seconds the others take over its Clusters."""
    first, second = landscape.start("a"), landscape.start("b")
    landscape.after(5)
    share = second.served
    second.cut_off = True
    landscape.after(1)
    assert second.served == share
    landscape.after(6)
    assert first.served == second.served == set(CLUSTERS)
    second.cut_off = False
    landscape.after(3)
    assert landscape.counts() == EACH_BY_ONE


def test_outage_of_the_leases_ends_without_a_gap(landscape: Landscape) -> None:
    for name in "ab":
        landscape.start(name)
    landscape.after(5)
    landscape.leases.away = True
    landscape.after(10)
    assert landscape.counts() == Counter({2: len(CLUSTERS)})
    landscape.leases.away = False
    landscape.after(4)
    assert landscape.counts() == EACH_BY_ONE


def test_request_that_hangs_does_not_keep_an_old_share(landscape: Landscape) -> None:
    """The thread that syncs waits, and the Lease lapses."""
    first = landscape.start("a")
    landscape.start("b")
    landscape.after(5)
    landscape.seconds += 10
    assert first.served == set(CLUSTERS)


def test_hostile_lease_takes_clusters_only_while_it_is_renewed(landscape: Landscape) -> None:
    """Its writer needs the right to write Leases in the signer's namespace."""
    only = landscape.start("a")
    landscape.after(3)
    forged = {"labels": next(iter(landscape.leases.stored.values())).labels, "seconds": 1 << 31}
    landscape.leases.renew("forged", holder="forged", now=START, **forged)  # type: ignore[arg-type]
    landscape.after(5)
    landscape.leases.touch("forged")
    landscape.after(1)
    assert only.served == set(CLUSTERS)
    landscape.leases.renew("forged", holder="forged", now=START + timedelta(1), **forged)  # type: ignore[arg-type]
    landscape.after(1, complete=False)
    assert set() < only.served < set(CLUSTERS)
    landscape.after(4, complete=False)
    landscape.after(1)
    assert only.served == set(CLUSTERS)


def test_replicas_that_crash_again_and_again_do_not_keep_another_from_its_share(
    landscape: Landscape,
) -> None:
    """Each start makes a Lease that is never renewed."""
    stable = landscape.start("a")
    labels = {"attestation.cluster.x-k8s.io/signer-settings": "same"}
    for number in range(4):
        name = f"crashed-{number}"
        landscape.leases.renew(name, holder=name, seconds=10, labels=labels, now=START)
        landscape.after(1, complete=False)
    assert stable.served == set(CLUSTERS)


def test_lease_of_a_killed_replica_is_deleted_later(landscape: Landscape) -> None:
    landscape.start("a")
    killed = landscape.start("b")
    landscape.after(5)
    landscape.kill(killed)
    landscape.after(310, complete=False)
    assert len(landscape.leases.stored) == 1
    landscape.require_all_served()


def test_replica_of_one_namespace_counts_clusters_only_without_one_that_sees_all() -> None:
    landscape = Landscape()
    pinned = landscape.start("pinned", namespace="team-1")
    landscape.after(5, complete=False)
    assert pinned.replicas.counts_clusters
    general = landscape.start("general")
    landscape.after(5, complete=False)
    assert (pinned.replicas.counts_clusters, general.replicas.counts_clusters) == (False, True)
    landscape.kill(general)
    landscape.after(30, complete=False)
    assert pinned.replicas.counts_clusters
