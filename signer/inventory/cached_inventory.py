"""The inventory of one Cluster, read from the caches without requests."""

from collections.abc import Sequence
from typing import Final

from common.errors import ApiServerUnavailable
from signer.host_names import HostName
from signer.inventory.caches import ManagementCaches, WorkloadCaches
from signer.inventory.cluster_api.cluster import ClusterObject, build_cluster
from signer.inventory.cluster_api.machine_object import (
    MachineObject,
    build_machine,
    build_pool_member,
)
from signer.inventory.cluster_api.references import is_kubeadm_config
from signer.kinds.attested_node import AttestedNodeObject, attested_node_name
from signer.kinds.cluster import Cluster, ClusterKey
from signer.kinds.endorsement_key import EndorsementKeyObject, Registration
from signer.kinds.machine import Machine
from signer.kinds.node import Node
from signer.seams import WentBack

_MAX_BINDINGS: Final = 10
"""Bindings that a verdict names. One is enough for R0, and a hostile API server makes up as many as
its tenant's memory holds."""


def infrastructure_signer(cluster: ClusterObject, management: ManagementCaches) -> str | None:
    """Return the infrastructure cluster's client signer, where the Cluster asks for one (R0)."""
    if not cluster.authentication or cluster.infrastructure is None:
        return None
    infrastructure = management.infrastructure(cluster.infrastructure)
    return None if infrastructure is None else infrastructure.client_signer


class CachedInventory:
    """`signer.seams.Inventory` of one Cluster."""

    def __init__(self, management: ManagementCaches, workload: WorkloadCaches) -> None:
        self._management = management
        self._workload = workload
        self._key: ClusterKey = workload.key

    def cluster(self) -> Cluster:
        """Return the Cluster itself.

        Raises `ApiServerUnavailable` also while objects of its namespace, or of the workload
        cluster, are not cached, for lack of memory: every verification reads the Cluster, and must
        not use an incomplete inventory.
        """
        self._management.require_complete(self._key.namespace)
        self._workload.require_complete()
        cluster = self._management.clusters.get(str(self._key))
        if cluster is None or cluster.uid != self._workload.uid:
            raise ApiServerUnavailable("the Cluster does not exist any more")
        return build_cluster(
            cluster,
            infrastructure_signer(cluster, self._management),
            hosts=self._workload.control_plane(),
            auto_approve_bindings=self._workload.bindings.all()[:_MAX_BINDINGS],
            keeps_bindings=self._workload.keeps_bindings,
        )

    def went_back(self, cluster: ClusterKey) -> WentBack | None:
        """Return the last loss of claims of a Cluster."""
        return self._management.went_back(cluster)

    def machines(self, provider_id: str) -> Sequence[Machine]:
        """Return the Machines and pool members of this Cluster with exactly this provider ID.

        If a pool member also has a Machine, only the Machine is returned.
        """
        index_key = (self._key, provider_id)
        pools = self._management.pools.by_index("provider ID", index_key)
        machines = self._management.machines.by_index("provider ID", index_key)
        if machines:
            return tuple(map(self._machine, machines))
        return tuple(build_pool_member(pool, provider_id) for pool in pools)

    def machines_with_host_name(self, name: HostName) -> Sequence[Machine]:
        """Return the Machines of this Cluster that have this name as a form of an address."""
        machines = self._management.machines.by_index("host name", (self._key, name))
        return tuple(map(self._machine, machines))

    def machines_with_node_ref(self, node_name: str) -> Sequence[Machine]:
        """Return the Machines of this Cluster whose `nodeRef` names this Node."""
        machines = self._management.machines.by_index("nodeRef", (self._key, node_name))
        return tuple(map(self._machine, machines))

    def node(self, name: str) -> Node | None:
        """Return the workload cluster's Node of that name."""
        return self._workload.nodes.get(name)

    def nodes_with_provider_id(self, provider_id: str) -> Sequence[Node]:
        """Return the workload cluster's Nodes with exactly this provider ID."""
        return self._workload.nodes.by_index("provider ID", provider_id)

    def endorsement_key(self, name: str) -> EndorsementKeyObject | None:
        """Return the EndorsementKey of that name."""
        return self._management.keys.get(name)

    def registrations(self, *values: str) -> Sequence[tuple[str, Registration]]:
        """Return the registrations of each EndorsementKey that has one of the values."""
        keys = {
            key.name: key
            for value in values
            for key in self._management.keys.by_index("registered", (self._key, value))
        }
        return tuple(
            (name, registration)
            for name, key in keys.items()
            for registration in key.registered_for
            if registration.cluster == self._key
        )

    def attested_node(self, node_name: str) -> AttestedNodeObject | None:
        """Return this Cluster's AttestedNode for a node name."""
        name = attested_node_name(self._key, node_name)
        return self._management.nodes.get(f"{self._key.namespace}/{name}")

    def attested_nodes_with_provider_id(self, provider_id: str) -> Sequence[AttestedNodeObject]:
        """Return this Cluster's AttestedNodes with exactly this provider ID."""
        return self._management.nodes.by_index("provider ID", (self._key, provider_id))

    def attested_nodes_with_key(self, key_name: str) -> Sequence[AttestedNodeObject] | None:
        """Return the AttestedNodes of all Clusters that name this EndorsementKey."""
        return self._management.attested_nodes_with_key(key_name)

    def _machine(self, machine: MachineObject) -> Machine:
        infrastructure = bootstrap = None
        if machine.infrastructure is not None:
            infrastructure = self._management.infrastructure(machine.infrastructure)
        if machine.bootstrap is not None and is_kubeadm_config(machine.bootstrap):
            bootstrap = self._management.bootstraps.get(machine.bootstrap.key)
        return build_machine(machine, infrastructure, bootstrap)
