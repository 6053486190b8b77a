"""Writes to a workload cluster."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from signer.clusters.workload_cluster import WorkloadCluster
from signer.fairness.compute_line import ComputeLine
from signer.fairness.memory_budget import Budgets
from tests.builders.kube_objects import HOME
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
