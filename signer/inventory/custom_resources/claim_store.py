"""Claims in the API: every call sends requests to the management cluster (K1 to K4)."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Final, TypeVar

from common.errors import ApiServerUnavailable
from signer.errors import AttestedNodeUnreadable, ClaimConflict
from signer.inventory.cluster_api.cluster import read_cluster
from signer.inventory.cluster_api.machine_object import MachineObject, read_machine, read_pool
from signer.kinds.attested_node import (
    ATTESTED_NODES,
    AttestedNodeObject,
    attested_node_name,
    encode_attested_node,
    read_attested_node,
)
from signer.kinds.cluster import ClusterKey
from signer.kinds.decode import Source
from signer.kinds.endorsement_key import (
    ENDORSEMENT_KEYS,
    EndorsementKeyObject,
    KeyHolder,
    encode_endorsement_key,
    is_same_holder,
    read_endorsement_key,
    replacement_metadata,
)
from signer.kinds.machine import MachineState
from signer.kinds.record import encode
from signer.kinds.resources import CLUSTER, MACHINE, MACHINE_POOL, Kind, Resource
from signer.kube.discovery import find_resource
from signer.kube.pages import UNLIMITED, list_objects
from signer.kube.transport.client import MAY_EXIST, MAY_HAVE_CHANGED, ApiClient, Response

V = TypeVar("V")

_MAX_WITH_KEY: Final = 100
"""AttestedNodes that may name one key. Two are unusual already."""


class KubeClaimStore:
    """`signer.seams.ClaimStore` on the management cluster."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def endorsement_key(self, name: str) -> EndorsementKeyObject | None:
        """Read the EndorsementKey."""
        response = self._api.find(ENDORSEMENT_KEYS.object_path(name))
        return None if response is None else _key(response)

    def attested_node(self, cluster: ClusterKey, node_name: str) -> AttestedNodeObject | None:
        """Read the AttestedNode of a node, of any Cluster."""
        name = attested_node_name(cluster, node_name)
        response = self._api.find(ATTESTED_NODES.object_path(name, cluster.namespace))
        if response is None:
            return None
        try:
            return read_attested_node(response.content)
        except ValueError as error:
            raise AttestedNodeUnreadable(
                "the AttestedNode of the node cannot be read: correct or delete it",
                detail=f"{cluster.namespace}/{name}: {error}",
            ) from error

    def attested_nodes_with_key(self, key_name: str) -> Sequence[AttestedNodeObject]:
        """Read the AttestedNodes of all Clusters that name this EndorsementKey.

        One that cannot be read names no key.
        """
        path = ATTESTED_NODES.collection_path()
        query = {"fieldSelector": f"spec.endorsementKey={key_name}"}
        nodes = list_objects(self._api, path, _readable, query=query, max_objects=_MAX_WITH_KEY)
        return tuple(nodes)

    def create_endorsement_key(
        self, name: str, public_key_pem: str, held_by: KeyHolder, now: datetime
    ) -> EndorsementKeyObject:
        """Create the EndorsementKey, held by this node."""
        body = encode_endorsement_key(name, public_key_pem, held_by, now)
        path = ENDORSEMENT_KEYS.collection_path()
        return _key(self._api.create(path, body, accepted=MAY_EXIST))

    def set_key_holder(
        self, current: EndorsementKeyObject, held_by: KeyHolder, now: datetime
    ) -> EndorsementKeyObject:
        """Write `heldBy` (also when it is unchanged) under the resourceVersion of `current`.

        Fields that operators wrote stay as they are, and so does the time of the first claim by the
        same node.
        """
        earlier = current.held_by
        if earlier is None or not is_same_holder(earlier, held_by):
            since = now
        else:
            since = earlier.since or now
        body = {
            "metadata": replacement_metadata(current.resource_version),
            "spec": {"heldBy": encode(held_by.replace(since=since, last_claimed=now))},
        }
        path = ENDORSEMENT_KEYS.object_path(current.name)
        return _key(self._api.merge_patch(path, body, accepted=MAY_HAVE_CHANGED))

    def create_attested_node(self, node: AttestedNodeObject) -> AttestedNodeObject:
        """Create the AttestedNode; its `resource_version` is ignored."""
        path = ATTESTED_NODES.collection_path(node.cluster.namespace)
        body = encode_attested_node(node, "")
        return _node(self._api.create(path, body, accepted=MAY_EXIST))

    def replace_attested_node(
        self, current: AttestedNodeObject, new: AttestedNodeObject
    ) -> AttestedNodeObject:
        """Write all of `new` under the resourceVersion of `current`."""
        path = ATTESTED_NODES.object_path(current.name, current.cluster.namespace)
        body = encode_attested_node(new, current.resource_version)
        return _node(self._api.replace(path, body, accepted=MAY_HAVE_CHANGED))

    def delete_attested_node(self, node: AttestedNodeObject) -> None:
        """Delete an AttestedNode, unless it has changed since it was read."""
        path = ATTESTED_NODES.object_path(node.name, node.cluster.namespace)
        preconditions = {"resourceVersion": node.resource_version}
        self._api.delete(path, preconditions, accepted=MAY_HAVE_CHANGED)

    def delete_endorsement_key(self, key: EndorsementKeyObject) -> None:
        """Delete an EndorsementKey, if it has not changed since it was read."""
        preconditions = {"uid": key.uid, "resourceVersion": key.resource_version}
        path = ENDORSEMENT_KEYS.object_path(key.name)
        self._api.delete(path, preconditions, accepted=MAY_HAVE_CHANGED)

    def machine_state(
        self, cluster: ClusterKey, provider_id: str, machine_name: str
    ) -> MachineState:
        """Return the state of the Machine of that Cluster with this name and provider ID."""
        path = self._resource(CLUSTER).object_path(cluster.name, cluster.namespace)
        response = self._api.find(path)
        if response is None:
            return MachineState.ABSENT
        state = MachineState.ABSENT
        for deleting in self._deleting(cluster, provider_id, machine_name):
            if not deleting:
                return MachineState.PRESENT
            state = MachineState.DELETING
        if response.read(read_cluster).paused:
            # `clusterctl move` makes the Machines of a paused Cluster after the claims.
            return MachineState.DELETING
        return state

    def _deleting(self, cluster: ClusterKey, provider_id: str, machine_name: str) -> Iterator[bool]:
        """Yield, for each matching Machine and each pool with the ID, if it is being deleted."""
        if machine_name:
            machines = self._find_machine(machine_name, cluster.namespace)
        else:
            # Claims of a MachinePool's members name no Machine. There are few pools.
            for pool in self._list(MACHINE_POOL, cluster.namespace, read_pool):
                if pool.cluster == cluster and provider_id in pool.provider_ids:
                    yield pool.deleting
            machines = self._list(MACHINE, cluster.namespace, read_machine)
        for machine in machines:
            if machine.cluster == cluster and machine.provider_id == provider_id:
                yield machine.deleting

    def _find_machine(self, name: str, namespace: str) -> Iterator[MachineObject]:
        path = self._resource(MACHINE).object_path(name, namespace)
        response = self._api.find(path)
        if response is not None:
            try:
                yield read_machine(response.content)
            except ValueError as error:
                detail = f"{path}: {error}"[:500]
                raise ApiServerUnavailable("the Machine cannot be read", detail=detail) from error

    def _list(self, kind: Kind, namespace: str, read: Callable[[Source], V]) -> Iterator[V]:
        # All objects of the namespace: one that lacks the label of its Cluster counts as well.
        path = self._resource(kind).collection_path(namespace)
        return list_objects(self._api, path, read, max_objects=UNLIMITED)

    def _resource(self, kind: Kind) -> Resource:
        resource = find_resource(self._api, kind)
        if resource is None:
            # Unknown is not absent: that would free every key and name.
            raise ApiServerUnavailable(f"the management cluster has no {kind[1]}s")
        return resource


def _readable(source: Source) -> AttestedNodeObject | None:
    try:
        return read_attested_node(source)
    except ValueError:
        return None


def _key(response: Response) -> EndorsementKeyObject:
    return _written(response, read_endorsement_key)


def _node(response: Response) -> AttestedNodeObject:
    return _written(response, read_attested_node)


def _written(response: Response, read: Callable[[Source], V]) -> V:
    if not response.succeeded:
        raise ClaimConflict("another claim was written at the same time")
    return response.read(read)
