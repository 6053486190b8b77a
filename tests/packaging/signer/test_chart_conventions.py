"""The chart is what users of other charts expect: documented, included by others, extended."""

import shutil
from pathlib import Path

import pytest
import yaml

from builders.readme import README, UndescribedValue, build_readme, read_values
from tests.harness.client import Object
from tests.packaging.signer.helm import CHART, NAMESPACE, RELEASE
from tests.packaging.signer.rendered import container, only, render

SECURE: Object = {
    "metrics": {"secure": True},
    "networkPolicy": {"enabled": False},
    "serviceMonitor": {
        "enabled": True,
        "authorization": {"credentials": {"name": "prometheus", "key": "token"}},
    },
}


def test_readme_is_written_from_the_values() -> None:
    """Run `make manifests` after a change of the values."""
    assert README.read_text(encoding="utf-8") == build_readme()


def test_values_are_described_by_the_comments_of_helm_docs() -> None:
    text = (
        "# -- First\n# line\na: 1\n\n"
        "b:\n  # other\n  # -- Second\n  c: [x]\n"
        "# -- Third\nd: {e: 2}\n"
    )
    assert [(row.key, row.default, row.description) for row in read_values(text)] == [
        ("a", 1, "First line"),
        ("b.c", ["x"], "Second"),
        ("d", {"e": 2}, "Third"),
    ]
    with pytest.raises(UndescribedValue, match=r"b\.c must have a comment"):
        read_values("b:\n  # other\n  c: 1\n")


def test_artifact_hub_shows_every_crd() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    annotations = {
        name.removeprefix("artifacthub.io/"): yaml.safe_load(value)
        for name, value in about["annotations"].items()
    }
    files = (CHART.parent / "crds").glob("*.yaml")
    crds = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in files]
    assert {(crd["name"], crd["kind"], crd["version"]) for crd in annotations["crds"]} == {
        (crd["metadata"]["name"], crd["spec"]["names"]["kind"], crd["spec"]["versions"][0]["name"])
        for crd in crds
    }
    assert {each["kind"] for each in annotations["crdsExamples"]} <= {
        crd["kind"] for crd in annotations["crds"]
    }
    assert annotations["prerelease"] == ("-" in about["version"])


@pytest.mark.parametrize("version", ["helm3", "helm4"])
def test_chart_of_charts_switches_it_on_and_off(version: str, tmp_path: Path) -> None:
    parent = tmp_path / "platform"
    shutil.copytree(CHART, parent / "charts/signer")
    about = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    dependency = {
        "name": about["name"],
        "version": about["version"],
        "condition": f"{about['name']}.enabled",
    }
    chart = {"apiVersion": "v2", "name": "platform", "version": "1.0.0"}
    text = yaml.safe_dump({**chart, "dependencies": [dependency]})
    (parent / "Chart.yaml").write_text(text, encoding="utf-8")

    def kinds(values: Object) -> set[str]:
        given = {"global": {"region": "north"}, about["name"]: values}
        return {o["kind"] for o in render(given, tmp_path, version=version, chart=parent)}

    assert "Deployment" in kinds({"enabled": True, "replicas": 1})
    assert kinds({"enabled": False}) == set()


def test_pod_is_extended_by_values(tmp_path: Path) -> None:
    extra: Object = {
        "extraArgs": ["--log-level=debug"],
        "extraEnv": [{"name": "TRACE", "value": "1"}],
        "extraVolumes": [{"name": "scratch", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
        "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["c1.example"]}],
        "dnsConfig": {"searches": ["example"]},
        "updateStrategy": {"type": "Recreate", "rollingUpdate": None},
        "deploymentAnnotations": {"example.com/a": "b"},
    }
    rendered = render(extra, tmp_path)
    deployment, manager = only(rendered, "Deployment"), container(rendered)
    pod = deployment["spec"]["template"]["spec"]
    assert manager["args"][-1:] == extra["extraArgs"]
    assert manager["env"][-1:] == extra["extraEnv"]
    assert manager["volumeMounts"] == extra["extraVolumeMounts"]
    assert pod["volumes"] == extra["extraVolumes"]
    assert (pod["hostAliases"], pod["dnsConfig"]) == (extra["hostAliases"], extra["dnsConfig"])
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    assert deployment["metadata"]["annotations"] == extra["deploymentAnnotations"]


def test_service_for_scrapers_without_the_prometheus_operator(tmp_path: Path) -> None:
    annotations = {"prometheus.io/scrape": "true"}
    values: Object = {
        "metrics": {"service": {"enabled": True, "annotations": annotations}},
        "networkPolicy": {"metricsFrom": [{"podSelector": {}}]},
    }
    rendered = render(values, tmp_path)
    service = only(rendered, "Service", f"{RELEASE}-metrics")
    assert service["metadata"]["annotations"] == annotations
    assert "ServiceMonitor" not in {o["kind"] for o in rendered}


def test_prometheus_authenticates_with_the_secret_that_is_named(tmp_path: Path) -> None:
    """The field `bearerTokenFile` would let this object read files of Prometheus' pod."""
    rendered = render(SECURE, tmp_path)
    [endpoint] = only(rendered, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["authorization"] == SECURE["serviceMonitor"]["authorization"]
    assert "bearerTokenFile" not in endpoint
    [rule] = only(rendered, "ClusterRole", f"{RELEASE}-metrics-reader")["rules"]
    assert rule == {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}


def test_roles_of_users_are_aggregated_and_bound_to_nobody(tmp_path: Path) -> None:
    def aggregated(values: Object) -> dict[str, list[str]]:
        prefix = "rbac.authorization.k8s.io/aggregate-to-"
        return {
            o["metadata"]["name"].removeprefix(f"{RELEASE}-"): [
                name.removeprefix(prefix)
                for name in o["metadata"]["labels"]
                if name.startswith(prefix)
            ]
            for o in render(values, tmp_path)
            if o["kind"] == "ClusterRole" and o["metadata"]["name"] != RELEASE
        }

    users = {"reader": ["view"], "registrar": ["edit"], "approver": [], "tenant-approver": []}
    assert aggregated({}) == users
    assert aggregated({"rbac": {"aggregateClusterRoles": False}}) == {role: [] for role in users}
    assert aggregated({"rbac": {"create": False}}) == {}
    account = {"kind": "ServiceAccount", "name": RELEASE, "namespace": NAMESPACE}
    for each in render({}, tmp_path):
        assert each.get("subjects", [account]) == [account]
