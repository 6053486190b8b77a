"""`--now` reports that certificates have ended only when the credential list shows it."""

import io
import json
import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import pytest

from signer.inventory.cluster import ClusterObject, read_cluster
from signer.kube.client import ApiClient, Response
from signer.model import credential_id
from signer.operator_cli import ended_credentials
from signer.operator_cli.ended_credentials import _await_in_cluster, await_end_of_credentials
from signer.operator_cli.errors import EXIT_OK, EXIT_UNDECIDED
from signer.operator_cli.session import Session
from signer.operator_cli.workloads import Unreachable
from tests.builders.scenario import HOME, NODE, Scenario

A, B = credential_id(b"a"), credential_id(b"b")
CLUSTER = read_cluster(
    json.dumps(
        {"metadata": {"name": HOME.name, "namespace": HOME.namespace, "uid": "u"}, "spec": {}}
    ).encode()
)


@dataclass
class Workload:
    """A workload cluster; each read of the list returns the next entry of the node."""

    entries: list[str | None] = field(default_factory=list)
    binding: int = 200
    has_config_map: bool = True

    def get(self, path: str, *, accepted: tuple[int, ...]) -> Response:
        if path.startswith("/apis/admissionregistration"):
            assert self.binding in accepted
            return Response(status=self.binding, content=b"{}")
        if not self.has_config_map:
            return Response(status=404, content=b"{}")
        entry = self.entries.pop(0)
        body = {
            "metadata": {"resourceVersion": "1"},
            "data": {} if entry is None else {NODE: entry},
        }
        return Response(status=200, content=json.dumps(body).encode())


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each poll take a second of a clock that only polls move."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))


def problem(workload: Workload) -> str:
    """Return why the certificates of the node do not end."""
    _, node = Scenario().put_claim(credential_ids=(A, B), banned=True)
    return _await_in_cluster([node], cast("ApiClient", workload), CLUSTER)


@pytest.mark.parametrize("entry", ["", credential_id(b"of another TPM")])
def test_node_without_its_certificates_in_the_list_cannot_write(entry: str) -> None:
    workload = Workload([None, f"{A} {B}", B, entry])
    assert problem(workload) == ""
    assert workload.entries == []


@pytest.mark.parametrize("entry", [None, A])
def test_node_that_may_still_write_is_a_problem(entry: str | None) -> None:
    """A node without an entry is not restricted."""
    assert "renewals.publishCredentials: true" in problem(Workload([entry] * 90))


@pytest.mark.parametrize(
    ("workload", "missing"),
    [
        (Workload(binding=404), "the admission policy is not installed"),
        (Workload(binding=403), "the admission policy is not installed"),
        (Workload(has_config_map=False), "the ConfigMap of the admission policy does not exist"),
    ],
    ids=["no binding", "forbidden binding", "no ConfigMap"],
)
def test_what_is_not_installed_is_named(workload: Workload, missing: str) -> None:
    assert missing in problem(workload)


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
        ended_credentials, "for_each_workload", lambda _, found, __: [problem for _ in found]
    )
    warnings: list[str] = []
    output = io.StringIO()
    session = SimpleNamespace(
        snapshot=lambda: SimpleNamespace(clusters=clusters, nodes_by_key={key.name: [node]}),
        stdout=output,
        warn=warnings.append,
    )
    assert await_end_of_credentials(cast("Session", session), key.name) == status
    assert bool(warnings) is (status != EXIT_OK)
    assert ("can no longer write" in output.getvalue()) is (status == EXIT_OK)
