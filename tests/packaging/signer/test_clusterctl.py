"""The real clusterctl installs the components from a local repository, and upgrades them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from builders.chart import SOURCE
from builders.version import semantic_version
from signer.settings.arguments import parse_arguments
from tests.controlplane import pins
from tests.harness import objects
from tests.harness.client import Object
from tests.harness.controlplane import ApiServer
from tests.packaging.signer.clusterctl import FILES, LABEL, Clusterctl, management_cluster
from tests.packaging.signer.helm import NAMESPACE, RELEASE
from tests.packaging.signer.rendered import only
from tests.packaging.signer.served import when_served

VERSION: Final = f"v{semantic_version()}"
NEXT_VERSION: Final = "v0.1.9"
DEPLOYMENT: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}"
KEYS: Final = "/apis/attestation.cluster.x-k8s.io/v1alpha1/endorsementkeys"
NODES: Final = "/apis/attestation.cluster.x-k8s.io/v1alpha1/attestednodes"
TEAM: Final = "team-a"
KEY: Final = "5" * 64


@pytest.fixture
def clusterctl(tmp_path: Path) -> Clusterctl:
    """Return clusterctl with its own repository."""
    return Clusterctl(tmp_path, VERSION, SOURCE)


@pytest.fixture
def management_clusters(assets: Path, tmp_path: Path) -> Iterator[tuple[ApiServer, ApiServer]]:
    """Run two management clusters."""
    with (
        management_cluster("first", tmp_path / "first", assets) as first,
        management_cluster("second", tmp_path / "second", assets) as second,
    ):
        yield first, second


def newer_release(directory: Path) -> Path:
    """Return the files of a newer version, which has another image."""
    directory.mkdir()
    for name in FILES:
        text = (SOURCE / name).read_text(encoding="utf-8")
        text = text.replace(f"signer:{semantic_version()}", f"signer:{NEXT_VERSION[1:]}")
        (directory / name).write_text(text, encoding="utf-8")
    return directory


def generate(clusterctl: Clusterctl, **variables: str) -> list[Object]:
    """Return the components as clusterctl would install them."""
    text = clusterctl.run(
        "generate", "provider", "--addon", f"node-attestation:{VERSION}", **variables
    )
    return [document for document in yaml.safe_load_all(text) if document is not None]


def test_components_keep_the_rules_of_clusterctl(clusterctl: Clusterctl) -> None:
    rendered = generate(clusterctl)
    assert only(rendered, "Namespace", NAMESPACE)
    for each in rendered:
        assert each["metadata"]["labels"]["cluster.x-k8s.io/provider"] == LABEL
        assert each["metadata"].get("namespace", NAMESPACE) == NAMESPACE
    [container] = only(rendered, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["name"] == "manager"
    assert "namespace" in vars(parse_arguments(container["args"]))


def test_replaced_variables_do_not_change_the_crds(clusterctl: Clusterctl) -> None:
    """Their patterns have dollar signs."""
    source = {
        crd["metadata"]["name"]: crd["spec"]
        for crd in map(_load, sorted((SOURCE.parent / "crds").glob("*.yaml")))
    }
    installed = {
        o["metadata"]["name"]: o["spec"]
        for o in generate(clusterctl)
        if o["kind"] == "CustomResourceDefinition"
    }
    assert installed == source


def test_variables_set_what_they_name(clusterctl: Clusterctl) -> None:
    rendered = generate(
        clusterctl,
        NODE_ATTESTATION_REPLICAS="3",
        NODE_ATTESTATION_LOG_LEVEL="debug",
        NODE_ATTESTATION_INFRASTRUCTURE_GROUP="infra.example.com",
    )
    deployment = only(rendered, "Deployment")["spec"]
    [container] = deployment["template"]["spec"]["containers"]
    arguments = parse_arguments(container["args"])
    assert deployment["replicas"] == 3
    assert arguments.log_level == "debug"
    assert arguments.infrastructure_groups == ["infra.example.com"]
    rules = only(rendered, "ClusterRole")["rules"]
    assert any(rule["apiGroups"] == ["infra.example.com"] for rule in rules)


def test_metadata_has_the_series_of_the_version() -> None:
    series = _load(SOURCE / "metadata.yaml")["releaseSeries"]
    major, minor, *_ = pins.parse(VERSION)
    assert (major, minor) in {(each["major"], each["minor"]) for each in series}


def test_claims_survive_upgrade_and_move(
    clusterctl: Clusterctl, management_clusters: tuple[ApiServer, ApiServer], tmp_path: Path
) -> None:
    first, second = management_clusters
    for cluster in management_clusters:
        clusterctl.init(cluster, VERSION)
    assert first.admin.get(DEPLOYMENT)["spec"]["replicas"] == 2
    create_claims(first)
    before = claims(first)
    assert len(before) == 2

    clusterctl.add_version(NEXT_VERSION, newer_release(tmp_path / "newer"))
    plan = clusterctl.run("upgrade", "plan", f"--kubeconfig={first.admin_config}")
    [row] = [line.split() for line in plan.splitlines() if line.startswith(LABEL)]
    assert row[-2:] == [VERSION, NEXT_VERSION]
    target = f"--addon={NAMESPACE}/node-attestation:{NEXT_VERSION}"
    for cluster in management_clusters:
        clusterctl.run("upgrade", "apply", f"--kubeconfig={cluster.admin_config}", target)
    pod = first.admin.get(DEPLOYMENT)["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"].endswith(f":{NEXT_VERSION.removeprefix('v')}")
    assert claims(first) == before

    ends = f"--kubeconfig={first.admin_config}", f"--to-kubeconfig={second.admin_config}"
    clusterctl.run("move", *ends, "--namespace", TEAM)
    assert claims(second) == before
    assert not first.admin.list(NODES)


def create_claims(cluster: ApiServer) -> None:
    """Create a Cluster and the two objects of a claim, with the labels that the signer sets."""
    cluster.admin.create("/api/v1/namespaces", {"metadata": {"name": TEAM}})
    body = objects.cluster("workload", endpoint="https://192.0.2.1:6443", annotations={})
    del body["spec"]["infrastructureRef"]
    path = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{TEAM}/clusters"
    when_served(lambda: cluster.admin.create(path, body))
    cluster.admin.patch(f"{path}/workload/status", {"status": body["status"]})
    api = {"apiVersion": "attestation.cluster.x-k8s.io/v1alpha1"}
    labels = {"clusterctl.cluster.x-k8s.io/move": ""}
    metadata = {"name": KEY, "labels": labels}
    key = {**api, "kind": "EndorsementKey", "metadata": metadata, "spec": {}}
    when_served(lambda: cluster.admin.create(KEYS, key))
    node = {
        "clusterName": "workload",
        "nodeName": "node-1",
        "providerID": "test://node-1",
        "machineName": "machine-1",
        "endorsementKey": KEY,
        "notAfter": "2030-01-01T00:00:00Z",
        "lastAttested": "2029-12-25T00:00:00Z",
    }
    metadata = {"name": "node-1.workload", "labels": labels}
    body = {**api, "kind": "AttestedNode", "metadata": metadata, "spec": node}
    path = f"{NODES[: NODES.rindex('/')]}/namespaces/{TEAM}/attestednodes"
    when_served(lambda: cluster.admin.create(path, body))


def claims(cluster: ApiServer) -> list[Object]:
    """Return the specs of all claims."""
    keys = when_served(lambda: cluster.admin.list(KEYS))
    nodes = when_served(lambda: cluster.admin.list(NODES))
    return [each["spec"] for each in (*keys, *nodes)]


def _load(file: Path) -> Object:
    answer: Object = yaml.safe_load(file.read_text(encoding="utf-8"))
    return answer
