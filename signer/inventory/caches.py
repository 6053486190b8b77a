"""The caches of the management cluster and of a workload cluster.

Reflectors fill them while the signer runs, and files fill them for `explain`. Reading makes no
request.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from common.errors import ApiServerUnavailable
from signer.fairness.memory_budget import MemoryBudget
from signer.host_names import HostName, canonical_name
from signer.inventory.cluster_api.cluster import ClusterObject
from signer.inventory.cluster_api.machine_object import MachineObject, PoolObject
from signer.inventory.cluster_api.references import BootstrapObject, InfrastructureObject, Reference
from signer.inventory.node_labels import NodeLabelFields
from signer.inventory.node_taints import NodeTaints
from signer.inventory.unreadable_kinds import UNREADABLE
from signer.kinds.attested_node import AttestedNodeObject
from signer.kinds.cluster import ClusterKey
from signer.kinds.decode import (
    MAX_TEXT,
    Fields,
    MaybeText,
    Name,
    ObjectMeta,
    Source,
    Texts,
    Time,
    decode,
    texts,
)
from signer.kinds.endorsement_key import EndorsementKeyObject
from signer.kinds.node import Node
from signer.kube.unreadable import Unreadable
from signer.kube.watches.cache import Cache
from signer.seams import WentBack

AUTO_APPROVE_ROLES: Final = frozenset(
    {
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
    }
)
"""ClusterRoles whose subjects' CSRs kube-controller-manager approves (csrapproving controller)."""


class ManagementCaches(ABC):
    """The objects of the management cluster that requests are verified against."""

    def __init__(self, budget: MemoryBudget | None = None) -> None:
        """Count every namespaced object in `budget`; without one there is no limit."""
        self.clusters: Cache[ClusterObject] = Cache(
            "Clusters",
            unreadable=UNREADABLE["Clusters"],
            indexes={"refers": lambda c: [c.infrastructure] if c.infrastructure else []},
            budget=budget,
        )
        self.machines: Cache[MachineObject] = Cache(
            "Machines",
            unreadable=UNREADABLE["Machines"],
            indexes={
                "provider ID": lambda m: [(m.cluster, m.provider_id)] if m.provider_id else [],
                "host name": lambda m: [(m.cluster, name) for name in m.host_names],
                "nodeRef": lambda m: [(m.cluster, m.node_ref)] if m.node_ref else [],
                "refers": lambda m: [r for r in (m.infrastructure, m.bootstrap) if r],
            },
            budget=budget,
        )
        self.pools: Cache[PoolObject] = Cache(
            "MachinePools",
            unreadable=UNREADABLE["MachinePools"],
            indexes={"provider ID": lambda p: [(p.cluster, i) for i in p.provider_ids]},
            budget=budget,
        )
        self.bootstraps: Cache[BootstrapObject] = Cache(
            "KubeadmConfigs", unreadable=UNREADABLE["KubeadmConfigs"], budget=budget
        )
        # The signer and operators write EndorsementKeys. A missing one could free a banned key, so
        # no budget may refuse one.
        self.keys: Cache[EndorsementKeyObject] = Cache(
            "EndorsementKeys",
            unreadable=UNREADABLE["EndorsementKeys"],
            indexes={
                "registered": lambda k: {
                    (r.cluster, value)
                    for r in k.registered_for
                    for value in (r.provider_id, r.machine_name, r.node_name)
                    if value is not None
                },
                "banned": lambda k: [True] if k.banned else [],
                "claimed by namespace": lambda k: (
                    [k.held_by.cluster.namespace] if k.held_by and not k.registered_for else []
                ),
            },
        )
        self.nodes: Cache[AttestedNodeObject] = Cache(
            "AttestedNodes",
            unreadable=UNREADABLE["AttestedNodes"],
            indexes={
                "provider ID": lambda n: [(n.cluster, n.provider_id)],
                "endorsement key": lambda n: [n.endorsement_key],
            },
            budget=budget,
        )
        self._went_back: Mapping[ClusterKey, WentBack | None] = {}

    def set_went_back(self, went_back: Mapping[ClusterKey, WentBack | None]) -> None:
        """Note for each Cluster whether its claims went back; a missing Cluster is not known."""
        self._went_back = went_back

    def went_back(self, cluster: ClusterKey) -> WentBack | None:
        """Return the last loss of claims of a Cluster.

        Raises `ApiServerUnavailable` until it is known.
        """
        try:
            return self._went_back[cluster]
        except KeyError:
            message = "whether claims of the Cluster were lost is not known yet"
            raise ApiServerUnavailable(message) from None

    @abstractmethod
    def infrastructure(self, reference: Reference) -> InfrastructureObject | None:
        """Return an infrastructure object of any kind, `None` if it does not exist."""

    def attested_nodes_with_key(self, key_name: str) -> Sequence[AttestedNodeObject] | None:
        """Return the AttestedNodes that name an EndorsementKey, and whose Machine may exist.

        `None` if the caches do not have the objects of all Clusters.
        """
        return tuple(filter(self.has_machine, self.nodes.by_index("endorsement key", key_name)))

    def has_machine(self, node: AttestedNodeObject) -> bool:
        """Return whether the Machine of a claim exists, or may come: its Cluster is paused.

        `clusterctl move` pauses the Clusters, and makes the Machines after the claims.
        """
        index_key = (node.cluster, node.provider_id)
        machines = self.machines.by_index("provider ID", index_key)
        if node.machine_name:
            exists = any(machine.name == node.machine_name for machine in machines)
        else:
            exists = bool(machines or self.pools.by_index("provider ID", index_key))
        cluster = self.clusters.get(str(node.cluster))
        return exists or (cluster is not None and cluster.paused)

    def unreadable(self) -> Iterator[tuple[str, Unreadable]]:
        """Yield each object that cannot be read, with the plural of its kind."""
        return _unreadable(self)

    def require_complete(self, namespace: str) -> None:
        """Raise `ApiServerUnavailable` while objects of a namespace exceed its memory budget.

        An object that is not cached must not look like one that does not exist.
        """
        for cache in (self.clusters, self.machines, self.pools, self.bootstraps, self.nodes):
            cache.require_complete(namespace)


class WorkloadCaches:
    """The objects of a workload cluster that requests are verified against."""

    def __init__(
        self, key: ClusterKey, uid: str, *, host: str, budget: MemoryBudget | None = None
    ) -> None:
        """Count every object for the Cluster's namespace in `budget`."""
        self.key = key
        self.uid = uid
        self._server = canonical_name(host) if host else None
        """Host name or address of the server in the kubeconfig, if there is a kubeconfig."""
        tenant = key.namespace
        self.nodes: Cache[Node] = Cache(
            "Nodes",
            unreadable=UNREADABLE["Nodes"],
            indexes={"provider ID": lambda n: [n.provider_id] if n.provider_id else []},
            budget=budget,
            tenant=tenant,
        )
        self.bindings: Cache[str] = Cache(
            "ClusterRoleBindings",
            unreadable=UNREADABLE["ClusterRoleBindings"],
            budget=budget,
            tenant=tenant,
        )
        self.hosts: Cache[HostName] = Cache(
            "the kubernetes service's addresses", budget=budget, tenant=tenant
        )
        self.keeps_bindings = False
        """Whether the bindings stay for Nodes from before the opt-in, as the last round found."""

    def require_complete(self) -> None:
        """Raise `ApiServerUnavailable` while objects exceed the memory budget of the namespace.

        The other tenants may have used the memory up. A Node that is not cached must not look like
        one that does not exist (M4, M6, E2), and no binding or Service either (R0, S3).
        """
        for cache in (self.nodes, self.bindings, self.hosts):
            cache.require_complete(self.key.namespace)

    def unreadable(self) -> Iterator[tuple[str, Unreadable]]:
        """Yield each object that cannot be read, with the plural of its kind."""
        return _unreadable(self)

    def control_plane(self) -> frozenset[HostName]:
        """Return the names and addresses of its API server."""
        return frozenset(self.hosts.all()) | ({self._server} if self._server else frozenset())


def _unreadable(owner: object) -> Iterator[tuple[str, Unreadable]]:
    for cache in vars(owner).values():
        if isinstance(cache, Cache):
            yield from ((cache.plural, each) for each in cache.unreadable)


class _NodeSpec(NodeTaints):
    # Kubernetes limits no provider ID. A limit here would let a kubelet make its Node unreadable.
    provider_id: str | None = msgspec.field(name="providerID", default=None)


class _NodeMeta(ObjectMeta):
    name: Name
    uid: MaybeText = None
    labels: NodeLabelFields | None = None
    creation_timestamp: Time | None = None


class _Node(Fields):
    metadata: _NodeMeta
    spec: _NodeSpec | None = None


class _RoleRef(Fields):
    name: MaybeText = None


class _BindingMeta(ObjectMeta):
    uid: MaybeText = None


class _Binding(Fields):
    metadata: _BindingMeta
    role_ref: _RoleRef | None = None


class _ServiceSpec(Fields):
    cluster_ips: Texts = msgspec.field(name="clusterIPs", default=None)
    cluster_ip: MaybeText = msgspec.field(name="clusterIP", default=None)


class _Service(Fields):
    spec: _ServiceSpec | None = None


def read_node(source: Source) -> Node:
    """Read a Node. Raises `ValueError`."""
    node = decode(source, _Node)
    labels = node.metadata.labels
    provider_id = (node.spec and node.spec.provider_id) or ""
    return Node(
        name=node.metadata.name,
        # One character too many is enough to differ from the provider ID of every Machine.
        provider_id=provider_id[: MAX_TEXT + 1],
        uid=node.metadata.uid or "",
        labels={} if labels is None else labels.present(),
        created=node.metadata.creation_timestamp,
        is_control_plane=labels is not None and labels.control_plane is not None,
        tainted=node.spec is not None and node.spec.has_own,
    )


def read_binding(source: Source) -> str | None:
    """Return the name of a ClusterRoleBinding to an auto-approving role, `None` for any other.

    The role decides, not the name of the binding: kubeadm's names are a convention (R0).
    """
    binding = decode(source, _Binding)
    return binding.metadata.name if _approves(binding) else None


def read_binding_uid(source: Source) -> str | None:
    """Return the UID of a ClusterRoleBinding to an auto-approving role, `None` for any other."""
    binding = decode(source, _Binding)
    return binding.metadata.uid if _approves(binding) else None


def _approves(binding: _Binding) -> bool:
    return binding.role_ref is not None and binding.role_ref.name in AUTO_APPROVE_ROLES


def read_service(source: Source) -> Mapping[str, HostName]:
    """Read the addresses of the `kubernetes` service, which no certificate may name (S3)."""
    spec = decode(source, _Service).spec or _ServiceSpec()
    addresses = texts([*(spec.cluster_ips or ()), spec.cluster_ip])
    return {address: canonical_name(address) for address in addresses}
