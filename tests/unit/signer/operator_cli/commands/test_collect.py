"""`collect` reads Pods of the signer; tests/integration/test_collect.py has the other objects."""

import json
import tarfile
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from signer.kube.transport.client import Request
from signer.operator_cli.commands import collect
from signer.operator_cli.errors import InputInvalid, ServerUnavailable
from signer.operator_cli.management.api import ManagementApi
from signer.operator_cli.session import Session
from tests.builders.operator_snapshot import snapshot
from tests.fakes.cluster import FakeCluster
from tests.fakes.management_api import Console

NAMESPACE = "node-attestation-system"
POD = {
    "metadata": {
        "name": "signer-1",
        "labels": {"app.kubernetes.io/name": "node-attestation-signer"},
        "annotations": {"secret": "marker"},
    },
    "spec": {
        "containers": [
            {
                "args": ["--metrics-secure", "--token=marker"],
                "env": [{"name": "A", "value": "marker"}],
                "ports": [{"name": "metrics", "containerPort": 8443}],
            }
        ]
    },
    "status": {"phase": "Running"},
}
LINE = {"event": "verdict", "reason": "PcrPolicyMismatch", "message": "marker"}
METRICS = """\
# HELP node_attestation_verdicts_total Verdicts
node_attestation_verdicts_total{cluster="team-a/c1",reason="PcrPolicyMismatch"} 3.0
node_attestation_trust_anchor_not_after_seconds{policy="p",subject="CN=marker"} 1.8e+09
other_secret{a="marker"} 2
node_attestation_ready{cluster="\\"} 1"} NaN
"""


def report(management: FakeCluster, path: Path) -> tuple[int, dict[str, Any], str]:
    """Return exit status, files and complaint of the command."""
    arguments = {
        "file": path,
        "namespace": "",
        "cluster": None,
        "signer_namespace": NAMESPACE,
    }
    console = Console(management, arguments)
    status = collect.run(console.session())
    with tarfile.open(path) as archive:
        read = {m.name.partition("/")[2]: archive.extractfile(m) for m in archive}
        files = {name: file.read().decode() for name, file in read.items() if file is not None}
    return status, files, console.complaint


@pytest.fixture
def management(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Return a management cluster with a Pod, and without Clusters."""
    monkeypatch.setattr(Session, "snapshot", lambda _: replace(snapshot(), clusters=[]))
    cluster = FakeCluster()
    cluster.intercept((200, {"gitVersion": "v1.37.1", "gitCommit": "marker"}), "GET", "/version")
    cluster.put(f"/api/v1/namespaces/{NAMESPACE}/pods", POD)
    return cluster


def test_log_and_metrics_of_each_pod_are_read(management: FakeCluster, tmp_path: Path) -> None:
    def metrics(request: Request) -> tuple[int, bytes]:
        assert request.path.endswith("/pods/https%3Asigner-1%3A8443/proxy/metrics")
        return 200, METRICS.encode()

    log = "\n".join((json.dumps(LINE), json.dumps({"event": f"key {'5f' * 32}"}), "marker: trace"))
    management.intercept((200, log.encode()), "GET", "/log")
    management.intercept(metrics, "GET", "/proxy")
    status, files, complaint = report(management, tmp_path / "report.tar.gz")
    assert (status, complaint) == (0, "")
    assert "marker" not in str(files)
    assert json.loads(files["versions.json"])[0]["server"] == "v1.37.1"
    assert json.loads(files["pods.json"])[0]["status"] == {"phase": "Running"}
    listed = {"event": "verdict", "reason": "PcrPolicyMismatch"}
    assert json.loads(files["pods/signer-1/log.json"]) == [listed, {}, {}]
    assert json.loads(files["pods/signer-1/metrics.json"]) == [
        {
            "name": "node_attestation_verdicts_total",
            "labels": {"cluster": "team-a/c1", "reason": "PcrPolicyMismatch"},
            "value": 3.0,
        },
        {
            "name": "node_attestation_trust_anchor_not_after_seconds",
            "labels": {"policy": "p"},
            "value": 1.8e9,
        },
        {"labels": {}, "value": 2.0},
    ]


def test_what_cannot_be_read_is_named_and_its_reason_is_not_in_the_archive(
    management: FakeCluster, tmp_path: Path
) -> None:
    management.intercept((403, {"message": "marker may not"}), "GET", "signer-1", times=inf)
    status, files, complaint = report(management, tmp_path / "report.tar.gz")
    assert status == 3
    assert "pods/signer-1/log.json is missing: permission is missing" in complaint
    assert "pods/signer-1/log.json  missing: log lines cannot be read\n" in files["MANIFEST"]
    assert "marker" not in str(files)


def test_existing_file_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    """It was refused at the end, after minutes in a large installation."""
    path, management = tmp_path / "report.tar.gz", FakeCluster()
    path.touch()
    console = Console(management, {"file": path})
    with pytest.raises(InputInvalid, match="the archive must be a new file"):
        collect.run(console.session())
    assert management.requests == []


def test_missing_connection_is_the_only_message(tmp_path: Path) -> None:
    """A warning said before that `versions.json` is missing."""
    console = Console(FakeCluster(), {"file": tmp_path / "report.tar.gz"})
    session = console.session()

    def refuse() -> ManagementApi:
        raise ServerUnavailable("no connection")

    session.connect = refuse
    with pytest.raises(ServerUnavailable, match="no connection"):
        collect.run(session)
    assert console.complaint == ""
