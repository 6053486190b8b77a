"""Each Cluster is served by one replica, and never by none for long."""

import copy
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import inf
from typing import Any

import pytest

from common.errors import ApiServerUnavailable
from signer.clusters.state_check import StateCheck
from signer.controller.replicas import Replica, Replicas, serving_replica
from signer.inventory.replica_records.replica_leases import (
    LEASE_SECONDS,
)
from signer.kinds.cluster import ClusterKey
from signer.kube.leases import LeaseClient
from signer.kube.transport.client import Request
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient

START = datetime(2026, 11, 22, 12, tzinfo=UTC)
LAPSE = 9
"""Rounds after the end of a replica in which its Lease lapses for the others."""
GROWN = 5
"""Rounds in which they then take over its Clusters."""
LEASES = "/apis/coordination.k8s.io/v1/namespaces/own/leases"
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
    replicas: Replicas = field(init=False)
    state: StateCheck = field(init=False)
    cut_off: bool = False
    """Whether this replica alone cannot reach the Leases."""
    slowness: float = 0.0
    """Seconds in which the API server answers a list of this replica."""
    loses_answers: bool = False
    """Whether the API server performs the writes of this replica, and their answers are lost."""
    restores: list[float] = field(default_factory=list)
    """When a restore of the management cluster was noticed."""

    def __post_init__(self) -> None:
        self.state = StateCheck(lambda: self.landscape.seconds)
        self.start()

    def start(self) -> None:
        self.replicas = Replicas(
            LeaseClient(ReplicaClient(self), "own"),
            replica(self.name, self.namespace),
            settings=lambda: self.settings,
            ready=lambda: self.ready,
            connected=lambda: self.connected,
            state=self.state,
            restored=lambda: self.restores.append(self.landscape.seconds),
            now=lambda: START + timedelta(seconds=self.landscape.seconds),
            monotonic=lambda: self.landscape.seconds,
        )

    @property
    def served(self) -> set[ClusterKey]:
        return {cluster for cluster in CLUSTERS if self.replicas.serves(cluster)}


class ReplicaClient(FakeClient):
    """The connection of one replica to the API server."""

    def __init__(self, process: Process) -> None:
        super().__init__(process.landscape.cluster)
        self.process = process

    def _exchange(self, request: Request) -> tuple[int, bytes]:
        if self.process.cut_off:
            return 403, b"{}"
        is_read = request.method == "GET"
        self.process.landscape.seconds += self.process.slowness if is_read else 0.0
        answer = super()._exchange(request)
        if self.process.loses_answers and not is_read:
            raise ApiServerUnavailable("the connection was lost")
        return answer


@dataclass(slots=True)
class Landscape:
    """All replicas, the clock, and the API server with the Leases."""

    cluster: FakeCluster = field(default_factory=FakeCluster)
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
                process.replicas.renew()
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


@pytest.mark.parametrize(("name", "serving"), [("c-0", "b"), ("c-2", "c"), ("c-7", "a")])
def test_each_release_chooses_the_same_replica(name: str, serving: str) -> None:
    """During an upgrade, replicas of two releases share: none or both would serve a Cluster."""
    replicas = frozenset({replica("a"), replica("b"), replica("c")})
    cluster = ClusterKey(namespace="team-1", name=name)
    assert serving_replica(replicas, cluster) == replica(serving)


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
    assert only.replicas.has_share_of_clusters
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


def test_killed_replica_is_replaced_in_steps_after_its_lease(landscape: Landscape) -> None:
    """It may only be slow, and then all replicas would serve everything at once."""
    first, second = landscape.start("a"), landscape.start("b")
    landscape.after(5)
    share = first.served
    landscape.kill(second)
    landscape.after(LAPSE - 1, complete=False)
    assert first.served == share
    sizes = [len(share)]
    while sizes[-1] < len(CLUSTERS):
        landscape.after(1, complete=False)
        sizes.append(len(first.served))
    growth = [after - before for before, after in pairwise(sizes)]
    lost = len(CLUSTERS) - len(share)
    assert len(growth) < GROWN
    assert all(0 < step <= lost / 2 for step in growth)


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
    assert second.replicas.has_share_of_clusters


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
    assert not new.replicas.has_share_of_clusters
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
    assert len(landscape.cluster.objects) == 1
    new.ready = True
    landscape.after(3)
    assert landscape.counts() == EACH_BY_ONE


def test_replica_that_must_not_serve_leaves_its_clusters_to_the_others_immediately(
    landscape: Landscape,
) -> None:
    """Its workers have ended, or its clock is wrong, and so would be its verdicts."""
    first, second = landscape.start("a"), landscape.start("b")
    landscape.after(5)
    second.ready = False
    landscape.after(1, complete=False)
    landscape.after(1)
    assert (first.served, second.served) == (set(CLUSTERS), set())
    assert not second.replicas.has_share_of_clusters
    second.ready = True
    landscape.after(3)
    assert landscape.counts() == EACH_BY_ONE


def test_replica_that_must_not_serve_serves_what_no_other_can(landscape: Landscape) -> None:
    """A late or wrong verdict is better than none: the others see one namespace alone."""
    general = landscape.start("general")
    landscape.start("pinned", namespace="team-1")
    landscape.after(5)
    before = general.served
    general.ready = False
    landscape.after(3)
    assert general.served == before


def test_replicas_of_which_none_should_serve_all_serve(landscape: Landscape) -> None:
    """The clock of the API server is wrong."""
    running = [landscape.start(name) for name in "ab"]
    landscape.after(5)
    for process in running:
        process.ready = False
    landscape.after(1, complete=False)
    landscape.after(1)
    assert [process.served for process in running] == [set(CLUSTERS)] * 2


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
    assert landscape.cluster.objects == {}


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
    landscape.after(LAPSE + GROWN, complete=False)
    assert others[0].served | others[1].served == set(CLUSTERS)


def test_replica_that_may_not_use_leases_serves_every_cluster_at_once(
    landscape: Landscape, caplog: pytest.LogCaptureFixture
) -> None:
    forbidden = landscape.start("a", cut_off=True)
    landscape.after(3)
    assert forbidden.served == set(CLUSTERS)
    assert forbidden.replicas.has_share_of_clusters
    assert forbidden.replicas.count == 0
    [record] = caplog.records
    fields = vars(record)["fields"]
    assert record.getMessage() == "this replica serves every Cluster"
    assert fields["alarm"]
    assert fields["message"].startswith(
        "the API server answered with status 403: allow the signer to "
    )


def test_pinned_replica_that_may_not_use_leases_serves_its_namespace_alone(
    landscape: Landscape,
) -> None:
    """It would clean up after Clusters that it does not see, as if they were gone."""
    pinned = landscape.start("pinned", namespace="team-1", cut_off=True)
    landscape.after(1, complete=False)
    assert pinned.served == {cluster for cluster in CLUSTERS if cluster.namespace == "team-1"}


def test_replica_that_loses_its_permission_serves_every_cluster_later(
    landscape: Landscape,
) -> None:
    """One failed round says nothing; later the others take over its Clusters."""
    first, second = landscape.start("a"), landscape.start("b")
    landscape.after(5)
    share = second.served
    second.cut_off = True
    landscape.after(1)
    assert second.served == share
    landscape.after(LAPSE + GROWN)
    assert first.served == second.served == set(CLUSTERS)
    second.cut_off = False
    landscape.after(3)
    assert landscape.counts() == EACH_BY_ONE


def test_outage_of_the_leases_ends_without_a_gap(landscape: Landscape) -> None:
    for name in "ab":
        landscape.start(name)
    landscape.after(5)
    landscape.cluster.intercept(ApiServerUnavailable("away"), times=inf)
    landscape.after(LAPSE + GROWN)
    assert landscape.counts() == Counter({2: len(CLUSTERS)})
    landscape.cluster.interceptions.clear()
    landscape.after(4)
    assert landscape.counts() == EACH_BY_ONE


def test_request_that_hangs_does_not_keep_an_old_share(landscape: Landscape) -> None:
    """The thread that syncs waits, and the Lease lapses."""
    first = landscape.start("a")
    landscape.start("b")
    landscape.after(5)
    share = first.served
    landscape.seconds += LEASE_SECONDS - 2.5
    assert first.served == share
    landscape.seconds += 0.5
    assert share < first.served < set(CLUSTERS)
    landscape.seconds += 8
    assert first.served == set(CLUSTERS)


def test_share_of_a_slow_answer_is_as_old_as_the_request(landscape: Landscape) -> None:
    """The Lease was renewed before the answer, and the others count from then."""
    first = landscape.start("a")
    landscape.start("b")
    landscape.after(5)
    share = first.served
    first.slowness = 6.0
    first.replicas.sync()
    landscape.seconds += LEASE_SECONDS - 6.5
    assert first.served == share
    landscape.seconds += 0.5
    assert share < first.served
    first.slowness = 0.0
    first.replicas.sync()
    assert share < first.served


def forge(landscape: Landscape, name: str, labels: Mapping[str, str], time: str) -> None:
    """Write a Lease as something else than a replica does."""
    spec = {"holderIdentity": name, "leaseDurationSeconds": 1 << 31, "renewTime": time}
    landscape.cluster.put(LEASES, {"metadata": {"name": name, "labels": labels}, "spec": spec})


def test_hostile_lease_takes_clusters_only_while_it_is_renewed(landscape: Landscape) -> None:
    """Its writer needs the right to write Leases in the signer's namespace."""
    only = landscape.start("a")
    landscape.after(3)
    [lease] = landscape.cluster.objects.values()
    labels = lease["metadata"]["labels"]
    forge(landscape, "forged", labels, "1")
    landscape.after(5)
    forge(landscape, "forged", labels, "1")
    landscape.after(1)
    assert only.served == set(CLUSTERS)
    forge(landscape, "forged", labels, "2")
    landscape.after(1, complete=False)
    assert set() < only.served < set(CLUSTERS)
    landscape.after(LAPSE + GROWN, complete=False)
    assert only.served == set(CLUSTERS)


def test_replicas_that_crash_again_and_again_do_not_keep_another_from_its_share(
    landscape: Landscape,
) -> None:
    """Each start makes a Lease that is never renewed."""
    stable = landscape.start("a")
    labels = {"attestation.cluster.x-k8s.io/signer-settings": "same"}
    for number in range(4):
        name = f"crashed-{number}"
        forge(landscape, name, labels, "1")
        landscape.after(1, complete=False)
    assert stable.served == set(CLUSTERS)


def test_lease_of_a_killed_replica_is_deleted_later(landscape: Landscape) -> None:
    landscape.start("a")
    killed = landscape.start("b")
    landscape.after(5)
    landscape.kill(killed)
    landscape.after(310, complete=False)
    assert len(landscape.cluster.objects) == 1
    landscape.require_all_served()


def test_lease_that_is_renewed_is_never_deleted(landscape: Landscape) -> None:
    for name in "ab":
        landscape.start(name)
    landscape.after(310)
    assert len(landscape.cluster.objects) == 2


def test_replica_of_one_namespace_counts_clusters_only_without_one_that_sees_all() -> None:
    landscape = Landscape()
    pinned = landscape.start("pinned", namespace="team-1")
    landscape.after(5, complete=False)
    assert pinned.replicas.is_counting_replica
    general = landscape.start("general")
    landscape.after(5, complete=False)
    assert (pinned.replicas.is_counting_replica, general.replicas.is_counting_replica) == (
        False,
        True,
    )
    landscape.kill(general)
    landscape.after(30, complete=False)
    assert pinned.replicas.is_counting_replica


@pytest.mark.parametrize("backup", ["older Lease", "no Lease"])
def test_restore_of_the_management_cluster_is_noticed_by_the_lease(
    landscape: Landscape, backup: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Versions of objects may have passed those before the restore, so they show nothing."""
    only = landscape.start("a")
    landscape.after(3)
    old = copy.deepcopy(landscape.cluster.objects) if backup == "older Lease" else {}
    landscape.after(3)
    assert only.restores == []
    landscape.cluster.objects = old
    landscape.cluster.version += 1000
    restored_at = landscape.seconds
    only.state.note_interruption()
    with pytest.raises(ApiServerUnavailable, match="restored"):
        only.state.require_confirmed()
    landscape.after(1)
    assert only.restores == [restored_at]
    [record] = [r for r in caplog.records if r.getMessage() == "management cluster is listed again"]
    assert vars(record)["fields"]["alarm"]
    landscape.after(3)
    assert only.restores == [restored_at]
    only.state.require_confirmed()


def test_lost_answers_of_renewals_are_no_restore(landscape: Landscape) -> None:
    only = landscape.start("a")
    landscape.after(3)
    only.loses_answers = True
    landscape.after(3)
    only.loses_answers = False
    landscape.after(1)
    assert only.restores == []
    assert only.replicas.has_share_of_clusters


def test_verdicts_wait_from_a_lost_renewal_until_the_next_one(landscape: Landscape) -> None:
    """All watches may have been away since before, so none of them notices another restart."""
    only = landscape.start("a")
    landscape.after(3)
    only.cut_off = True  # A refusal: the API server is there.
    landscape.after(1)
    only.state.require_confirmed()
    only.cut_off, only.loses_answers = False, True
    landscape.after(1)
    with pytest.raises(ApiServerUnavailable, match="restored"):
        only.state.require_confirmed()
    only.loses_answers = False
    landscape.after(1)
    only.state.require_confirmed()


def test_renewal_that_was_sent_before_a_connection_was_lost_confirms_nothing() -> None:
    """The API server may have been restored after it answered."""
    seconds = 10.0
    state = StateCheck(lambda: seconds)
    state.require_confirmed()
    state.confirm(9.0)
    state.note_interruption()
    for since in (9.5, 10.0):
        state.confirm(since)
        with pytest.raises(ApiServerUnavailable):
            state.require_confirmed()
    state.confirm(10.5)
    state.require_confirmed()


def test_replica_without_a_lease_waits_for_no_confirmation(landscape: Landscape) -> None:
    """It may not write Leases, or it starts; nothing would ever confirm the state."""
    only = landscape.start("a")
    landscape.after(3)
    only.ready = False
    landscape.after(2, complete=False)
    only.state.note_interruption()
    only.state.require_confirmed()
