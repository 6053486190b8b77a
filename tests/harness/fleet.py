"""One management cluster and two workload clusters with equal names.

Their Clusters, Machines and nodes have equal names in two namespaces: a lookup by name without the
namespace or the UID finds the wrong one.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.harness import pki
from tests.harness.client import Object
from tests.harness.controlplane import HOST, ApiServer
from tests.harness.management import ManagementCluster
from tests.harness.objects import Machine
from tests.harness.workload import WorkloadCluster

CLUSTER_NAME = "workload"
NAMESPACES = ("team-a", "team-b")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadTenant:
    """A workload cluster, and its namespace and name in the management cluster."""

    namespace: str
    workload: WorkloadCluster
    name: str = CLUSTER_NAME


class Fleet:
    """All control planes of a test run or a demo. A context manager."""

    def __init__(self, directory: Path, assets: Path, *, host: str = HOST) -> None:
        """Prepare everything. Nodes connect to `host`, an address of this machine."""
        directory.mkdir(parents=True, exist_ok=True)
        self.management = ManagementCluster("management", directory / "management", assets)
        # kubeadm's two types of keys, so that tests cover both.
        keys: tuple[pki.PrivateKey, ...] = (pki.rsa_key(), pki.ec_key())
        self.first, self.second = (
            WorkloadTenant(
                namespace=namespace,
                workload=WorkloadCluster(
                    namespace, directory / namespace, assets, key=key, host=host
                ),
            )
            for namespace, key in zip(NAMESPACES, keys, strict=True)
        )
        self._stack = ExitStack()

    @property
    def tenants(self) -> tuple[WorkloadTenant, WorkloadTenant]:
        """Both workload clusters."""
        return self.first, self.second

    def add_machine(self, tenant: WorkloadTenant, spec: Machine) -> Object:
        """Create a Machine of a workload cluster."""
        return self.management.create_machine(tenant.namespace, tenant.name, spec)

    def register(self, tenant: WorkloadTenant) -> None:
        """Create the Cluster of a workload cluster, and the Secrets of Cluster API."""
        namespace, workload = tenant.namespace, tenant.workload
        self.management.create_namespace(namespace)
        self.management.create_cluster(namespace, tenant.name, endpoint=workload.url)
        kubeconfig = workload.signer_kubeconfig()
        self.management.store_kubeconfig(namespace, tenant.name, kubeconfig)
        self.management.store_authority(namespace, tenant.name, workload.authority.pair)

    def __enter__(self) -> Self:
        clusters: list[ApiServer] = [self.management, *(each.workload for each in self.tenants)]
        try:
            for cluster in clusters:
                self._stack.callback(cluster.stop)
            with ThreadPoolExecutor() as pool:
                list(pool.map(lambda cluster: cluster.start(), clusters))
            for tenant in self.tenants:
                self.register(tenant)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
