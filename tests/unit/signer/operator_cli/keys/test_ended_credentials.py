"""`--now` reports that certificates have ended only when the credential list shows it."""

import time
from dataclasses import replace
from math import inf

import pytest

from signer.inventory.cluster_api.cluster import ClusterObject
from signer.kube.transport.client import Request
from signer.kube.transport.endpoint import ANSWER_SECONDS
from signer.model import AttestedNodeObject, EndorsementKeyObject, credential_id
from signer.operator_cli.errors import EXIT_OK, EXIT_UNDECIDED
from signer.operator_cli.keys import ended_credentials
from signer.operator_cli.keys.ended_credentials import _await_in_cluster, await_end_of_credentials
from signer.operator_cli.management.snapshot import Snapshot
from signer.operator_cli.session import Session
from signer.operator_cli.workloads.workload_reader import Unreachable
from tests.builders import operator_clusters
from tests.builders.attested_nodes import entry_text
from tests.builders.scenario import HOME, NODE, Scenario
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient
from tests.fakes.management_api import Console

A, B = credential_id(b"a"), credential_id(b"b")
CLUSTER = replace(operator_clusters.CLUSTER, key=HOME)
BINDINGS, _, BINDING = ended_credentials._BINDING.rpartition("/")
LISTS = "/api/v1/namespaces/kube-system/configmaps"


def workload(*entries: str | None) -> FakeCluster:
    """Return a workload cluster; each read of the list returns the next entry of the node."""
    cluster, rest = FakeCluster(), iter(entries)
    cluster.put(BINDINGS, {"metadata": {"name": BINDING}})
    cluster.put(LISTS, {"metadata": {"name": "node-attestation-credentials"}})

    def change(request: Request) -> None:
        entry = next(rest, None if not entries else entries[-1])
        cluster.objects[request.path]["data"] = {} if entry is None else {NODE: entry}

    cluster.intercept(change, path=LISTS, times=inf)
    return cluster


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each poll take a second of a clock that only polls move."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))


def problem(cluster: FakeCluster, credential_ids: tuple[str, ...] = (A, B)) -> str:
    """Return why the certificates of the node do not end."""
    _, node = Scenario().put_claim(credential_ids=credential_ids, banned=True)
    return _await_in_cluster([node], FakeClient(cluster), CLUSTER)


@pytest.mark.parametrize("others", [(), (credential_id(b"of another TPM"),)])
def test_node_without_its_certificates_in_the_list_cannot_write(others: tuple[str, ...]) -> None:
    cluster = workload(None, entry_text(A, B), entry_text(B), entry_text(*others))
    assert problem(cluster) == ""
    assert len([r for r in cluster.requests if r.path.startswith(LISTS)]) == 4


@pytest.mark.parametrize("entry", [None, entry_text(A)])
def test_node_that_may_still_write_is_a_problem(entry: str | None) -> None:
    """A node without an entry is not restricted."""
    assert "renewals.publishCredentials: true" in problem(workload(entry))


def test_attested_node_without_certificates_proves_no_end() -> None:
    """A tenant could write such an AttestedNode: only an empty entry shows the end then."""
    assert "renewals.publishCredentials: true" in problem(workload(entry_text(A)), ())
    assert problem(workload(entry_text(A), entry_text()), ()) == ""


@pytest.mark.parametrize(
    ("status", "path", "missing"),
    [
        (404, BINDINGS, "the admission policy is not installed"),
        (403, BINDINGS, "the admission policy is not installed"),
        (404, LISTS, "the ConfigMap of the admission policy does not exist"),
    ],
    ids=["no binding", "forbidden binding", "no ConfigMap"],
)
def test_what_is_not_installed_is_named(status: int, path: str, missing: str) -> None:
    cluster = FakeCluster()
    cluster.put(BINDINGS, {"metadata": {"name": BINDING}})
    cluster.intercept(status, path=path)
    assert missing in problem(cluster)


def with_snapshot(
    monkeypatch: pytest.MonkeyPatch,
    key: EndorsementKeyObject,
    clusters: tuple[ClusterObject, ...],
    nodes: list[AttestedNodeObject],
) -> Console:
    """Return the console of a command that reads these objects."""
    snapshot = Snapshot(
        clusters=clusters,
        machines=(),
        pools=(),
        nodes=nodes,
        keys={key.name: key},
        signers={},
        annotations={},
    )
    monkeypatch.setattr(Session, "snapshot", lambda _: snapshot)
    return Console(FakeCluster())


@pytest.mark.parametrize(
    ("clusters", "problem", "status"),
    [
        ((CLUSTER,), "", EXIT_OK),
        ((CLUSTER,), "the admission policy is not installed", EXIT_UNDECIDED),
        ((CLUSTER,), Unreachable("it does not answer"), EXIT_UNDECIDED),
        ((), "", EXIT_UNDECIDED),
    ],
    ids=["ended", "not installed", "unreachable", "no Cluster"],
)
def test_exit_status_shows_whether_all_certificates_have_ended(
    monkeypatch: pytest.MonkeyPatch,
    clusters: tuple[ClusterObject, ...],
    problem: str | Unreachable,
    status: int,
) -> None:
    key, node = Scenario().put_claim(credential_ids=(A,), banned=True)
    monkeypatch.setattr(
        ended_credentials,
        "for_each_workload",
        lambda _, found, *__, **___: [(cluster, problem) for cluster in found],
    )
    console = with_snapshot(monkeypatch, key, clusters, [node])
    assert await_end_of_credentials(console.session(), key.name) == status
    assert bool(console.complaint) is (status != EXIT_OK)
    assert ("can no longer write" in console.output) is (status == EXIT_OK)


def test_forged_attested_node_delays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant named the banned key in its AttestedNode, and the command waited for its list."""
    key, node = Scenario().put_claim(credential_ids=(A,), banned=True)
    forged = replace(node, cluster=replace(HOME, namespace="team-b"))
    abroad = replace(CLUSTER, key=forged.cluster)
    awaited: list[ClusterObject] = []

    def end(
        _: Session, clusters: list[ClusterObject], __: object, *, seconds: float
    ) -> list[tuple[ClusterObject, str]]:
        assert seconds >= ended_credentials._WAIT_SECONDS + ANSWER_SECONDS
        awaited.extend(clusters)
        return [(cluster, "") for cluster in clusters]

    monkeypatch.setattr(ended_credentials, "for_each_workload", end)
    console = with_snapshot(monkeypatch, key, (CLUSTER, abroad), [node, forged])
    assert await_end_of_credentials(console.session(), key.name) == EXIT_OK
    assert awaited == [CLUSTER]
    warning = "warning: 1 AttestedNodes name the key and do not hold it"
    assert console.complaint.startswith(warning)
    assert console.complaint.count("\n") == 1
