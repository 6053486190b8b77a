"""The parts of the controller, connected as in the signer."""

from dataclasses import replace
from http import HTTPStatus
from threading import Event

import pytest

from common.errors import ApiServerUnavailable
from signer.clusters.connection_problem import CONNECTING
from signer.clusters.workload_cluster import WorkloadCluster
from signer.controller.maintenance import workload_rounds
from signer.controller.maintenance.workload_rounds import WorkloadRounds
from signer.controller.queue.fair_queue import Item
from signer.controller.queue.workqueue import DONE
from signer.controller.wiring import ControllerParts
from signer.errors import AuthorityShared
from signer.logs import LogWriter
from signer.model import ClusterKey, Node
from signer.policy.policy import NodeLabels, Policy
from tests.builders.kube_objects import HOME
from tests.builders.workload import config_with, unconnected_workload


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


def test_labels_are_kept_up_to_date_while_requests_cannot_be_maintained(
    workload: WorkloadCluster, rounds: WorkloadRounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flood of requests ended each round early, so a banned node kept its label."""
    synced: list[WorkloadCluster] = []
    monkeypatch.setattr(workload, "read_hosts", fail)
    monkeypatch.setattr(rounds, "_sync_node_labels", synced.append)
    assert not rounds.maintain(workload, full=True)
    assert synced == [workload]


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


def test_replicas_share_only_with_the_same_policies_and_infrastructure_groups(
    workload: WorkloadCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = make_components(workload), make_components(workload)
    assert first._settings() == second._settings()
    monkeypatch.setattr(type(second.policy_sync), "digest", "another file")
    other_file = second._settings()
    monkeypatch.undo()
    second._config = replace(second._config, infrastructure_groups=("another.group",))
    assert len({first._settings(), other_file, second._settings()}) == 3


def test_the_circuit_breaker_of_a_closed_cluster_is_reset(
    workload: WorkloadCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Cluster that is created again under the name starts without the failures of the old one."""
    components = make_components(workload)
    for n in range(3):
        components.queue.add(Item(cluster=HOME, requester="r", name=str(n)))
        item = components.queue.get()
        assert item is not None
        components.queue.done(item, DONE, slow=True)
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
