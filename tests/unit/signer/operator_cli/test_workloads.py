"""Answers of a tenant's API server: none crashes a command or adds an object of another kind."""

import argparse
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from common.errors import ApiServerUnavailable
from signer.inventory.cluster import read_cluster
from signer.kube.client import ApiClient
from signer.kube.kubeconfig import Connection
from signer.operator_cli import workloads
from signer.operator_cli.commands import explain
from signer.operator_cli.errors import ServerUnavailable
from signer.operator_cli.findings import Result
from signer.operator_cli.management import ManagementApi
from signer.operator_cli.rbac import find_administrators, find_holders
from signer.operator_cli.session import Session
from signer.operator_cli.workload_checks import read_workload_findings
from signer.operator_cli.workloads import Unreachable, for_each_workload, list_workload
from tests.fakes.api_server import Answering, Handler, api_server

CLUSTER = read_cluster(
    json.dumps({"metadata": {"name": "c1", "namespace": "team-a", "uid": "u"}, "spec": {}}).encode()
)


@contextmanager
def workload(handler: Handler, directory: Path) -> Iterator[ApiClient]:
    """Connect to an API server that answers each request with `handler`."""
    with api_server(handler, directory) as server:
        ca = server.authority.pair.certificate.decode()
        connection = Connection(server=server.url, ca=ca, token="t")
        client = ApiClient("team-a/c1", connection, user_agent="test")
        yield client
        client.close()


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
def test_unreadable_list_is_an_error_of_that_cluster(tmp_path: Path, answer: object) -> None:
    with (
        workload(lambda request: request.give(answer), tmp_path) as client,
        pytest.raises(ApiServerUnavailable),
    ):
        list_workload(client, "/api/v1/nodes")


def test_list_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "_MAX_OBJECTS", 10)
    page = {"metadata": {"continue": "more"}, "items": [{"metadata": {"name": "n"}}] * 4}
    with (
        workload(lambda request: request.give(page), tmp_path) as client,
        pytest.raises(ApiServerUnavailable, match="more than 10 objects"),
    ):
        list_workload(client, "/api/v1/nodes")


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


def test_answers_of_other_types_are_findings_and_no_crash(tmp_path: Path) -> None:
    def answer(request: Answering) -> None:
        if request.command == "POST":
            request.give({"status": {"allowed": True}}, 201)
        else:
            odd = {"metadata": {"name": "x"}, "roleRef": 1, "rules": {}, "subjects": "all"}
            request.give({"items": [odd]})

    with workload(answer, tmp_path) as client:
        findings = read_workload_findings(client, CLUSTER)
    assert {finding.result for finding in findings} == {Result.OK}


def test_review_of_another_type_is_an_error_of_that_cluster(tmp_path: Path) -> None:
    with (
        workload(
            lambda request: request.give({"status": {"allowed": "yes"}}, 201), tmp_path
        ) as api,
        pytest.raises(ApiServerUnavailable),
    ):
        read_workload_findings(api, CLUSTER)


def test_service_of_a_workload_cluster_adds_no_management_object(tmp_path: Path) -> None:
    """A tenant could else show an operator a registration that does not exist."""
    forged = {
        "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
        "kind": "EndorsementKey",
        "metadata": {"name": "ab" * 32},
    }

    def answer(request: Answering) -> None:
        listed = {"items": [forged]}
        request.give(forged if request.path.endswith("/services/kubernetes") else listed)

    with workload(answer, tmp_path) as client:
        kinds = [body["kind"] for body in explain._workload_bodies(client)]
    assert kinds == ["Node", "ClusterRoleBinding", "Service"]


def test_failure_of_one_cluster_is_that_clusters_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_api: ManagementApi, _cluster: object) -> ApiClient:
        raise ApiServerUnavailable("no answer", detail="timeout")

    monkeypatch.setattr(workloads, "connect_workload", refuse)
    session = Session(
        arguments=argparse.Namespace(),
        connect=lambda: None,  # type: ignore[arg-type, return-value] # nothing reads it
        now=datetime.now(UTC),
        stdin=io.StringIO(),
        stdout=io.StringIO(),
        stderr=io.StringIO(),
    )
    results = for_each_workload(session, [CLUSTER, CLUSTER], lambda _client, _cluster: 1)
    assert results == [Unreachable("no answer (timeout)")] * 2


def test_error_of_a_workload_cluster_names_the_cluster() -> None:
    """`kubeconfig` and `entry-credential` did not say which API server refused the request."""
    with (
        pytest.raises(ServerUnavailable, match="the workload cluster team-a/c1 cannot be read: no"),
        workloads.reading_workload(CLUSTER),
    ):
        raise ApiServerUnavailable("no answer")
