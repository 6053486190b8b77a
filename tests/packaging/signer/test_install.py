"""Real API servers accept the chart and the manifests, and keep the CRDs when they are removed."""

import json
from pathlib import Path

import pytest
import yaml

from tests.controlplane import pins
from tests.harness.client import ApiError, Object
from tests.harness.controlplane import ApiServer
from tests.harness.process import wait_until
from tests.packaging.signer.chart import SOURCE
from tests.packaging.signer.helm import CHART, NAMESPACE, RELEASE, VERSIONS, helm

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
KEYS = "/apis/attestation.cluster.x-k8s.io/v1alpha1/endorsementkeys"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}"


def release(cluster: ApiServer, version: str, command: str, *options: str) -> str:
    """Run a command of Helm on the release."""
    chart: list[str | Path] = [] if command == "uninstall" else [CHART]
    access: list[str | Path] = ["--namespace", NAMESPACE, "--kubeconfig", cluster.admin_config]
    return helm(version, command, RELEASE, *chart, *access, *options)


def create_key(cluster: ApiServer, digest: str) -> None:
    """Create an EndorsementKey when the API server serves the kind."""

    def is_created() -> bool:
        key = {
            "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
            "kind": "EndorsementKey",
            "metadata": {"name": digest},
            "spec": {},
        }
        try:
            cluster.admin.create(KEYS, key)
        except ApiError as error:
            if error.code != 404:
                raise
            return False
        return True

    wait_until(is_created, what="the CRDs are served")


@pytest.mark.parametrize("version", VERSIONS)
def test_upgrade_and_removal_keep_the_claims(version: str, empty_cluster: ApiServer) -> None:
    """An upgrade changes the CRDs as well, which Helm never does to a chart's directory crds/."""
    cluster = empty_cluster
    release(cluster, version, "install", "--create-namespace")
    create_key(cluster, ("3" if version == "helm3" else "4") * 64)
    before = cluster.admin.list(KEYS)
    release(cluster, version, "upgrade", "--set", "replicas=3")
    assert cluster.admin.get(DEPLOYMENT)["spec"]["replicas"] == 3
    assert cluster.admin.list(KEYS) == before
    release(cluster, version, "uninstall")
    with pytest.raises(ApiError, match="404"):
        cluster.admin.get(DEPLOYMENT)
    assert cluster.admin.list(KEYS) == before


@pytest.mark.parametrize("name", ["install.yaml", "management-rbac.yaml", "crds"])
def test_api_server_accepts_the_manifests(name: str, empty_cluster: ApiServer) -> None:
    path = (SOURCE if name == "install.yaml" else CHART.parent) / name
    namespace = {"metadata": {"name": NAMESPACE}}
    empty_cluster.admin.apply(
        f"/api/v1/namespaces/{NAMESPACE}", {"apiVersion": "v1", "kind": "Namespace", **namespace}
    )
    arguments = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-o", "json")
    answer = json.loads(empty_cluster.kubectl(*arguments, "--filename", str(path)))
    assert answer.get("items", [answer])


def test_pods_satisfy_the_restricted_pod_security_standard(empty_cluster: ApiServer) -> None:
    cluster = empty_cluster
    documents = yaml.safe_load_all((SOURCE / "install.yaml").read_text(encoding="utf-8"))
    rendered = [document for document in documents if document]
    [namespace] = [o for o in rendered if o["kind"] == "Namespace"]
    [account] = [o for o in rendered if o["kind"] == "ServiceAccount"]
    [deployment] = [o for o in rendered if o["kind"] == "Deployment"]
    cluster.admin.apply(f"/api/v1/namespaces/{NAMESPACE}", namespace)
    path = f"/api/v1/namespaces/{NAMESPACE}"
    cluster.admin.apply(f"{path}/serviceaccounts/{RELEASE}", account)
    pod: Object = {"metadata": {"name": "signer"}, "spec": deployment["spec"]["template"]["spec"]}
    cluster.admin.create(f"{path}/pods?dryRun=All", pod)
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    with pytest.raises(ApiError, match='violates PodSecurity "restricted'):
        cluster.admin.create(f"{path}/pods?dryRun=All", pod)


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
