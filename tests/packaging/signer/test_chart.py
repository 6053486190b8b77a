"""The chart renders equally with Helm 3 and 4, refuses wrong values, and agrees with the code."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from builders import chart
from builders.version import semantic_version
from signer.controller.observability import metrics
from signer.controller.queue.workqueue import QueueState
from signer.fairness.memory_budget import MemoryBudget
from signer.settings.arguments import parse_arguments
from signer.settings.trust_bundles import TrustBundleFiles
from tests.controlplane import pins, provide
from tests.harness.client import Object
from tests.harness.documentation import blocks
from tests.packaging.signer.helm import (
    CHART,
    NAMESPACE,
    RELEASE,
    VERSIONS,
    HelmFailed,
    helm,
    template,
)
from tests.packaging.signer.rendered import container, objects, only, render

CRDS = sorted((CHART.parent / "crds").glob("*.yaml"))
ROLES = {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
USER_ROLES = {f"{RELEASE}-{who}" for who in ("reader", "registrar", "approver", "tenant-approver")}
ADMISSION = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
EVERYTHING = {
    "createNamespace": True,
    "imagePullSecrets": [{"name": "registry"}],
    "trustAnchors": {"vendors": {"configMap": {"name": "tpm-vendors"}}},
    "platformCredentials": {"team-a": {"secret": {"secretName": "aws-team-a"}}},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "system-cluster-critical",
    "podAnnotations": {"example.com/a": "b"},
    "podLabels": {"example.com/c": "d"},
    "networkPolicy": {
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        "egress": [{"ports": [{"port": 6443}]}],
    },
    "serviceAccount": {"annotations": {"example.com/role": "signer"}},
    "metrics": {"secure": True, "service": {"annotations": {"example.com/e": "f"}}},
    "deploymentAnnotations": {"example.com/g": "h"},
    "extraArgs": ["--log-level=debug"],
    "extraEnv": [{"name": "TRACE", "value": "1"}],
    "extraVolumes": [{"name": "scratch", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["c1.example"]}],
    "dnsConfig": {"nameservers": ["192.0.2.53"]},
    "updateStrategy": {"type": "Recreate", "rollingUpdate": None},
    "serviceMonitor": {
        "enabled": True,
        "authorization": {"credentials": {"name": "prometheus", "key": "token"}},
    },
    "prometheusRule": {"enabled": True},
    "dashboard": {"enabled": True, "annotations": {"folder": "Cluster API"}},
    "extraObjects": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "first"}},
        "apiVersion: v1\nkind: Secret\nmetadata: {name: {{ .Release.Name }}-second}",
    ],
}


@pytest.mark.parametrize("version", VERSIONS)
def test_chart_passes_lint(version: str) -> None:
    assert "0 chart(s) failed" in helm(version, "lint", "--strict", CHART)


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_both_versions_of_helm_render_the_same(values: Object, tmp_path: Path) -> None:
    assert render(values, tmp_path, version="helm3") == render(values, tmp_path, version="helm4")


def test_values_of_the_guide_are_rendered(tmp_path: Path) -> None:
    """docs/install-signer.md shows them as a typical file."""
    [values] = [
        yaml.safe_load(block.text)
        for block in blocks()
        if (block.page, block.language) == ("docs/install-signer.md", "yaml")
        and "trustAnchors" in block.text
    ]
    assert {o["kind"] for o in render(values, tmp_path)} >= {"Deployment", "PrometheusRule"}


def test_cluster_trust_bundle_of_the_guide_is_mounted(tmp_path: Path) -> None:
    """docs/tpm-roots.md shows the value, and the path that a policy names."""
    [values] = [
        yaml.safe_load(block.text)
        for block in blocks()
        if (block.page, block.language) == ("docs/tpm-roots.md", "yaml")
        and "trustAnchors" in block.text
    ]
    [deployment] = [o for o in render(values, tmp_path) if o["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    [volume] = [v for v in pod["volumes"] if "projected" in v]
    [mount] = [m for m in pod["containers"][0]["volumeMounts"] if m["name"] == volume["name"]]
    assert volume["projected"] == values["trustAnchors"]["vendors"]["projected"]
    assert mount["mountPath"] == "/etc/node-attestation/trust/vendors"


def test_credentials_of_a_platform_are_mounted(tmp_path: Path) -> None:
    source = {"secret": {"secretName": "aws-team-a"}}
    values = {"platformCredentials": {"team-a": source}}
    [deployment] = [o for o in render(values, tmp_path) if o["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    assert pod["volumes"] == [{"name": "platform-team-a", **source}]
    assert pod["containers"][0]["volumeMounts"] == [
        {
            "name": "platform-team-a",
            "mountPath": "/etc/node-attestation/platforms/team-a",
            "readOnly": True,
        }
    ]


def test_everything_that_is_switched_on_is_rendered(tmp_path: Path) -> None:
    kinds = {o["kind"] for o in render(EVERYTHING, tmp_path)}
    assert kinds == ROLES | {
        "ConfigMap", "CustomResourceDefinition", "Deployment", "Namespace", "NetworkPolicy",
        "PodDisruptionBudget", "PrometheusRule", "Secret", "Service", "ServiceAccount",
        "ServiceMonitor", *ADMISSION,
    }  # fmt: skip


def test_every_crd_is_in_the_chart_and_stays_when_it_is_uninstalled(tmp_path: Path) -> None:
    rendered = {
        o["metadata"]["name"]: o
        for o in render({}, tmp_path)
        if o["kind"] == "CustomResourceDefinition"
    }
    source = {crd["metadata"]["name"]: crd for crd in map(_load, CRDS)}
    assert rendered.keys() == source.keys()
    for name, crd in rendered.items():
        assert crd["spec"] == source[name]["spec"]
        assert source[name]["metadata"]["labels"].items() <= crd["metadata"]["labels"].items()
        assert crd["metadata"]["annotations"] == {
            "helm.sh/resource-policy": "keep",
            "argocd.argoproj.io/sync-options": "Prune=false,Delete=false",
            "kustomize.toolkit.fluxcd.io/prune": "disabled",
        }


def test_permissions_are_those_of_management_rbac(tmp_path: Path) -> None:
    """Only labels are added, and roles without a binding."""
    text = (CHART.parent / "management-rbac.yaml").read_text(encoding="utf-8")
    source = [o for o in objects(text) if o["kind"] in ROLES]
    rendered = [
        o
        for o in render({}, tmp_path)
        if o["kind"] in ROLES and o["metadata"]["name"] not in USER_ROLES
    ]
    for each in rendered:
        del each["metadata"]["labels"]
    assert sorted(rendered, key=str) == sorted(source, key=str)


def test_admission_policy_is_that_of_the_file(tmp_path: Path) -> None:
    """Only labels are added."""
    source = objects((CHART.parent / "admission-policy.yaml").read_text(encoding="utf-8"))
    rendered = [o for o in render({}, tmp_path) if o["kind"] in ADMISSION]
    for each in rendered:
        del each["metadata"]["labels"]
    assert sorted(rendered, key=str) == sorted(source, key=str)


def test_admission_policy_names_the_signer_and_the_operators(tmp_path: Path) -> None:
    values: Object = {
        "fullnameOverride": "signer-of-team-a",
        "watchNamespace": "team-a",
        "admissionPolicy": {"users": ["velero"], "groups": []},
    }
    rendered = render(values, tmp_path)
    policy = only(rendered, "ValidatingAdmissionPolicy", "signer-of-team-a")
    lists = {v["name"]: json.loads(v["expression"]) for v in policy["spec"]["variables"]}
    account = f"system:serviceaccount:{NAMESPACE}:signer-of-team-a"
    assert (lists["users"], lists["groups"]) == ([account, "velero"], [])
    binding = only(rendered, "ValidatingAdmissionPolicyBinding", "signer-of-team-a")["spec"]
    assert binding["policyName"] == "signer-of-team-a"
    # Its Leases are in its own namespace.
    names = {
        "key": "kubernetes.io/metadata.name",
        "operator": "In",
        "values": ["team-a", NAMESPACE],
    }
    assert binding["matchResources"] == {"namespaceSelector": {"matchExpressions": [names]}}
    # EndorsementKeys have no namespace: this policy would refuse the claims of the other signer.
    assert "signer-of-team-a-tenant-approvers" in {o["metadata"]["name"] for o in rendered}
    assert "signer-of-team-a-keys" not in {o["metadata"]["name"] for o in rendered}
    off = render({"admissionPolicy": {"enabled": False}}, tmp_path)
    assert not ADMISSION & {o["kind"] for o in off}


def test_operators_of_the_guide_are_named(tmp_path: Path) -> None:
    """docs/install-signer.md shows the values; the groups are the default."""
    [values] = [
        yaml.safe_load(block.text)
        for block in blocks()
        if (block.page, block.language) == ("docs/install-signer.md", "yaml")
        and block.text.startswith("admissionPolicy")
    ]
    named, default = (
        only(render(chosen, tmp_path), "ValidatingAdmissionPolicy")["spec"]["variables"]
        for chosen in (values, Object())
    )
    assert named[1:] == default[1:]
    assert "velero" in named[0]["expression"]


def test_secrets_of_chosen_namespaces_only(tmp_path: Path) -> None:
    rendered = render({"rbac": {"secretNamespaces": ["team-a", "team-b"]}}, tmp_path)
    cluster_wide = {r for rule in only(rendered, "ClusterRole")["rules"] for r in rule["resources"]}
    assert "secrets" not in cluster_wide
    roles = [o for o in rendered if o["kind"] == "Role" and o["metadata"]["name"] != RELEASE]
    assert {o["metadata"]["namespace"] for o in roles} == {"team-a", "team-b"}
    for role in roles:
        assert role["rules"] == [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]


def test_watched_namespace_limits_flag_and_secrets(tmp_path: Path) -> None:
    rendered = render({"watchNamespace": "team-a"}, tmp_path)
    assert parse_arguments(container(rendered)["args"]).namespace == "team-a"
    role = only(rendered, "Role", f"{RELEASE}-secrets")
    assert role["metadata"]["namespace"] == "team-a"
    # K1 asks about all Clusters.
    everywhere = {
        (resource, verb)
        for rule in only(rendered, "ClusterRole")["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    needed = {("attestednodes", "list"), ("machines", "get"), ("clusters", "get")}
    assert everywhere >= needed | {("attestednodes", "get"), ("machinepools", "list")}


def test_infrastructure_groups_are_flags_and_permissions(tmp_path: Path) -> None:
    groups = ["infrastructure.cluster.x-k8s.io", "infra.example.com"]
    rendered = render({"infrastructureGroups": groups}, tmp_path)
    assert parse_arguments(container(rendered)["args"]).infrastructure_groups == groups
    assert any(rule["apiGroups"] == groups for rule in only(rendered, "ClusterRole")["rules"])


def test_signer_creates_the_first_policy(tmp_path: Path) -> None:
    rendered = render({}, tmp_path)
    arguments = parse_arguments(container(rendered)["args"])
    assert arguments.command == "run"
    assert arguments.create_default_policy
    assert "volumeMounts" not in container(rendered)
    assert "ConfigMap" not in {o["kind"] for o in rendered}


def test_image_by_digest_or_tag(tmp_path: Path) -> None:
    digest = f"sha256:{'a' * 64}"
    image = {"repository": "registry.example/signer", "tag": "v1"}
    assert container(render({"image": image}, tmp_path))["image"] == "registry.example/signer:v1"
    pinned = container(render({"image": {**image, "digest": digest}}, tmp_path))
    assert pinned["image"] == f"registry.example/signer@{digest}"


def test_volume_of_trust_anchors_is_mounted(tmp_path: Path) -> None:
    rendered = render(EVERYTHING, tmp_path)
    mounts = {mount["mountPath"] for mount in container(rendered)["volumeMounts"]}
    assert "/etc/node-attestation/trust/vendors" in mounts
    volumes = only(rendered, "Deployment")["spec"]["template"]["spec"]["volumes"]
    assert {"name": "trust-vendors", "configMap": {"name": "tpm-vendors"}} in volumes


def test_nothing_may_reach_the_metrics_unless_it_is_named(tmp_path: Path) -> None:
    """An ingress rule without peers would allow everything."""
    spec = only(render({}, tmp_path), "NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress"]
    assert spec["ingress"] == []


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"replica": 2}, "replica"),
        ({"replicas": "two"}, "replicas"),
        ({"image": {"digest": "sha256:abc"}}, "digest"),
        ({"logLevel": "trace"}, "logLevel"),
        ({"policies": []}, "policies"),
        ({"metrics": {"port": 80}}, "port"),
        ({"trustAnchors": {"vendors": {}}}, "vendors"),
        ({"platformCredentials": {"Team_A": {"secret": {}}}}, "Team_A"),
        ({"serviceAccount": {"create": False}}, "serviceAccount.name must be set"),
        ({"serviceMonitor": {"enabled": True}}, "networkPolicy.metricsFrom must name the pods"),
        ({"metrics": {"service": {"enabled": True}}}, "networkPolicy.metricsFrom must name"),
        (
            {
                "metrics": {"secure": True},
                "networkPolicy": {"enabled": False},
                "serviceMonitor": {"enabled": True},
            },
            "serviceMonitor.authorization must name a Secret",
        ),
        ({"updateStrategy": {"type": "OnDelete"}}, "type"),
        ({"extraVolumeMounts": [{"name": "scratch"}]}, "mountPath"),
        ({"enabled": "no"}, "enabled"),
    ],
    ids=str,
)
@pytest.mark.parametrize("version", VERSIONS)
def test_wrong_value_is_refused(values: Object, message: str, version: str, tmp_path: Path) -> None:
    with pytest.raises(HelmFailed, match=re.escape(message)):
        render(values, tmp_path, version=version)


@pytest.fixture
def helm4(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the Helm that packages the chart, and the Kubernetes that it renders for."""
    monkeypatch.setenv("HELM", str(provide.tool("helm4")))
    monkeypatch.setenv("KUBERNETES_VERSION", pins.newest())


@pytest.mark.usefixtures("helm4")
def test_rendered_manifests_are_current(tmp_path: Path) -> None:
    """Run `make manifests` after a change of the chart, the CRDs or the permissions."""
    chart.write_manifests(CHART, tmp_path)
    for name in chart.RENDERED:
        committed = (chart.SOURCE / name).read_text(encoding="utf-8")
        assert committed == (tmp_path / name).read_text(encoding="utf-8")


def test_version_is_that_of_the_project() -> None:
    description = _load(CHART / "Chart.yaml")
    assert description["version"] == description["appVersion"] == semantic_version()


@pytest.mark.usefixtures("helm4")
def test_release_pulls_the_given_image_and_is_the_same_in_each_build(tmp_path: Path) -> None:
    image = f"registry.example:5000/team/signer@sha256:{'b' * 64}"
    builds = [tmp_path / "first", tmp_path / "second"]
    for directory in builds:
        chart.write_release(directory, image)
    first, second = ({f.name: f.read_bytes() for f in d.iterdir()} for d in builds)
    assert first == second
    package = f"{RELEASE}-{semantic_version()}.tgz"
    assert first.keys() == {
        package,
        *("addon-components.yaml", "crds.yaml", "install.yaml", "metadata.yaml"),
        *(
            "workload-rbac.yaml",
            "node-labels-rbac.yaml",
            "node-taints-rbac.yaml",
            "binding-removal-rbac.yaml",
        ),
        *("attested-nodes-policy.yaml", "entry-credential.yaml"),
    }
    for text in (first["install.yaml"].decode(), template("helm3", chart=builds[0] / package)):
        assert container(objects(text))["image"] == image


def test_alerts_and_dashboard_use_metrics_that_exist() -> None:
    names = _metric_names()
    for file in ("alerts.yaml", "dashboard.json"):
        text = (CHART / "files" / file).read_text(encoding="utf-8")
        # The name of a recorded rule has a colon before the metric.
        used = set(re.findall(r"(?<![\w:])node_attestation_\w+", text))
        assert used
        assert used <= names


def _load(file: Path) -> Any:  # noqa: ANN401 - YAML
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def _metric_names() -> set[str]:
    state = QueueState(pending={}, busy_workers={}, open_breakers=frozenset())
    registry = metrics.build_registry(
        lambda: TrustBundleFiles((), {}), lambda: state, MemoryBudget()
    )
    suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
    return {f.name + end for f in registry.collect() for end in suffixes.get(f.type, ("",))}
