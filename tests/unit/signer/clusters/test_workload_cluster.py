"""Writes to a workload cluster."""

import json
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from common.errors import ApiServerUnavailable
from signer.clusters.workload_cluster import WorkloadCluster
from signer.fairness.compute_line import ComputeLine
from signer.fairness.memory_budget import Budgets
from signer.kube.transport.client import Response
from signer.kube.watches import cache
from signer.kube.watches.watch_threads import Watch
from tests.builders.kube_objects import HOME
from tests.builders.workload import unconnected_workload
from tests.fakes.api_server import Answering, Request, api_server

ROLES = "system:certificates.k8s.io:certificatesigningrequests:"


def removal(stored: Mapping[str, Any] | None, directory: Path) -> list[Request]:
    """Remove the binding `any`, of which the API server has this; return the deletions."""

    def handler(answering: Answering) -> None:
        assert answering.path == "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/any"
        answering.give(stored or {}, 200 if stored else 404)

    with api_server(handler, directory) as server:
        line = ComputeLine(1)
        workload = WorkloadCluster(
            HOME, "uid", server.connection(), user_agent="test", budgets=Budgets(), line=line
        )
        workload.remove_binding("any")
        workload.stop()
        return [request for request in server.requests if request.method == "DELETE"]


def binding(role: str) -> dict[str, Any]:
    """Return the binding as the API server has it."""
    return {"metadata": {"name": "any", "uid": "uid-7"}, "roleRef": {"name": role}}


def test_auto_approving_binding_is_deleted_under_its_uid(tmp_path: Path) -> None:
    [deletion] = removal(binding(ROLES + "nodeclient"), tmp_path)
    assert deletion.body["preconditions"] == {"uid": "uid-7"}


@pytest.mark.parametrize("stored", [None, binding("view")], ids=["deleted", "another role"])
def test_binding_that_does_not_approve_any_more_is_not_deleted(
    stored: Mapping[str, Any] | None, tmp_path: Path
) -> None:
    """The cache may be older than a new binding of the same name."""
    assert removal(stored, tmp_path) == []


@pytest.mark.parametrize(
    ("failures", "unreachable"),
    [
        ((None, None, None), False),
        ((None, None, 0), False),
        ((0, 0, None), False),
        ((0, 500, 0), False),
        ((0, 0, 0), True),
    ],
)
def test_cluster_is_unreachable_only_if_no_watch_works(
    failures: tuple[int | None, ...], *, unreachable: bool
) -> None:
    """A node whose own CSR made their list fail kept its Cluster from maintenance, and its ban."""
    workload = unconnected_workload()
    for status in failures:
        error = None if status is None else ApiServerUnavailable("failed")
        if error is not None and status is not None:
            error.status = status
        reflector = SimpleNamespace(failure=error, plural="things")
        workload._watches.append(Watch(cast("Any", reflector), cast("Any", None)))
    assert workload.is_unreachable is unreachable


def test_addresses_that_cannot_be_read_any_more_are_outdated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are read, not watched: certificates could name an address that the API server got."""
    workload = unconnected_workload()
    monkeypatch.setattr(cache, "MAX_FAILING_SECONDS", -1.0)
    service = {"spec": {"clusterIPs": ["10.96.0.1"]}}
    answers = iter([service, ApiServerUnavailable("away"), service])

    def get(_: str) -> Response:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return Response(status=200, content=json.dumps(answer).encode())

    monkeypatch.setattr(workload._api, "get", get)
    workload.read_hosts()
    assert ip_address("10.96.0.1") in workload.control_plane()
    with pytest.raises(ApiServerUnavailable, match="away"):
        workload.read_hosts()
    with pytest.raises(ApiServerUnavailable, match="addresses could not be read"):
        workload.control_plane()
    workload.read_hosts()
    assert ip_address("10.96.0.1") in workload.control_plane()
