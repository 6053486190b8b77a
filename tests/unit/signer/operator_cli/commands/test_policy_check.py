"""`policy check` names the problem of each policy."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from signer.kinds.policy import POLICIES
from signer.operator_cli.commands import policy_check
from signer.operator_cli.errors import InputInvalid
from signer.operator_cli.session import Session
from tests.builders.operator_clusters import CLUSTER
from tests.fakes.cluster import FakeCluster
from tests.fakes.management_api import Console

UNUSED = "is for no opted-in Cluster: check its selector and the opt-in"
CONFLICT = "other policies are also for team-a/c1: change all but one"
WARNING = (
    "warning: with these policies, Cluster team-a/c1 gets no certificate: PolicyConflict: several"
    " policies select this Cluster: b, c\n"
)
C1 = {"clusterRef": {"namespace": "team-a", "name": "c1"}}
C11 = {"clusterRef": {"namespace": "team-a", "name": "c11"}}
TEAM_A = {"clusterSelector": {"namespaces": ["team-a"]}}


Specs = dict[str, dict[str, Any]]
"""The `spec` of policies by their names."""


@pytest.fixture(autouse=True)
def one_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    opted = SimpleNamespace(opted_in=lambda: [CLUSTER])
    monkeypatch.setattr(Session, "snapshot", lambda _: opted)


def check(
    file: Path, given: Specs, stored: Specs, *, offline: bool = False
) -> tuple[int, dict[str, str | None], str]:
    """Return exit status, the problem of each policy, and the warning."""
    documents = [POLICIES.manifest(metadata={"name": n}, spec=given[n]) for n in given]
    file.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
    management = FakeCluster()
    for name, spec in stored.items():
        metadata = {"name": name, "generation": 1}
        management.put(POLICIES.collection_path(), {"metadata": metadata, "spec": spec})
    console = Console(management, {"file": file, "offline": offline, "output": "json"})
    status = policy_check.run(console.session())
    problems = {item["policy"]: item["problem"] for item in json.loads(console.output)["items"]}
    return status, problems, console.complaint


@pytest.mark.parametrize(
    ("given", "problems", "warning"),
    [
        ({"a": {}, "b": C1}, {}, ""),
        ({"a": {}, "b": C1, "c": TEAM_A}, {"b": CONFLICT, "c": CONFLICT}, WARNING),
        ({"a": {}, "b": C11}, {"b": UNUSED}, ""),
    ],
    ids=["exact", "two selectors", "typing error"],
)
def test_problem_of_a_policy_is_named(
    tmp_path: Path, given: Specs, problems: dict[str, str], warning: str
) -> None:
    """Policies in conflict were reported as policies for no Cluster.

    And a Cluster was said to get no certificate, while the signer served it with other policies.
    """
    found = check(tmp_path / "file.yaml", given, {})
    assert found == (bool(problems), dict.fromkeys(given) | problems, warning)


@pytest.mark.parametrize(
    ("given", "stored", "problems", "warning"),
    [
        ({"other": C11}, {"all": {}}, {"other": UNUSED, "all": None}, ""),
        ({"c": TEAM_A}, {"a": {}, "b": C1}, {"c": CONFLICT, "a": None, "b": CONFLICT}, WARNING),
        ({"b": TEAM_A}, {"a": {}, "b": C1}, {"b": None, "a": None}, ""),
        ({"b": C1}, {"a": {"x": 1}}, {"b": None, "a": "is invalid: spec.x: unknown key"}, ""),
    ],
    ids=["another policy serves it", "conflict", "same name", "an object is invalid"],
)
def test_file_is_laid_over_the_policies_in_force(
    tmp_path: Path,
    given: Specs,
    stored: Specs,
    problems: dict[str, str | None],
    warning: str,
) -> None:
    """A Cluster of another policy was PolicyMissing, and a conflict that stops it was not seen."""
    found = check(tmp_path / "file.yaml", given, stored)
    assert found == (any(problems.values()), problems, warning)


def test_offline_the_file_is_compared_with_nothing(tmp_path: Path) -> None:
    found = check(tmp_path / "file.yaml", {"c": TEAM_A}, {"b": C1}, offline=True)
    assert found == (0, {"c": None}, "")


@pytest.mark.parametrize("content", [b"", b"\xff", b"{}", b"spec: {"])
def test_file_without_a_valid_policy_is_refused(tmp_path: Path, content: bytes) -> None:
    """Broken configuration must not fall back to approving defaults."""
    file = tmp_path / "file.yaml"
    file.write_bytes(content)
    console = Console(FakeCluster(), {"file": file, "offline": True, "output": "json"})
    with pytest.raises(InputInvalid, match=f"^{file}: "):
        policy_check.run(console.session())
