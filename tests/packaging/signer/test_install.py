"""Real API servers accept the chart and the manifests, and keep the CRDs when they are removed."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from builders.chart import RENDERED, SOURCE
from tests.controlplane import pins
from tests.harness.client import ApiError, Object
from tests.harness.controlplane import ApiServer
from tests.packaging.signer.helm import CHART, NAMESPACE, RELEASE, VERSIONS, helm
from tests.packaging.signer.served import when_served

CRD = (
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    "/endorsementkeys.attestation.cluster.x-k8s.io"
)
KEYS = "/apis/attestation.cluster.x-k8s.io/v1alpha1/endorsementkeys"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}"


def run(cluster: ApiServer, version: str, command: str, *options: str | Path) -> str:
    """Run a command of Helm on the release."""
    access: list[str | Path] = ["--namespace", NAMESPACE, "--kubeconfig", cluster.admin_config]
    return helm(version, command, RELEASE, *options, *access)


def older_chart(directory: Path) -> Path:
    """Return a chart whose CRD of EndorsementKeys does not have the field `releasedFrom` yet."""
    chart = directory / "older"
    shutil.copytree(CHART, chart)
    file = chart / "files/crds/endorsementkeys.yaml"
    crd = yaml.safe_load(file.read_text(encoding="utf-8"))
    del _properties(crd)["spec"]["properties"]["releasedFrom"]
    file.write_text(yaml.safe_dump(crd), encoding="utf-8")
    return chart


def _properties(crd: Object) -> Object:
    answer: Object = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    return answer


def create_key(cluster: ApiServer, name: str) -> None:
    """Create an EndorsementKey."""
    api = "attestation.cluster.x-k8s.io/v1alpha1"
    metadata = {"name": name}
    key = {"apiVersion": api, "kind": "EndorsementKey", "metadata": metadata, "spec": {}}
    when_served(lambda: cluster.admin.create(KEYS, key))


def keys(cluster: ApiServer) -> list[Object]:
    """Return all EndorsementKeys."""
    return when_served(lambda: cluster.admin.list(KEYS))


@pytest.mark.parametrize("version", VERSIONS)
def test_upgrade_changes_the_crds_and_removal_keeps_the_claims(
    version: str, empty_cluster: ApiServer, tmp_path: Path
) -> None:
    """Helm never changes what is in a chart's directory crds/."""
    run(empty_cluster, version, "install", older_chart(tmp_path), "--create-namespace")
    create_key(empty_cluster, version.removeprefix("helm") * 64)
    before = keys(empty_cluster)
    assert "releasedFrom" not in _properties(empty_cluster.admin.get(CRD))["spec"]["properties"]
    run(empty_cluster, version, "upgrade", CHART, "--set", "replicas=3")
    assert "releasedFrom" in _properties(empty_cluster.admin.get(CRD))["spec"]["properties"]
    assert empty_cluster.admin.get(DEPLOYMENT)["spec"]["replicas"] == 3
    run(empty_cluster, version, "uninstall")
    with pytest.raises(ApiError, match="404"):
        empty_cluster.admin.get(DEPLOYMENT)
    assert keys(empty_cluster) == before


@pytest.mark.parametrize(
    "name", ["crds.yaml", "install.yaml", "management-rbac.yaml", "admission-policy.yaml", "crds"]
)
def test_api_server_accepts_the_manifests(name: str, empty_cluster: ApiServer) -> None:
    path = (SOURCE if name in RENDERED else CHART.parent) / name
    namespace = {"metadata": {"name": NAMESPACE}}
    empty_cluster.admin.apply(
        f"/api/v1/namespaces/{NAMESPACE}", {"apiVersion": "v1", "kind": "Namespace", **namespace}
    )
    arguments = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-o", "json")
    answer = json.loads(empty_cluster.kubectl(*arguments, "--filename", str(path)))
    assert answer.get("items", [answer])


def test_removal_of_the_manifest_keeps_the_claims(assets: Path, tmp_path: Path) -> None:
    """`kubectl delete -f install.yaml` deleted the CRDs, and with them all objects of them."""
    key = "3" * 64
    # Of its own: nothing here deletes a namespace to the end.
    with ApiServer("manifest", tmp_path / "cluster", assets) as cluster:
        for name in ("crds.yaml", "install.yaml"):
            cluster.kubectl("apply", "--server-side", "-f", str(SOURCE / name))
        create_key(cluster, key)
        cluster.kubectl("delete", "--wait=false", "-f", str(SOURCE / "install.yaml"))
        with pytest.raises(ApiError, match="404"):
            cluster.admin.get(DEPLOYMENT)
        assert "deletionTimestamp" not in cluster.admin.get(CRD)["metadata"]
        assert [each["metadata"]["name"] for each in keys(cluster)] == [key]


def test_pods_satisfy_the_restricted_pod_security_standard(empty_cluster: ApiServer) -> None:
    documents = yaml.safe_load_all((SOURCE / "install.yaml").read_text(encoding="utf-8"))
    rendered = {document["kind"]: document for document in documents if document}
    path = "/api/v1/namespaces/restricted"
    namespace, account = rendered["Namespace"], rendered["ServiceAccount"]
    # Helm does not install over objects of others, so this test has its own namespace.
    namespace["metadata"]["name"] = account["metadata"]["namespace"] = "restricted"
    empty_cluster.admin.apply(path, namespace)
    empty_cluster.admin.apply(f"{path}/serviceaccounts/{RELEASE}", account)
    spec: Object = rendered["Deployment"]["spec"]["template"]["spec"]
    pod: Object = {"metadata": {"name": "signer"}, "spec": spec}
    empty_cluster.admin.create(f"{path}/pods?dryRun=All", pod)
    spec["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    with pytest.raises(ApiError, match='violates PodSecurity "restricted'):
        empty_cluster.admin.create(f"{path}/pods?dryRun=All", pod)


def test_oldest_supported_kubernetes_is_the_oldest_that_is_tested() -> None:
    oldest = min(pins.parse(pins.read(file).kubernetes) for file in pins.KUBERNETES.glob("*.mod"))
    required = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["kubeVersion"]
    assert required == f">={oldest[0]}.{oldest[1]}.0-0"


def test_dry_run_does_not_need_the_files_of_the_checkout(tmp_path: Path) -> None:
    """The packaged chart has the CRDs and the permissions, which are links in the checkout."""
    helm("helm4", "package", CHART, "--destination", tmp_path)
    [package] = tmp_path.iterdir()
    text = helm("helm3", "template", RELEASE, package, "--kube-version", pins.newest())
    assert text.count("kind: CustomResourceDefinition") == len(list(CHART.parent.glob("crds/*")))
