"""Answers of a tenant's API server: none crashes a command or adds an object of another kind."""

from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from common.errors import ApiServerUnavailable
from signer.inventory.cluster_api.cluster import ClusterObject
from signer.kinds.cluster import ClusterKey
from signer.kinds.resources import NODES
from signer.kube import pages
from signer.kube.transport.client import ApiClient, Request
from signer.kube.transport.kubeconfig import ClientCertificate
from signer.operator_cli.checks.findings import FindingResult
from signer.operator_cli.checks.rbac import find_administrators, find_holders
from signer.operator_cli.checks.workload_checks import read_workload_findings
from signer.operator_cli.commands import explain
from signer.operator_cli.errors import ServerUnavailable
from signer.operator_cli.management.api import ManagementApi
from signer.operator_cli.session import Session
from signer.operator_cli.workloads import workload_reader
from signer.operator_cli.workloads.workload_reader import (
    Unreachable,
    for_each_workload,
    list_workload,
    open_client,
)
from tests.builders.operator_clusters import CLUSTER
from tests.fakes.api_server import Answering, api_server
from tests.fakes.cluster import Action, FakeCluster
from tests.fakes.cluster_clients import FakeClient
from tests.fakes.cluster_objects import Object
from tests.fakes.management_api import Console
from tests.harness import pki


def workload(answer: Action) -> FakeClient:
    """Connect to an API server that answers each request so."""
    cluster = FakeCluster()
    cluster.intercept(answer, times=inf)
    return FakeClient(cluster, "team-a/c1")


@pytest.mark.parametrize(
    "answer",
    [
        b"not JSON",
        {"items": [1]},
        {"items": [{"metadata": []}]},
        {"items": [{"metadata": {"name": 1}}]},
        {"items": [{"kind": "Node"}]},
        b'{"items":[' + b"[" * 100_000 + b"]" * 100_000 + b"]}",
        b'{"items":[{"metadata":{"name":"n"},"n":' + b"9" * 5000 + b"}]}",
    ],
    ids=["text", "number", "array", "name", "no name", "deep", "long number"],
)
def test_unreadable_list_is_an_error_of_that_cluster(answer: bytes | Object) -> None:
    with pytest.raises(ApiServerUnavailable):
        list_workload(workload((200, answer)), NODES)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([{"metadata": {"name": "n"}}] * 4, "over 10 objects"),
        ([], "continues after an empty page"),
        (None, "continues after an empty page"),
    ],
    ids=["objects", "empty pages", "no items"],
)
def test_list_without_end_is_given_up(
    monkeypatch: pytest.MonkeyPatch, items: object, message: str
) -> None:
    """Empty pages made `pending` and `clusters` of the whole fleet never end."""
    monkeypatch.setattr(pages, "_MAX_OBJECTS", 10)
    page = {"metadata": {"continue": "more"}, "items": items}
    with pytest.raises(ApiServerUnavailable, match=message):
        list_workload(workload((200, page)), NODES)


def test_cluster_that_is_slow_has_a_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page was within all limits, and took a second: the list took hours."""
    now = [0.0]
    monkeypatch.setattr(workload_reader, "time", SimpleNamespace(monotonic=lambda: now[0]))
    requests: list[str] = []

    def answer(request: Answering) -> None:
        now[0] += 1.0
        requests.append(request.path)
        item = {"metadata": {"name": "n"}}
        request.give({"metadata": {"continue": "more"}, "items": [item]})

    with (
        api_server(answer, tmp_path) as server,
        closing(open_client(CLUSTER, server.connection(), seconds=5.0)) as client,
        pytest.raises(ApiServerUnavailable, match="could not be read within 5 s"),
    ):
        list_workload(client, NODES)
    assert len(requests) == 5


def test_tenant_with_many_slow_clusters_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 500 Clusters took half a minute: the command took half an hour."""
    now = [0.0]
    monkeypatch.setattr(workload_reader, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(workload_reader, "_AT_ONCE", 1)
    client = SimpleNamespace(close=lambda: None)
    monkeypatch.setattr(workload_reader, "connect_workload", lambda *_, **__: client)
    slow = [replace(CLUSTER, key=replace(CLUSTER.key, name=f"c{n}")) for n in range(500)]
    other = replace(CLUSTER, key=ClusterKey(namespace="team-b", name="c1"))

    def read(_client: ApiClient, cluster: ClusterObject) -> int:
        now[0] += 4.0 if cluster is other else 30.0
        return 1

    session = Console(FakeCluster()).session()
    clusters = [*slow, *[other] * 50]
    read_clusters, results = zip(*for_each_workload(session, clusters, read), strict=True)
    assert list(read_clusters) == clusters
    assert results[:5] == (1,) * 5
    reason = "it was not read: other Clusters of namespace team-a answered too slowly"
    assert set(results[5:500]) == {Unreachable(f"{reason} (--cluster reads one)")}
    assert results[500:] == (1,) * 50


def test_line_of_progress_names_the_clusters_that_are_awaited() -> None:
    """The line said `3 of 4`, and not whose API server kept the operator waiting."""
    lines: list[str] = []
    session = SimpleNamespace(doing=lines.append)
    progress = workload_reader._Progress(cast("Session", session), 5)
    clusters = [replace(CLUSTER, key=replace(CLUSTER.key, name=f"c{n}")) for n in range(5)]
    with ExitStack() as stack:
        for cluster in clusters[:4]:
            stack.enter_context(progress.reading(cluster))
        with progress.reading(clusters[4]):
            pass
    assert lines[0] == "reading workload clusters: 0 of 5, waiting for team-a/c0"
    waiting = "waiting for team-a/c0, team-a/c1, team-a/c2, 1 more"
    assert f"reading workload clusters: 1 of 5, {waiting}" in lines
    assert lines[-1] == "reading workload clusters: 5 of 5"


@pytest.mark.parametrize(
    ("role", "binding"),
    [
        ({"rules": 1}, {}),
        ({"rules": [1, {"verbs": 1}]}, {"roleRef": [], "subjects": [1]}),
        ({"rules": [{"verbs": [1]}]}, {"roleRef": {"name": 1}, "subjects": 1}),
    ],
    ids=str,
)
def test_odd_roles_and_bindings_give_no_right(
    role: dict[str, object], binding: dict[str, object]
) -> None:
    named = {"metadata": {"name": "r"}}
    assert not find_holders([named | role], [named | binding])
    assert not find_administrators([named | role], [named | binding])


def test_answers_of_other_types_are_findings_and_no_crash() -> None:
    odd = {"metadata": {"name": "x"}, "roleRef": 1, "rules": {}, "subjects": "all"}

    def answer(request: Request) -> tuple[int, Object]:
        if request.method == "POST":
            return 201, {"status": {"allowed": True}}
        return 200, {"items": [odd]}

    findings = read_workload_findings(workload(answer), CLUSTER, frozenset())
    assert {finding.result for finding in findings} == {FindingResult.OK}


def test_review_of_another_type_is_an_error_of_that_cluster() -> None:
    with pytest.raises(ApiServerUnavailable):
        read_workload_findings(
            workload((201, {"status": {"allowed": "yes"}})), CLUSTER, frozenset()
        )


def test_service_of_a_workload_cluster_adds_no_management_object() -> None:
    """A tenant could else show an operator a registration that does not exist."""
    forged = {
        "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
        "kind": "EndorsementKey",
        "metadata": {"name": "ab" * 32},
    }

    def answer(request: Request) -> tuple[int, Object]:
        is_service = request.path.endswith("/services/kubernetes")
        return 200, forged if is_service else {"items": [forged]}

    kinds = [body["kind"] for body in explain._workload_bodies(workload(answer))]
    assert kinds == ["Node", "ClusterRoleBinding", "Service"]


def test_failure_of_one_cluster_is_that_clusters_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_api: ManagementApi, _cluster: object, **_: object) -> ApiClient:
        raise ApiServerUnavailable("no answer", detail="timeout")

    monkeypatch.setattr(workload_reader, "connect_workload", refuse)
    results = for_each_workload(
        Console(FakeCluster()).session(), [CLUSTER, CLUSTER], lambda _client, _cluster: 1
    )
    assert results == [(CLUSTER, Unreachable("no answer (timeout)"))] * 2


@pytest.mark.parametrize(
    ("now", "content", "reason"),
    [
        (
            datetime(2126, 1, 1, tzinfo=UTC),
            {"kind": "Status", "message": "Unauthorized"},
            "the certificate in the kubeconfig Secret expired on {expiry}: run {command}",
        ),
        (
            None,
            {"kind": "Status", "message": "nodes is forbidden"},
            "the API server answered with status 401 (GET {path}: nodes is forbidden)",
        ),
        (
            None,
            b"<html>",
            "the API server answered with status 401 (GET {path})",
        ),
    ],
    ids=["expired", "Status", "no Status"],
)
def test_refused_credential_is_a_reason_without_json(
    monkeypatch: pytest.MonkeyPatch, now: datetime | None, content: bytes | Object, reason: str
) -> None:
    """A table had the JSON of the answer in a cell, and not that the certificate had expired."""
    client = workload((401, content))
    pair = pki.Authority.make("workload", pki.ec_key()).client("signer")
    certificate = ClientCertificate(certificate=pair.certificate.decode(), key=pair.key.decode())
    endpoint = client.endpoint
    endpoint.connection = replace(endpoint.connection, token=None, certificate=certificate)
    monkeypatch.setattr(workload_reader, "connect_workload", lambda *_, **__: client)
    console = Console(FakeCluster(), now=now or datetime.now(UTC))
    [(_, result)] = for_each_workload(
        console.session(), [CLUSTER], lambda reached, _: list_workload(reached, NODES)
    )
    parts = {
        "expiry": f"{certificate.not_after():%Y-%m-%d}",
        "command": "kubectl attestation kubeconfig team-a/c1",
        "path": "/api/v1/nodes",
    }
    assert str(result) == reason.format(**parts)


def test_refusal_of_a_workload_cluster_is_one_line_without_json_that_names_the_cluster() -> None:
    """`kubeconfig` and `entry-credential` did not say which API server refused the request."""
    client = workload((403, {"kind": "Status", "message": "secrets is forbidden"}))
    with pytest.raises(ServerUnavailable) as raised, workload_reader.reading_workload(CLUSTER):
        client.get("/api/v1/x")
    assert raised.value.message == (
        "the workload cluster team-a/c1 cannot be read: the API server answered with status 403"
        " (GET /api/v1/x: secrets is forbidden)"
    )


def test_deeply_nested_error_of_an_api_server_is_shown_as_text() -> None:
    detail = "GET /x: " + "[" * 100_000 + "]" * 100_000
    error = ApiServerUnavailable("the API server answered", detail=detail)
    error.status = 500
    assert workload_reader._describe(error) == "the API server answered (GET /x)"
