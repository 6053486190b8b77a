"""Claims in the API: every call sends requests to the management cluster (K1 to K4)."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from http import HTTPStatus
from typing import Final, TypeVar
from urllib.parse import quote

import msgspec

from common.errors import ApiServerUnavailable
from common.names import API_GROUP, API_VERSION
from signer.errors import ClaimConflict
from signer.inventory.claim_objects import (
    encode_attested_node,
    encode_endorsement_key,
    encode_holder,
    read_attested_node,
    read_endorsement_key,
    replacement_metadata,
)
from signer.inventory.machine import read_machine, read_pool
from signer.kube.client import ApiClient, Expired, Response
from signer.kube.decode import AnyObject, Source, decode
from signer.kube.discovery import collection_path, namespaced_path
from signer.kube.pages import list_pages
from signer.model import (
    AttestedNodeObject,
    ClusterKey,
    EndorsementKeyObject,
    KeyHolder,
    MachineState,
    attested_node_name,
)

_API: Final = f"/apis/{API_GROUP}/{API_VERSION}"
ENDORSEMENT_KEYS: Final = f"{_API}/endorsementkeys"
ATTESTED_NODES: Final = f"{_API}/attestednodes"
_CAPI: Final = "cluster.x-k8s.io"
_PAGE_SIZE: Final = 250
V = TypeVar("V")
_WRITTEN: Final = (HTTPStatus.OK, HTTPStatus.CREATED)


class KubeClaimStore:
    """`signer.model.ClaimStore` on the management cluster."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def endorsement_key(self, name: str) -> EndorsementKeyObject | None:
        """Read the EndorsementKey."""
        response = self._api.get(_key_path(name), accepted=(200, 404))
        return None if response.status == HTTPStatus.NOT_FOUND else _key(response)

    def attested_node(self, cluster: ClusterKey, node_name: str) -> AttestedNodeObject | None:
        """Read the AttestedNode of a node, of any Cluster."""
        path = _node_path(cluster.namespace, attested_node_name(cluster, node_name))
        response = self._api.get(path, accepted=(200, 404))
        return None if response.status == HTTPStatus.NOT_FOUND else _node(response)

    def create_endorsement_key(
        self, name: str, public_key_pem: str, held_by: KeyHolder, now: datetime
    ) -> EndorsementKeyObject:
        """Create the EndorsementKey, held by this node."""
        body = encode_endorsement_key(name, public_key_pem, held_by, now)
        return _key(self._api.create(ENDORSEMENT_KEYS, body, accepted=(201, 409)))

    def set_key_holder(
        self, current: EndorsementKeyObject, held_by: KeyHolder, now: datetime
    ) -> EndorsementKeyObject:
        """Write `heldBy` (also when it is unchanged) under the resourceVersion of `current`.

        Fields that operators wrote stay as they are, and so does the time of the first claim by the
        same node.
        """
        is_same_node = (
            current.held_by is not None
            and replace(held_by, basis=current.held_by.basis) == current.held_by
        )
        since = (current.held_since if is_same_node else None) or now
        body = {
            "metadata": replacement_metadata(current.resource_version),
            "spec": {"heldBy": encode_holder(held_by, since=since, now=now)},
        }
        return _key(self._api.merge_patch(_key_path(current.name), body, accepted=(200, 404, 409)))

    def create_attested_node(self, node: AttestedNodeObject) -> AttestedNodeObject:
        """Create the AttestedNode; its `resource_version` is ignored."""
        path = _node_path(node.cluster.namespace)
        body = encode_attested_node(node, "")
        return _node(self._api.create(path, body, accepted=(201, 409)))

    def replace_attested_node(
        self, current: AttestedNodeObject, new: AttestedNodeObject
    ) -> AttestedNodeObject:
        """Write all of `new` under the resourceVersion of `current`."""
        path = _node_path(current.cluster.namespace, current.name)
        body = encode_attested_node(new, current.resource_version)
        return _node(self._api.replace(path, body, accepted=(200, 404, 409)))

    def delete_attested_node(self, node: AttestedNodeObject) -> None:
        """Delete an AttestedNode, unless it has changed since it was read."""
        path = _node_path(node.cluster.namespace, node.name)
        preconditions = {"resourceVersion": node.resource_version}
        self._api.delete(path, preconditions, accepted=(200, 404, 409))

    def delete_endorsement_key(self, key: EndorsementKeyObject) -> None:
        """Delete an EndorsementKey, if it has not changed since it was read."""
        preconditions = {"uid": key.uid, "resourceVersion": key.resource_version}
        self._api.delete(_key_path(key.name), preconditions, accepted=(200, 404, 409))

    def machine_state(
        self, cluster: ClusterKey, provider_id: str, machine_name: str
    ) -> MachineState:
        """Return the state of the Machine of that Cluster with this name and provider ID."""
        if not self._exists(cluster):
            return MachineState.ABSENT
        deleting = list(self._deleting(cluster, provider_id, machine_name))
        if not deleting:
            return MachineState.ABSENT
        return MachineState.DELETING if all(deleting) else MachineState.PRESENT

    def _exists(self, cluster: ClusterKey) -> bool:
        path = f"{self._collection('Cluster', cluster.namespace)}/{quote(cluster.name, safe='')}"
        return self._api.get(path, accepted=(200, 404)).status == HTTPStatus.OK

    def _deleting(self, cluster: ClusterKey, provider_id: str, machine_name: str) -> Iterator[bool]:
        """Yield, for each matching Machine and each pool with the ID, if it is being deleted."""
        for machine in self._read("Machine", cluster.namespace, read_machine):
            if (
                machine.cluster == cluster
                and machine.provider_id == provider_id
                and machine_name in {"", machine.name}
            ):
                yield machine.deleting
        if machine_name:
            return  # claims of a MachinePool's members name no Machine
        for pool in self._read("MachinePool", cluster.namespace, read_pool):
            if pool.cluster == cluster and provider_id in pool.provider_ids:
                yield pool.deleting

    def _read(self, kind: str, namespace: str, read: Callable[[Source], V]) -> Iterator[V]:
        # All objects of the namespace: one that lacks the label of its Cluster counts as well.
        path = self._collection(kind, namespace)
        try:
            for page in list_pages(self._api, path, _PAGE_SIZE, {}):
                for item in page.items or ():
                    yield _read_item(item, kind, namespace, read)
        except Expired as e:
            raise ApiServerUnavailable(f"the list of {kind}s expired before its end") from e

    def _collection(self, kind: str, namespace: str) -> str:
        path = collection_path(self._api, _CAPI, kind)
        if path is None:
            # Unknown is not absent: that would free every key and name.
            raise ApiServerUnavailable(f"the management cluster has no {kind}s")
        return namespaced_path(path, namespace)


def _read_item(item: msgspec.Raw, kind: str, namespace: str, read: Callable[[Source], V]) -> V:
    try:
        return read(item)
    except ValueError as e:
        # It may be the Machine in question; leaving it out would free its key and its name.
        detail = f"{namespace}/{_name_of(item)}: {e}"
        raise ApiServerUnavailable(f"a {kind} cannot be read", detail=detail) from e


def _name_of(item: msgspec.Raw) -> str:
    try:
        return decode(item, AnyObject).metadata.name
    except ValueError:
        return "(without a name)"


def _key(response: Response) -> EndorsementKeyObject:
    return _written(response, read_endorsement_key)


def _node(response: Response) -> AttestedNodeObject:
    return _written(response, read_attested_node)


def _written(response: Response, read: Callable[[Source], V]) -> V:
    if response.status not in _WRITTEN:
        raise ClaimConflict("another claim was written at the same time")
    return response.read(read)


def _key_path(name: str) -> str:
    return f"{ENDORSEMENT_KEYS}/{quote(name, safe='')}"


def _node_path(namespace: str, name: str = "") -> str:
    path = namespaced_path(ATTESTED_NODES, namespace)
    return f"{path}/{name}" if name else path
