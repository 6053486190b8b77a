"""`policy check` names the problem of each policy."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from signer.operator_cli.commands import policy_check
from signer.operator_cli.session import Session
from tests.builders.operator_clusters import CLUSTER
from tests.fakes.cluster import FakeCluster
from tests.fakes.management_api import Console

UNUSED = "is for no opted-in Cluster: check its selector and the opt-in"
CONFLICT = "other policies are also for team-a/c1: change all but one"
WARNING = (
    "warning: with these policies, Cluster team-a/c1 gets no certificate: PolicyConflict: several"
    " policies select this Cluster: policy-1, policy-2\n"
)
C1 = {"clusterRef": {"namespace": "team-a", "name": "c1"}}
TEAM_A = {"clusterSelector": {"namespaces": ["team-a"]}}


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
    """Policies in conflict were reported as policies for no Cluster.

    And a Cluster was said to get no certificate, while the signer served it with other policies.
    """
    opted = SimpleNamespace(opted_in=lambda: [CLUSTER])
    monkeypatch.setattr(Session, "snapshot", lambda _: opted)
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
    console = Console(FakeCluster(), {"file": file, "offline": False, "output": "json"})
    status = policy_check.run(console.session())
    items = json.loads(console.output)["items"]
    assert [item["problem"] for item in items] == problems
    assert console.complaint == warning
    assert status == any(problems)
