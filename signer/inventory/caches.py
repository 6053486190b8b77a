"""What is known of the management cluster and of a workload cluster: caches, whoever fills them.

Watches do while the signer runs; files do where a stored request is explained. Reading asks nobody.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final

from signer.host_names import equivalent_names
from signer.inventory.cluster import ClusterObject
from signer.inventory.machine import (
    BootstrapObject,
    InfrastructureObject,
    MachineObject,
    PoolObject,
    Reference,
)
from signer.kube.cache import Cache, Capacity
from signer.kube.fields import Json, get_str, get_strings, require_str
from signer.model import AttestedNodeObject, ClusterKey, EndorsementKeyObject, Node

_AUTO_APPROVE_ROLES: Final = frozenset(
    {
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
    }
)
"""ClusterRoles whose subjects' CSRs kube-controller-manager approves (csrapproving controller)."""
VALUE_SIZE: Final = 256
"""Bytes that a value takes beside its texts, about."""
_ROOM: Final = 32 << 20
"""Bytes of all names and provider IDs: a hundred thousand Nodes."""


def cluster_key(key: ClusterKey) -> str:
    """Return a Cluster's key in its cache."""
    return f"{key.namespace}/{key.name}"


class ManagementCaches(ABC):
    """The objects of the management cluster that requests are judged by."""

    def __init__(self) -> None:
        self.clusters: Cache[ClusterObject] = Cache(
            "Clusters",
            indexes={"refers": lambda c: [c.infrastructure] if c.infrastructure else []},
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
        )
        self.pools: Cache[PoolObject] = Cache(
            "MachinePools",
            indexes={"provider ID": lambda p: [(p.cluster, i) for i in p.provider_ids]},
        )
        self.bootstraps: Cache[BootstrapObject] = Cache("KubeadmConfigs")
        self.keys: Cache[EndorsementKeyObject] = Cache(
            "EndorsementKeys",
            indexes={
                "registered": lambda k: {
                    (r.cluster, value)
                    for r in k.registered_for
                    for value in (r.provider_id, r.machine_name, r.node_name)
                    if value is not None
                },
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
        )

    @abstractmethod
    def infrastructure(self, reference: Reference) -> InfrastructureObject | None:
        """Return an infrastructure object of whatever kind, `None` when there is none."""


class WorkloadCaches:
    """The objects of a workload cluster that requests are judged by, and how it is reached."""

    def __init__(self, key: ClusterKey, uid: str, *, host: str) -> None:
        self.key = key
        self.uid = uid
        self.host = host
        """Host name or address of the server that its kubeconfig names; empty where none is."""
        self.nodes: Cache[Node] = Cache(
            "Nodes",
            indexes={"provider ID": lambda n: [n.provider_id] if n.provider_id else []},
            room=Capacity(
                size=_ROOM, size_of=lambda n: VALUE_SIZE + len(n.name) + len(n.provider_id)
            ),
        )
        self.bindings: Cache[str] = Cache(
            "ClusterRoleBindings", room=Capacity(size=_ROOM, size_of=lambda n: VALUE_SIZE + len(n))
        )
        self.hosts: Cache[str] = Cache("the kubernetes service's addresses")

    def control_plane(self) -> Sequence[str]:
        """Return the names and addresses that its API server is reached by."""
        return tuple(filter(None, (*self.hosts.all(), self.host)))


def read_node(body: Json) -> Node:
    """Read a Node."""
    return Node(
        name=require_str(body, "metadata", "name"),
        provider_id=get_str(body, "spec", "providerID") or "",
    )


def read_binding(body: Json) -> str | None:
    """Return the name of a ClusterRoleBinding to an auto-approving role, `None` for any other.

    The role decides, not the binding's name: kubeadm's names are a convention (R0).
    """
    name = require_str(body, "metadata", "name")
    return name if get_str(body, "roleRef", "name") in _AUTO_APPROVE_ROLES else None


def read_service(body: Json) -> Mapping[str, str]:
    """Read the addresses of the `kubernetes` service, that no certificate may name (S3)."""
    addresses = (*get_strings(body, "spec", "clusterIPs"), get_str(body, "spec", "clusterIP"))
    return {address: address for address in addresses if address}
