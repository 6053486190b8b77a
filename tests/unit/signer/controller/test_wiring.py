"""The parts of the controller, connected as in the signer."""

import math
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from http import HTTPStatus
from threading import Event

import pytest

from common.errors import ApiServerUnavailable
from signer.claims.ended_entry import EndedEntry
from signer.clusters.connection_problem import CONNECTING
from signer.clusters.workload_cluster import WorkloadCluster
from signer.clusters.workload_clusters import WorkloadClusters
from signer.controller.maintenance import workload_rounds
from signer.controller.maintenance.workload_rounds import WorkloadRounds
from signer.controller.queue.fair_queue import Item
from signer.controller.queue.workqueue import DONE
from signer.controller.replicas import Replicas
from signer.controller.steps import Steps
from signer.controller.threads import MAX_SILENCE_SECONDS
from signer.controller.wiring import ControllerParts
from signer.errors import AuthorityShared, EndedCertificatesNotListed
from signer.inventory.ended_certificates import EndedCertificatesClient
from signer.kinds.cluster import ClusterKey
from signer.kinds.endorsement_key import Ban
from signer.kinds.node import Node
from signer.kube.watches import cache
from signer.logs import LogWriter
from signer.policy.policy import NodeLabels, Policy
from tests.builders.endorsement_keys import endorsement_key, key_holder
from tests.builders.kube_objects import HOME
from tests.builders.scenario import NOW
from tests.builders.workload import config_with, unconnected_workload
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient

BANNED = EndedEntry(key="ab" * 16, term=1, is_ban=True, since=NOW, until=NOW + timedelta(days=9999))


@pytest.fixture
def workload() -> WorkloadCluster:
    return unconnected_workload()


def make_components(workload: WorkloadCluster) -> ControllerParts:
    config = config_with(workload.connection)
    return ControllerParts(config, LogWriter(), Event(), agent="test", host_name="host")


@pytest.fixture
def rounds(workload: WorkloadCluster, monkeypatch: pytest.MonkeyPatch) -> WorkloadRounds:
    """Return rounds in which all reads succeed, with a policy that enables labels."""
    made = make_components(workload)._rounds
    policy = Policy(name="any", node_labels=NodeLabels.ENABLED)
    monkeypatch.setattr(workload, "read_hosts", lambda: None)
    monkeypatch.setattr(made._authorities, "authority", lambda _: None)
    monkeypatch.setattr(made._policies, "policy_of", lambda _: policy)
    monkeypatch.setattr(made, "_steps", Steps(lambda: True))
    monkeypatch.setattr(made._ended, "sync", lambda *_: None)
    made.add(workload)
    return made


def fail() -> None:
    raise ApiServerUnavailable("the deletion of expired offers takes too long")


def forbidden(request: str) -> ApiServerUnavailable:
    error = ApiServerUnavailable("any", detail=f"{request}: no")
    error.status = HTTPStatus.FORBIDDEN
    return error


def test_full_round_of_maintenance_reads_hosts_and_authority(
    workload: WorkloadCluster, rounds: WorkloadRounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round read both: 17 requests a second for 500 idle clusters."""
    reads: list[str] = []
    monkeypatch.setattr(workload, "read_hosts", lambda: reads.append("hosts"))
    monkeypatch.setattr(rounds._authorities, "authority", lambda _: reads.append("authority"))
    assert rounds.problem(workload) is CONNECTING
    assert not rounds.maintain(workload, full=False)
    assert reads == []
    assert rounds.maintain(workload, full=True)
    assert rounds.problem(workload) is None
    assert reads == ["authority", "hosts"]


def test_incomplete_caches_do_not_stop_maintenance(
    workload: WorkloadCluster, rounds: WorkloadRounds
) -> None:
    """A namespace over its memory budget would show its Clusters as not served."""
    workload.nodes.replace({"node-1": Node(name="node-1", provider_id="")})
    assert rounds.maintain(workload, full=True)


@pytest.mark.parametrize(
    "failing", ["sync", "read_hosts", "reason_to_keep", "delete_expired_offers"]
)
def test_step_that_fails_does_not_stop_the_others(
    workload: WorkloadCluster,
    rounds: WorkloadRounds,
    monkeypatch: pytest.MonkeyPatch,
    failing: str,
) -> None:
    """A banned node that could make requests unreadable, or flood them, kept its rights."""
    steps = {
        "sync": (rounds._ended, None),
        "read_hosts": (workload, None),
        "reason_to_keep": (rounds._bindings, ""),
        "delete_expired_offers": (workload_rounds, None),
        "_sync_node_labels": (rounds, None),
        "_sync_node_taints": (rounds, None),
    }
    ran: list[str] = []

    def run(name: str, result: object) -> object:
        ran.append(name)
        if name == failing:
            fail()
        return result

    for name, (owner, result) in steps.items():
        monkeypatch.setattr(owner, name, lambda *_, n=name, r=result: run(n, r))
    for listed in (workload.nodes, workload.bindings, workload.csrs):
        listed.replace({})
    assert not rounds.maintain(workload, full=True)
    assert ran == list(steps)


@pytest.mark.parametrize("failing", [False, True])
def test_bindings_wait_for_nodes_only_while_these_are_being_listed(
    workload: WorkloadCluster,
    rounds: WorkloadRounds,
    monkeypatch: pytest.MonkeyPatch,
    *,
    failing: bool,
) -> None:
    """CSRs that cannot be listed say nothing about them."""
    asked: list[WorkloadCluster] = []

    def keep(asking: WorkloadCluster, _: Policy) -> str:
        asked.append(asking)
        return "keep"

    monkeypatch.setattr(rounds._bindings, "reason_to_keep", keep)
    workload.bindings.replace({})
    workload.csrs.note_failure()
    if failing:
        workload.nodes.note_failure()
    rounds.maintain(workload, full=False)
    assert (asked == [workload]) is failing
    assert workload.maintenance_due.is_set() is not failing


@pytest.mark.parametrize("unreadable", ["nodes", "bindings", "csrs"])
def test_ban_needs_no_list_of_the_workload_cluster(
    workload: WorkloadCluster,
    rounds: WorkloadRounds,
    monkeypatch: pytest.MonkeyPatch,
    unreadable: str,
) -> None:
    """A node makes the list of CSRs, or of Nodes, fail by its own objects; also after a start."""
    synced: list[WorkloadCluster] = []

    monkeypatch.setattr(rounds._ended, "sync", lambda synced_now, *_: synced.append(synced_now))
    for name in {"nodes", "bindings", "csrs"} - {unreadable}:
        getattr(workload, name).replace({})
    getattr(workload, unreadable).note_failure()
    rounds.maintain(workload, full=True)
    assert synced == [workload]


def test_ban_that_disappears_lets_the_list_of_ended_certificates_be_read_again(
    workload: WorkloadCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a word of a lift: the list has the ban, and may have counted as empty."""
    cluster = FakeCluster()
    monkeypatch.setattr(workload, "ended", EndedCertificatesClient(FakeClient(cluster)))
    parts = make_components(workload)
    parts.management.keys.replace({})
    monkeypatch.setattr(parts.clusters, "get", {workload.key: workload}.get)
    assert workload.ended.entry("node-1") is None
    EndedCertificatesClient(FakeClient(cluster)).change(lambda _: {"node-1": BANNED})
    assert workload.ended.entry("node-1") is None
    key = endorsement_key("aa" * 32, held_by=key_holder(workload.key))
    parts.management.keys.upsert(key.name, key.replace(banned=Ban(reason="stolen")))
    assert workload.ended.entry("node-1") == BANNED
    EndedCertificatesClient(FakeClient(cluster)).change(lambda _: {"node-1": None})
    assert workload.ended.entry("node-1") is None
    EndedCertificatesClient(FakeClient(cluster)).change(lambda _: {"node-1": BANNED})
    parts.management.keys.upsert(key.name, key)
    assert workload.ended.entry("node-1") == BANNED


@pytest.mark.parametrize("trusted", [True, False])
def test_what_is_ended_does_not_expire_by_a_clock_that_is_not_trusted(
    workload: WorkloadCluster,
    rounds: WorkloadRounds,
    monkeypatch: pytest.MonkeyPatch,
    *,
    trusted: bool,
) -> None:
    times: list[datetime] = []
    monkeypatch.setattr(rounds, "_steps", Steps(lambda: trusted))
    monkeypatch.setattr(rounds._ended, "sync", lambda *_: times.append(_[-1]))
    rounds.maintain(workload, full=False)
    assert [time.year > 2000 for time in times] == [trusted]


@pytest.mark.parametrize("allowed", [True, False])
def test_list_that_the_workload_cluster_forbids_is_reported(
    workload: WorkloadCluster,
    rounds: WorkloadRounds,
    monkeypatch: pytest.MonkeyPatch,
    *,
    allowed: bool,
) -> None:
    """Its other steps go on, and only nodes that need an entry wait."""
    recorded: list[str] = []

    def sync(*_: object) -> None:
        if not allowed:
            raise EndedCertificatesNotListed("no")

    monkeypatch.setattr(rounds._ended, "sync", sync)
    monkeypatch.setattr(rounds._events, "record", lambda _, reason, *__: recorded.append(reason))
    assert rounds.maintain(workload, full=True)
    assert recorded == ([] if allowed else ["EndedCertificatesNotListed"])


def test_shared_authority_is_found_while_requests_cannot_be_maintained(
    workload: WorkloadCluster, rounds: WorkloadRounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flood of requests in one of two Clusters prevented the alarm about them."""

    def share(_: ClusterKey) -> None:
        raise AuthorityShared("another Cluster has the same certificate authority")

    monkeypatch.setattr(workload, "read_hosts", fail)
    monkeypatch.setattr(rounds._authorities, "authority", share)
    monkeypatch.setattr(rounds._policies, "is_serving_only", lambda _: False)
    assert not rounds.maintain(workload, full=True)
    problem = rounds.problem(workload)
    assert problem is not None
    assert problem.reason == AuthorityShared.reason


def test_forbidden_labels_are_one_event_and_the_cluster_is_served(
    workload: WorkloadCluster, rounds: WorkloadRounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever Node is tried first: each other message would be a new Event in each round."""
    tried, recorded = iter("ab"), set()

    def forbid(*_: object) -> None:
        raise forbidden(f"PATCH /api/v1/nodes/{next(tried)}")

    def record(_: object, reason: str, message: str, __: object) -> None:
        recorded.add((reason, message))

    change: tuple[Node, dict[str, str]] = (Node(name="a", provider_id=""), {})
    monkeypatch.setattr(workload_rounds, "plan_label_changes", lambda *_, **__: [change])
    monkeypatch.setattr(workload.node_labels, "change", forbid)
    monkeypatch.setattr(rounds._events, "record", record)
    workload.nodes.replace({})
    for _ in range(2):
        assert rounds.maintain(workload, full=True)
        assert rounds.problem(workload) is None
    message = "the workload cluster forbids labels on Nodes: apply node-labels-rbac.yaml there"
    assert recorded == {("NodeLabelsForbidden", message)}


def test_forbidden_deletions_of_offers_are_one_problem(
    workload: WorkloadCluster, rounds: WorkloadRounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round tries other offers first, and each of their names was another Event."""
    tried = iter("ab")
    refused = "DELETE /apis/certificates.k8s.io/v1/certificatesigningrequests"

    def forbid() -> None:
        raise forbidden(f"{refused}/{next(tried)}")

    monkeypatch.setattr(workload, "read_hosts", forbid)
    problems = set()
    for _ in range(2):
        assert not rounds.maintain(workload, full=True)
        problems.add(rounds.problem(workload))
    [problem] = problems
    assert problem is not None
    assert problem.message == (
        f"the workload cluster forbids {refused}: apply workload-rbac.yaml there"
    )


COMPARING = [
    "_maintain_bindings",
    "delete_expired_offers",
    "_sync_node_labels",
    "_sync_node_taints",
]
"""What a round of a workload cluster does by the clock of this machine."""
OTHERS = ["_verify_authority", "read_hosts", "_list_ended"]


@pytest.mark.parametrize(
    ("ahead", "done"),
    [(0, {*COMPARING, *OTHERS}), (1200, {*OTHERS}), (None, {*OTHERS})],
    ids=["right clock", "20 minutes ahead", "before the clock was compared"],
)
def test_a_round_does_not_compare_times_before_the_clock_is_trusted(
    workload: WorkloadCluster,
    monkeypatch: pytest.MonkeyPatch,
    ahead: int | None,
    done: set[str],
) -> None:
    """A signer whose clock was ahead deleted the offers of nodes that waited for it."""
    components, seen = make_components(workload), set[str]()
    made, policy = components._rounds, Policy(name="any")
    places = {"delete_expired_offers": workload_rounds, "read_hosts": workload}
    for name in (*COMPARING, *OTHERS):
        monkeypatch.setattr(places.get(name, made), name, partial(note, seen, name))
    monkeypatch.setattr(made._policies, "policy_of", lambda _: policy)
    workload.csrs.replace({})
    workload.bindings.replace({})
    if ahead is not None:
        compare_clock(components, ahead)
    made.add(workload)
    made.maintain(workload, full=True)
    assert seen == done


def compare_clock(components: ControllerParts, ahead: int) -> None:
    now = datetime.now(UTC)
    date = format_datetime(now - timedelta(seconds=ahead), usegmt=True).encode()
    components.clock_skew.observe(date, now, now)


def test_a_replica_is_not_ready_three_minutes_after_the_last_successful_request(
    workload: WorkloadCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    components, now = make_components(workload), time.monotonic()
    monkeypatch.setattr(components.health, "is_good", lambda: True)
    monkeypatch.setattr(components.management, "has_synced_once", lambda: True)
    compare_clock(components, 0)
    assert components._can_serve()
    monkeypatch.setattr("time.monotonic", lambda: now + MAX_SILENCE_SECONDS + 1)
    assert not components._can_serve()


def note(seen: set[str], name: str, *_: object) -> None:
    seen.add(name)


def test_replicas_share_only_with_the_same_infrastructure_groups(
    workload: WorkloadCluster,
) -> None:
    first, second = make_components(workload), make_components(workload)
    assert first._settings() == second._settings()
    second._config = replace(second._config, infrastructure_groups=("another.group",))
    assert first._settings() != second._settings()


def test_the_circuit_breaker_of_a_closed_cluster_is_reset(
    workload: WorkloadCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Cluster that is created again under the name starts without the failures of the old one."""
    components = make_components(workload)
    for n in range(3):
        components.queue.add(Item(cluster=HOME, requester="r", name=str(n)))
        item = components.queue.get()
        assert item is not None
        components.queue.done(item, DONE, seconds=math.inf)
    assert components.queue.state().open_breakers == {HOME}
    monkeypatch.setattr(workload, "read_hosts", lambda: None)
    components.maintenance.sync([workload])
    components.maintenance.sync([])
    assert components.queue.state().open_breakers == frozenset()


@pytest.mark.parametrize(
    "shared",
    [
        "worker",
        "platform thread",
        "turn of workload clusters",
        "turn of the management cluster",
    ],
)
def test_replica_in_which_a_task_waits_for_a_minute_is_not_ready(
    workload: WorkloadCluster, monkeypatch: pytest.MonkeyPatch, shared: str
) -> None:
    """40 names that nobody answered held all threads for good, and `/readyz` was 200."""
    parts, seconds = make_components(workload), 59.0
    monkeypatch.setattr(parts, "_can_serve", lambda: True)
    monkeypatch.setattr(type(parts.replicas), "has_share_of_clusters", True)
    monkeypatch.setitem(parts.waits._waits, shared, lambda: seconds)
    assert parts._is_ready()
    seconds = 60.0
    assert not parts._is_ready()
    assert parts.waits.seconds()[shared] == 60.0


@pytest.mark.parametrize(
    ("kind", "decides"),
    [
        ("clusters", True),
        ("machines", True),
        ("pools", True),
        ("keys", True),
        ("nodes", True),
        ("policies", True),
        ("bootstraps", False),
        ("key_requests", False),
    ],
)
def test_kind_of_the_management_cluster_that_is_outdated_is_not_ready_and_is_named(
    workload: WorkloadCluster, monkeypatch: pytest.MonkeyPatch, kind: str, *, decides: bool
) -> None:
    """The probe said 200 and every Cluster was Served, while nothing could be decided."""
    parts = make_components(workload)
    monkeypatch.setattr(parts, "_can_serve", lambda: True)
    monkeypatch.setattr(Replicas, "has_share_of_clusters", True)
    monkeypatch.setattr(WorkloadClusters, "problem", lambda *_: None)
    monkeypatch.setattr(cache, "MAX_FAILING_SECONDS", -1.0)
    failing = getattr(parts.management, kind)
    assert parts._is_ready()
    failing.note_failure()
    assert parts._is_ready() is not decides
    problem = parts._problem(HOME)
    assert (problem is not None and failing.plural in problem.message) is decides
    assert parts.management.failing_seconds()[failing.plural] > 0
    failing.note_success()
    assert parts._is_ready()


def test_policies_that_are_outdated_decide_nothing(
    workload: WorkloadCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policies in force are those of the last list."""
    management = make_components(workload).management
    monkeypatch.setattr(cache, "MAX_FAILING_SECONDS", -1.0)
    management.policies.replace({})
    management.require_complete("team-a")
    management.policies.note_failure()
    with pytest.raises(ApiServerUnavailable, match="KubeletAttestationPolicies could not be read"):
        management.require_complete("team-a")
