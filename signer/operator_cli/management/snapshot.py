"""The objects of the management cluster that the commands report on, read once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from signer.inventory.cluster_api.cluster import ClusterObject, client_signers, read_cluster
from signer.inventory.cluster_api.machine_object import (
    MachineObject,
    PoolObject,
    read_machine,
    read_pool,
)
from signer.inventory.cluster_api.references import Reference, read_infrastructure
from signer.kinds.attested_node import ATTESTED_NODES, AttestedNodeObject, read_attested_node
from signer.kinds.cluster import ClusterKey
from signer.kinds.decode import Source
from signer.kinds.endorsement_key import (
    ENDORSEMENT_KEYS,
    EndorsementKeyObject,
    read_endorsement_key,
)
from signer.kinds.resources import CAPI, Resource
from signer.kube.discovery import find_resource, served_resources
from signer.kube.transport.client import Response
from signer.kube.unreadable import Unreadable, describe_unreadable
from signer.operator_cli.errors import Rejected
from signer.operator_cli.management.api import ManagementApi

V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The Clusters that a command is limited to; empty fields select all."""

    namespace: str = ""
    cluster: ClusterKey | None = None

    def __contains__(self, key: ClusterKey) -> bool:
        if self.cluster is not None:
            return key == self.cluster
        return not self.namespace or key.namespace == self.namespace


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Clusters, Machines and claims, those of the selected Clusters only; all EndorsementKeys."""

    clusters: Sequence[ClusterObject]
    """Sorted by namespace and name."""
    machines: Sequence[MachineObject]
    pools: Sequence[PoolObject]
    nodes: Sequence[AttestedNodeObject]
    keys: Mapping[str, EndorsementKeyObject]
    signers: Mapping[ClusterKey, frozenset[str]]
    """The client signers that each Cluster has opted in to."""
    annotations: Mapping[ClusterKey, Mapping[str, str]]
    """All annotations of each Cluster."""
    unreadable: Sequence[Unreadable] = field(default_factory=list)
    """Objects that are left out."""

    @cached_property
    def machines_by_provider_id(self) -> Mapping[tuple[ClusterKey, str], MachineObject]:
        """Return the Machines that have a provider ID."""
        return {(m.cluster, m.provider_id): m for m in self.machines if m.provider_id}

    def machine_of(self, node: AttestedNodeObject) -> MachineObject | PoolObject | None:
        """Return the Machine with the provider ID of a node, or else the pool with it."""
        pools = (p for p in self.pools if node.provider_id in p.provider_ids)
        return self.machines_by_provider_id.get((node.cluster, node.provider_id)) or next(
            (pool for pool in pools if pool.cluster == node.cluster), None
        )

    def holds_key(self, node: AttestedNodeObject) -> bool:
        """Return whether the EndorsementKey of a node names this node as its holder.

        Without that, an AttestedNode shows nothing: a tenant may write those of its namespace.
        """
        key = self.keys.get(node.endorsement_key)
        holder = None if key is None else key.held_by
        return holder is not None and (
            (holder.cluster, holder.node_name) == (node.cluster, node.node_name)
        )

    def opted_in(self) -> Sequence[ClusterObject]:
        """Return the Clusters that have opted in to any client signer."""
        return [c for c in self.clusters if self.signers[c.key]]


def take_snapshot(api: ManagementApi, selection: Selection) -> Snapshot:
    """Read all objects. Raises `CommandError`."""
    unreadable: list[Unreadable] = []
    served = served_resources(api, CAPI)
    if "Cluster" not in served:
        raise Rejected(
            "the API server serves no Cluster API objects",
            hint="choose the context of the management cluster with --context",
        )

    def read(resource: Resource | None, reader: Callable[[Source], V]) -> list[V]:
        if resource is None:
            return []
        bodies = api.list_objects(_path(resource, selection), left_out=unreadable)
        return _read_all(bodies, reader, unreadable)

    bodies = api.list_objects(_path(served["Cluster"], selection), left_out=unreadable)
    clusters = [c for c in _read_all(bodies, read_cluster, unreadable) if c.key in selection]
    clusters.sort(key=lambda c: (c.key.namespace, c.key.name))
    return Snapshot(
        clusters=clusters,
        machines=_selected(read(served.get("Machine"), read_machine), selection),
        pools=_selected(read(served.get("MachinePool"), read_pool), selection),
        nodes=_selected(read(ATTESTED_NODES, read_attested_node), selection),
        keys={key.name: key for key in read(ENDORSEMENT_KEYS, read_endorsement_key)},
        signers={c.key: client_signers(c, _infrastructure_signer(api, c)) for c in clusters},
        annotations=dict(map(_annotations, bodies)),
        unreadable=unreadable,
    )


def read_objects(
    api: ManagementApi, resource: Resource, selection: Selection, reader: Callable[[Source], V]
) -> tuple[list[V], list[Unreadable]]:
    """Return the objects of a collection in the selected namespaces, and what cannot be read."""
    unreadable: list[Unreadable] = []
    bodies = api.list_objects(_path(resource, selection), left_out=unreadable)
    return _read_all(bodies, reader, unreadable), unreadable


def _path(resource: Resource, selection: Selection) -> str:
    namespace = selection.cluster.namespace if selection.cluster else selection.namespace
    return resource.collection_path(namespace if resource.namespaced else "")


def _read_all(
    bodies: Iterable[dict[str, Any]], read: Callable[[Source], V], unreadable: list[Unreadable]
) -> list[V]:
    values = []
    for body in bodies:
        try:
            values.append(read(body))
        except ValueError as error:
            unreadable.append(describe_unreadable(body, error))
    return values


C = TypeVar("C", MachineObject, PoolObject, AttestedNodeObject)


def _selected(values: Iterable[C], selection: Selection) -> list[C]:
    return [value for value in values if value.cluster in selection]


def _annotations(body: dict[str, Any]) -> tuple[ClusterKey, Mapping[str, str]]:
    metadata = body["metadata"]
    key = ClusterKey(namespace=metadata["namespace"], name=metadata["name"])
    return key, metadata.get("annotations") or {}


def find_referenced(api: ManagementApi, reference: Reference) -> Response | None:
    """Read the object that a Cluster or Machine refers to, `None` if it does not exist.

    A tenant may have written the name. Raises `CommandError`.
    """
    resource = find_resource(api, (reference.group, reference.kind))
    if resource is None:
        return None
    return api.find(resource.object_path(reference.name, reference.namespace))


def _infrastructure_signer(api: ManagementApi, cluster: ClusterObject) -> str | None:
    """Return the client signer that the infrastructure object of an opted-in Cluster names."""
    reference = cluster.infrastructure
    if not cluster.authentication or reference is None:
        return None
    response = find_referenced(api, reference)
    return None if response is None else response.read(read_infrastructure).client_signer
