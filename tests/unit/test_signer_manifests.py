"""The rendered manifests have the CRDs and permissions of today.

tests/packaging/signer compares every byte, with Helm. This comparison needs no Helm.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import common.errors
import signer.errors
from common.errors import AttestationError

PACKAGING = Path(__file__).parents[2] / "packaging/signer"
RENDERED = ("install.yaml", "addon-components.yaml")


def objects(path: Path, kind: str) -> dict[str, Any]:
    """Return the objects of a kind in a file by their names."""
    documents = yaml.load_all(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    return {each["metadata"]["name"]: each for each in documents if each and each["kind"] == kind}


@pytest.mark.parametrize("name", RENDERED)
def test_manifests_have_the_present_crds(name: str) -> None:
    """Run `make manifests` after a change."""
    kind = "CustomResourceDefinition"
    rendered = objects(PACKAGING / "manifests" / name, kind)
    specs = {crd: each["spec"] for crd, each in rendered.items()}
    files = sorted((PACKAGING / "crds").glob("*.yaml"))
    assert specs == {
        crd: each["spec"] for file in files for crd, each in objects(file, kind).items()
    }


@pytest.mark.parametrize("kind", ["ClusterRole", "Role"])
def test_manifests_have_the_present_permissions(kind: str) -> None:
    """Run `make manifests` after a change."""
    rendered = objects(PACKAGING / "manifests/install.yaml", kind)
    source = objects(PACKAGING / "management-rbac.yaml", kind)
    assert {name: role["rules"] for name, role in rendered.items()} == {
        name: role["rules"] for name, role in source.items()
    }


def test_insecure_signer_is_in_no_manifest_but_its_own() -> None:
    files = [*(PACKAGING / "chart").rglob("*.*"), *(PACKAGING / "manifests").glob("*.yaml")]
    assert len(files) > len(RENDERED)
    named = [file for file in files if "insecure-signer" in file.read_text(encoding="utf-8")]
    assert named == []


def test_insecure_signer_reads_the_secrets_of_one_cluster_only() -> None:
    roles = objects(PACKAGING / "insecure-signer.yaml", "Role")
    [rules] = [role["rules"] for role in roles.values()]
    secrets = [rule for rule in rules if "secrets" in rule["resources"]]
    assert [rule["resourceNames"] for rule in secrets] == [["dev-ca", "dev-kubeconfig"]]


def test_alert_names_every_reason_that_raises_an_alarm() -> None:
    """The list lacked RequesterCredentialUnknown: only `make test-chart` compared it."""
    file = PACKAGING / "chart/files/alerts.yaml"
    alerts = yaml.safe_load(file.read_text(encoding="utf-8"))["groups"][0]["rules"]
    [expression] = [a["expr"] for a in alerts if a.get("alert") == "NodeAttestationSignerAlarm"]
    match = re.search(r'reason=~"([^"]+)"', expression)
    assert match is not None
    leaves = [
        leaf
        for module in (common.errors, signer.errors)
        for leaf in vars(module).values()
        if isinstance(leaf, type) and issubclass(leaf, AttestationError) and leaf.alarm
    ]
    assert set(match[1].split("|")) == {leaf.reason for leaf in leaves}
