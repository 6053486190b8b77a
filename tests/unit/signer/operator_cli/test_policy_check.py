"""`policy check` names the problem of each policy."""

import io
import json
from argparse import Namespace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from signer.inventory.cluster import ClusterObject, read_cluster
from signer.operator_cli.commands import policy_check
from signer.operator_cli.management import ManagementApi
from signer.operator_cli.session import Session
from signer.operator_cli.snapshot import Snapshot

UNUSED = "is for no opted-in Cluster: check its selector and the opt-in"
CONFLICT = "other policies are also for team-a/c1: change all but one"
WARNING = (
    "warning: Cluster team-a/c1 gets no certificate: PolicyConflict: several policies select this"
    " Cluster: policy-1, policy-2\n"
)
C1 = {"clusterRef": {"namespace": "team-a", "name": "c1"}}
TEAM_A = {"clusterSelector": {"namespaces": ["team-a"]}}


class Opted(Snapshot):
    """Objects of the management cluster, of which only the Clusters are read."""

    def __init__(self) -> None:
        """Leave out all other objects."""

    def opted_in(self) -> list[ClusterObject]:
        metadata = {"name": "c1", "namespace": "team-a", "uid": "u"}
        return [read_cluster(json.dumps({"metadata": metadata, "spec": {}}).encode())]


def unconnected() -> ManagementApi:
    """Fail: the policies are in a file."""
    raise AssertionError


@pytest.mark.parametrize(
    ("specs", "problems", "warning"),
    [
        ([{}, C1], [None, None], ""),
        (
            [{}, C1, TEAM_A],
            [None, CONFLICT, CONFLICT],
            WARNING,
        ),
        ([{}, {"clusterRef": {"namespace": "team-a", "name": "c11"}}], [None, UNUSED], ""),
    ],
    ids=["exact", "two selectors", "typing error"],
)
def test_problem_of_a_policy_is_named(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    specs: list[dict[str, Any]],
    problems: list[str | None],
    warning: str,
) -> None:
    """Policies in conflict were reported as policies for no Cluster."""
    monkeypatch.setattr(Session, "snapshot", lambda _: Opted())
    file = tmp_path / "policies.yaml"
    documents = [
        {
            "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
            "kind": "KubeletAttestationPolicy",
            "metadata": {"name": f"policy-{number}"},
            "spec": spec,
        }
        for number, spec in enumerate(specs)
    ]
    file.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
    streams = io.StringIO(), io.StringIO(), io.StringIO()
    arguments = Namespace(file=file, offline=False, output="json")
    status = policy_check.run(Session(arguments, unconnected, datetime.now(UTC), *streams))
    items = json.loads(streams[1].getvalue())["items"]
    assert [item["problem"] for item in items] == problems
    assert streams[2].getvalue() == warning
    assert status == any(problems)
