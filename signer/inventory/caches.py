"""The caches of the management cluster and of a workload cluster.

Reflectors fill them while the signer runs, and files fill them for `explain`. Reading makes no
request.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from signer.host_names import equivalent_names
from signer.inventory.cluster import ClusterObject
from signer.inventory.machine import (
    BootstrapObject,
    InfrastructureObject,
    MachineObject,
    PoolObject,
    Reference,
)
from signer.inventory.node_labels import NodeLabelFields
from signer.kube.budget import MemoryBudget
from signer.kube.cache import Cache
from signer.kube.decode import (
    MAX_TEXT,
    Fields,
    MaybeText,
    ObjectMeta,
    Source,
    Texts,
    decode,
    texts,
)
from signer.model import AttestedNodeObject, ClusterKey, EndorsementKeyObject, Node

AUTO_APPROVE_ROLES: Final = frozenset(
    {
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
    }
)
"""ClusterRoles whose subjects' CSRs kube-controller-manager approves (csrapproving controller)."""


def cluster_key(key: ClusterKey) -> str:
    """Return the key of a Cluster in its cache."""
    return f"{key.namespace}/{key.name}"


class ManagementCaches(ABC):
    """The objects of the management cluster that requests are verified against."""

    def __init__(self, budget: MemoryBudget | None = None) -> None:
        """Count every namespaced object in `budget`; without one there is no limit."""
        self.clusters: Cache[ClusterObject] = Cache(
            "Clusters",
            indexes={"refers": lambda c: [c.infrastructure] if c.infrastructure else []},
            budget=budget,
        )
        self.machines: Cache[MachineObject] = Cache(
            "Machines",
            indexes={
                "provider ID": lambda m: [(m.cluster, m.provider_id)] if m.provider_id else [],
                "host name": lambda m: {
                    (m.cluster, form) for a in m.addresses for form in equivalent_names(a.address)
                },
                "nodeRef": lambda m: [(m.cluster, m.node_ref)] if m.node_ref else [],
                "refers": lambda m: [r for r in (m.infrastructure, m.bootstrap) if r],
            },
            budget=budget,
        )
        self.pools: Cache[PoolObject] = Cache(
            "MachinePools",
            indexes={"provider ID": lambda p: [(p.cluster, i) for i in p.provider_ids]},
            budget=budget,
        )
        self.bootstraps: Cache[BootstrapObject] = Cache("KubeadmConfigs", budget=budget)
        # The signer and operators write EndorsementKeys. A missing one could free a banned key, so
        # no budget may refuse one.
        self.keys: Cache[EndorsementKeyObject] = Cache(
            "EndorsementKeys",
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
            indexes={
                "provider ID": lambda n: [(n.cluster, n.provider_id)],
                "endorsement key": lambda n: [n.endorsement_key],
            },
            budget=budget,
        )

    @abstractmethod
    def infrastructure(self, reference: Reference) -> InfrastructureObject | None:
        """Return an infrastructure object of any kind, `None` if it does not exist."""

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
        self.host = host
        """Host name or address of the server in the kubeconfig; empty without a kubeconfig."""
        owner = key.namespace
        self.nodes: Cache[Node] = Cache(
            "Nodes",
            indexes={"provider ID": lambda n: [n.provider_id] if n.provider_id else []},
            budget=budget,
            owner=owner,
        )
        self.bindings: Cache[str] = Cache("ClusterRoleBindings", budget=budget, owner=owner)
        self.hosts: Cache[str] = Cache(
            "the kubernetes service's addresses", budget=budget, owner=owner
        )

    def control_plane(self) -> Sequence[str]:
        """Return the names and addresses of its API server."""
        return tuple(filter(None, (*self.hosts.all(), self.host)))


class _NodeSpec(Fields):
    # Kubernetes limits no provider ID. A limit here would let a kubelet make its Node unreadable.
    provider_id: str | None = msgspec.field(name="providerID", default=None)


class _NodeMeta(ObjectMeta):
    uid: MaybeText = None
    labels: NodeLabelFields | None = None


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


def read_service(source: Source) -> Mapping[str, str]:
    """Read the addresses of the `kubernetes` service, which no certificate may name (S3)."""
    spec = decode(source, _Service).spec or _ServiceSpec()
    return {address: address for address in texts([*(spec.cluster_ips or ()), spec.cluster_ip])}
