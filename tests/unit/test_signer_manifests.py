"""The rendered manifests have the CRDs and permissions of today.

tests/packaging/signer compares every byte, with Helm. This comparison needs no Helm.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import common.errors
import signer.errors
from common.errors import AttestationError

PACKAGING = Path(__file__).parents[2] / "packaging/signer"
RUNBOOKS = Path(__file__).parents[2] / "docs/runbooks"
RENDERED = ("install.yaml", "addon-components.yaml")


def objects(path: Path, kind: str) -> dict[str, Any]:
    """Return the objects of a kind in a file by their names."""
    documents = yaml.load_all(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    return {each["metadata"]["name"]: each for each in documents if each and each["kind"] == kind}


@pytest.mark.parametrize("name", ["crds.yaml", "addon-components.yaml"])
def test_manifests_have_the_present_crds(name: str) -> None:
    """Run `make manifests` after a change."""
    kind = "CustomResourceDefinition"
    rendered = objects(PACKAGING / "manifests" / name, kind)
    specs = {crd: each["spec"] for crd, each in rendered.items()}
    files = sorted((PACKAGING / "crds").glob("*.yaml"))
    assert specs == {
        crd: each["spec"] for file in files for crd, each in objects(file, kind).items()
    }


def test_crds_and_the_installation_are_deleted_separately() -> None:
    """`kubectl delete -f install.yaml` deleted the CRDs, and all claims with them."""
    kinds = {
        name: {each["kind"] for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each}
        for name in ("crds.yaml", "install.yaml")
        for text in [(PACKAGING / "manifests" / name).read_text(encoding="utf-8")]
    }
    assert kinds["crds.yaml"] == {"CustomResourceDefinition"}
    assert "CustomResourceDefinition" not in kinds["install.yaml"]


@pytest.mark.parametrize("kind", ["ClusterRole", "Role"])
def test_manifests_have_the_present_permissions(kind: str) -> None:
    """Run `make manifests` after a change."""
    rendered = objects(PACKAGING / "manifests/install.yaml", kind)
    source = objects(PACKAGING / "management-rbac.yaml", kind)
    assert {name: rendered[name]["rules"] for name in source} == {
        name: role["rules"] for name, role in source.items()
    }


@pytest.mark.parametrize("name", RENDERED)
def test_manifests_have_the_present_admission_policy(name: str) -> None:
    """Run `make manifests` after a change. clusterctl may name one more user."""
    for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
        rendered = objects(PACKAGING / "manifests" / name, kind)
        source = objects(PACKAGING / "admission-policy.yaml", kind)
        specs = json.dumps({each: body["spec"] for each, body in rendered.items()})
        specs = specs.replace(r",\"${NODE_ATTESTATION_OPERATOR:=kubernetes-admin}\"", "")
        assert json.loads(specs) == {each: body["spec"] for each, body in source.items()}


@pytest.mark.parametrize("name", ["admission-policy.yaml", "crds", "management-rbac.yaml"])
def test_chart_has_the_files_of_the_packaging(name: str) -> None:
    """A link that became a file with the target's name kept Helm from rendering the chart."""
    assert (PACKAGING / "chart/files" / name).resolve() == PACKAGING / name


def test_insecure_signer_is_in_no_manifest_but_its_own() -> None:
    files = [*(PACKAGING / "chart").rglob("*.*"), *(PACKAGING / "manifests").glob("*.yaml")]
    assert len(files) > len(RENDERED)
    named = [file for file in files if "insecure-signer" in file.read_text(encoding="utf-8")]
    assert named == []


def test_insecure_signer_reads_the_secrets_of_one_cluster_only() -> None:
    roles = objects(PACKAGING / "insecure/insecure-signer.yaml", "Role")
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


def alerts() -> list[dict[str, Any]]:
    """Return the alerts of the chart."""
    file = PACKAGING / "chart/files/alerts.yaml"
    rules = yaml.safe_load(file.read_text(encoding="utf-8"))["groups"][0]["rules"]
    return [rule for rule in rules if "alert" in rule]


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_every_alert_has_its_page_in_the_runbooks(alert: dict[str, Any]) -> None:
    """The chart puts the address of the published site in place of the first part."""
    url = alert["annotations"]["runbook_url"]
    name = url.removeprefix("https://node-attestation.example/runbooks/").removesuffix(".html")
    text = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")
    severity = alert["labels"]["severity"]
    assert f"\n\nAlert `{alert['alert']}`, {severity}. " in text
    assert all(part in text for part in ("**Meaning.**", "**Look at**", "**Do**"))


def test_every_runbook_is_of_one_alert_and_in_the_navigation() -> None:
    pages = {page.name for page in RUNBOOKS.glob("*.md")}
    urls = [alert["annotations"]["runbook_url"] for alert in alerts()]
    assert sorted(url.rpartition("/")[2].replace(".html", ".md") for url in urls) == sorted(pages)
    navigation = (RUNBOOKS.parents[1] / "mkdocs.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"- runbooks/([\w-]+\.md)$", navigation, re.MULTILINE)) == pages
