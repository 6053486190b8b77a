"""Management clusters that serve one version of Cluster API: only the old or only the new one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.harness import objects
from tests.harness.client import Object
from tests.harness.fleet import WorkloadTenant
from tests.harness.management import ManagementCluster
from tests.harness.node import Node
from tests.harness.process import wait_until
from tests.harness.signer import OPT_IN, Signer
from tests.harness.tpm import SoftwareTpm, TrustDomain
from tests.harness.workload import WorkloadCluster
from tests.integration import csrs
from tests.integration.kubelet_nodes import NODES, body_of
from tests.integration.moves import Site

OLD: Final = "v1beta1"
NEW: Final = "v1beta2"


class OneVersion(ManagementCluster):
    """A management cluster whose Clusters and Machines are served in one version."""

    def __init__(self, version: str, directory: Path, assets: Path) -> None:
        """Prepare everything."""
        super().__init__(version, directory, assets)
        self.version = version

    def _cluster_api_crds(self) -> list[Object]:
        crds = super()._cluster_api_crds()
        for crd in crds:
            versions = crd["spec"]["versions"]
            [kept] = [each for each in versions if each["name"] == self.version] or versions[-1:]
            crd["spec"]["versions"] = [{**kept, "served": True, "storage": True}]
        return crds


@pytest.fixture(scope="module")
def workload(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkloadCluster]:
    directory = tmp_path_factory.mktemp("versions") / "workload"
    with WorkloadCluster("workload", directory, assets) as running:
        yield running


@pytest.fixture(params=[OLD, NEW])
def management(
    request: pytest.FixtureRequest, assets: Path, tmp_path: Path
) -> Iterator[OneVersion]:
    with OneVersion(request.param, tmp_path / "management", assets) as running:
        yield running


@pytest.fixture
def node(
    management: OneVersion, workload: WorkloadCluster, vendor: TrustDomain, tmp_path: Path
) -> Iterator[Node]:
    """Return a node whose key is registered in the annotation of its infrastructure object."""
    name = management.version
    tenant = WorkloadTenant(namespace=name, workload=workload, name=name)
    with SoftwareTpm(vendor, seed=name) as tpm:
        node = Node(tenant, f"node-of-{name}", tpm, tmp_path / "node")
        node.give_token(workload.bootstrap_token())
        create_objects(management, node)
        yield node


def create_objects(management: OneVersion, node: Node) -> None:
    """Create the Cluster, its Secrets, and the Machine, in the version that is served."""
    tenant, machine = (
        node.tenant,
        objects.Machine(node.name, infrastructure_annotations=node.registration()),
    )
    cluster = objects.cluster(tenant.name, endpoint=tenant.workload.url, annotations=OPT_IN)
    body = objects.machine(tenant.name, machine, provider_id=node.provider_id)
    if management.version == OLD:
        cluster, body = in_old_version(cluster), in_old_version(body)
    management.create_namespace(tenant.namespace)
    for each in (
        objects.infrastructure_cluster(tenant.name),
        objects.infrastructure_machine(tenant.name, machine, provider_id=node.provider_id),
        cluster,
        body,
    ):
        management.create_object(tenant.namespace, each)
    management.store_kubeconfig(tenant.namespace, tenant.name, tenant.workload.signer_kubeconfig())
    management.store_authority(tenant.namespace, tenant.name, tenant.workload.authority.pair)


def in_old_version(body: Object) -> Object:
    """Return a Cluster or a Machine in v1beta1: other references, and flags in the status."""
    reference = body["spec"]["infrastructureRef"]
    reference["apiVersion"] = f"{reference.pop('apiGroup')}/v1"
    addresses = {k: v for k, v in body["status"].items() if k == "addresses"}
    ready = {"infrastructureReady": True}
    ready |= {"bootstrapReady" if body["kind"] == "Machine" else "controlPlaneReady": True}
    return {**body, "apiVersion": f"{objects.CORE}/{OLD}", "status": {**addresses, **ready}}


def status_of(management: OneVersion, node: Node) -> Object:
    """Return the status of the Machine."""
    path = f"/apis/{objects.CORE}/{management.version}/namespaces/{node.tenant.namespace}"
    status: Object = management.admin.get(f"{path}/machines/{node.name}")["status"]
    return status


def attested(management: OneVersion, node: Node) -> Object:
    """Return the condition KubeletAttested of the Machine; empty without one."""
    status = status_of(management, node)
    conditions = (status.get(NEW, {}) if management.version == OLD else status).get("conditions")
    return next((c for c in conditions or () if c["type"] == "KubeletAttested"), {})


@pytest.mark.parametrize("management", [NEW], indirect=True)
def test_condition_stays_while_cluster_api_writes_the_machine(
    management: OneVersion, node: Node, tmp_path: Path
) -> None:
    """The manager writes the reference to the Node and its own conditions into the same status."""
    tenant = node.tenant
    # Cluster API labels Nodes, which the signer's role does not allow.
    config = tenant.workload.admin_config.read_text(encoding="utf-8")
    management.replace_secret(tenant.namespace, tenant.name, "kubeconfig", {"value": config})
    with (
        Signer(Site(management), tmp_path / "signer", policy={}),
        management.cluster_api(tenant.namespace),
    ):
        assert node.call().status == 0
        wait_until(
            lambda: attested(management, node).get("status") == "True",
            what="the Machine has KubeletAttested",
        )
        tenant.workload.admin.create(NODES, body_of(node))
        wait_until(
            lambda: status_of(management, node).get("nodeRef") == {"name": node.name},
            what="Cluster API has found the Node",
            seconds=120,
        )
        assert attested(management, node)["status"] == "True"


def test_node_joins_and_renews_with_one_version_of_cluster_api(
    management: OneVersion, node: Node, tmp_path: Path
) -> None:
    with Signer(Site(management), tmp_path / "signer", policy={}):
        first = node.call()
        assert first.status == 0, first.complaint
        assert node.call("renew", "--kubeconfig", str(node.kubeconfig())).status == 0
        assert len(csrs.claim(node, management.admin)["credentialIDs"]) == 2
        wait_until(
            lambda: attested(management, node).get("status") == "True",
            what="the Machine has KubeletAttested",
        )
