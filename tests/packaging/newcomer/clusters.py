"""What a user has before the quick start: Cluster API and a workload cluster of kubeadm."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.controlplane import pins, provide
from tests.harness import kubeadm
from tests.harness.fleet import WorkloadTenant
from tests.harness.management import ManagementCluster
from tests.harness.netns import NetworkNamespace
from tests.harness.workload import WorkloadCluster

NAMESPACE: Final = "team-a"
CLUSTER: Final = "c1"
PROGRAMS: Final = (
    "etcd", "kube-apiserver", "kube-controller-manager", "kubeadm", "kubectl", "kubelet",
)  # fmt: skip


class BareManagementCluster(ManagementCluster):
    """A management cluster that has the CRDs of Cluster API, and nothing of this project."""

    def install_attestation(self) -> None:
        """Install nothing: the quick start does."""


class BareWorkloadCluster(WorkloadCluster):
    """A workload cluster in which the signer has the rights of Cluster API's kubeconfig: all."""

    def grant_signer(self) -> None:
        """Grant nothing."""


@dataclass(frozen=True, slots=True)
class Clusters:
    """Both clusters, and the network of the signer's pod, from which it reaches them."""

    management: BareManagementCluster
    tenant: WorkloadTenant
    pod_network: NetworkNamespace


@contextmanager
def running(directory: Path) -> Iterator[Clusters]:
    """Run both clusters, with a Cluster that is provisioned and has not opted in."""
    version = os.environ.get("KUBERNETES_VERSION") or pins.newest()
    assets = provide.kubernetes(version, PROGRAMS)
    directory.mkdir()
    with ExitStack() as stack:
        network = stack.enter_context(NetworkNamespace())
        host = network.host_address
        management = BareManagementCluster(
            "management", directory / "management", assets, host=host
        )
        workload = BareWorkloadCluster(CLUSTER, directory / CLUSTER, assets, host=host)
        stack.enter_context(management)
        stack.enter_context(workload)
        workload.start_controllers()
        (directory / "kubeadm").mkdir()
        kubeadm.prepare(workload, version, directory / "kubeadm")
        management.create_namespace(NAMESPACE)
        management.create_cluster(NAMESPACE, CLUSTER, endpoint=workload.url)
        management.store_kubeconfig(NAMESPACE, CLUSTER, workload.admin_config.read_text())
        management.store_authority(NAMESPACE, CLUSTER, workload.authority.pair)
        tenant = WorkloadTenant(namespace=NAMESPACE, name=CLUSTER, workload=workload)
        yield Clusters(management, tenant, network)
