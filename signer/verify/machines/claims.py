"""Rules of claims: which node holds which endorsement key and node name (E3, K1, K2).

A claim is complete when EndorsementKey and AttestedNode name each other. It is live while its
Machine exists. Source: docs/protocol.md sections 2, 5.
"""

from common.errors import AttestationError
from signer.errors import (
    EndorsementKeyBanned,
    EndorsementKeyHolderDeleting,
    EndorsementKeyInUseLocally,
    EndorsementKeyRegistrationConflict,
    EndorsementKeyReleased,
    NodeNameInUse,
    NodeNameReserved,
)
from signer.kinds.attested_node import AttestedNodeObject
from signer.kinds.cluster import ClusterKey
from signer.kinds.endorsement_key import EndorsementKeyObject, KeyHolder, is_same_holder
from signer.kinds.machine import Machine, MachineState
from signer.seams import Inventory


def is_complete_claim(key: EndorsementKeyObject | None, node: AttestedNodeObject | None) -> bool:
    """Return whether key and node name each other, and operators neither banned nor released it."""
    return (
        key is not None
        and node is not None
        and not key.banned
        and key.held_by is not None
        and node.endorsement_key == key.name
        and key.held_by.cluster == node.cluster
        and key.held_by.node_name == node.node_name
        and not key.is_released_from(key.held_by.cluster, key.held_by.provider_id)
    )


def is_claim_of(node: AttestedNodeObject, machine: Machine) -> bool:
    """Return whether the claim names this Machine, or none.

    Several Machines have one provider ID one after the other where it names hardware (`metal3://`).
    The UID is not compared: `clusterctl move` changes it.
    """
    return node.machine_name in {"", machine.name}


def is_claim_of_former(node: AttestedNodeObject, name: str, uid: str) -> bool:
    """Return whether the claim was made for a Machine of the same name with another UID.

    Either the Machine was made again, or `clusterctl move` gave it a new UID.
    """
    return node.machine_name == name and node.machine_uid not in {"", uid}


def verify_no_conflicting_claim(
    key_names: frozenset[str], requested: KeyHolder, machine: Machine, inventory: Inventory
) -> None:
    """E3: verify that the TPM is usable here and that no claim in this Cluster conflicts.

    `key_names` are those of its keys, and `machine` is the requester's. Only K1 compares with
    claims in other Clusters: an offer must not reveal them.

    Raises:
        EndorsementKeyBanned, EndorsementKeyReleased: denied.
        EndorsementKeyInUseLocally, NodeNameInUse: denied.
        EndorsementKeyHolderDeleting, EndorsementKeyRegistrationConflict, NodeNameReserved: wait.

    """
    keys = [key for name in sorted(key_names) if (key := inventory.endorsement_key(name))]
    for key in keys:
        require_usable(key, requested.cluster, requested.provider_id)
    for key in keys:
        _require_free_here(key, requested, machine, inventory)
    node = inventory.attested_node(requested.node_name)
    if node is not None and node.endorsement_key not in key_names:
        other = inventory.endorsement_key(node.endorsement_key)
        if is_complete_claim(other, node):
            require_name_free(other, _cached_state(inventory, node), requested)


def _require_free_here(
    key: EndorsementKeyObject, requested: KeyHolder, machine: Machine, inventory: Inventory
) -> None:
    """E3: require that no other node of this Cluster holds the key."""
    held_by = key.held_by
    if held_by is None or held_by.cluster != requested.cluster:
        return
    node = inventory.attested_node(held_by.node_name)
    if (
        node is not None
        and not is_same_holder(held_by, requested)
        and is_complete_claim(key, node)
        and not is_replaced_by(node, machine.provider_id, machine.name, machine.uid)
    ):
        state = _cached_state(inventory, node)
        require_key_free(held_by, state, requested, EndorsementKeyInUseLocally)


def is_replaced_by(node: AttestedNodeObject, provider_id: str, name: str, uid: str) -> bool:
    """Return whether a request is for the Machine that was made again on the claim's hardware.

    After `clusterctl move` the Machine is the same one. Then M3 still fixes its node name, so
    that such a request is only for the claim's own name.
    """
    return node.provider_id == provider_id and is_claim_of_former(node, name, uid)


def _cached_state(inventory: Inventory, node: AttestedNodeObject) -> MachineState:
    """Return the state of a claim's Machine from caches; K1 and K2 then decide."""
    machines = [m for m in inventory.machines(node.provider_id) if is_claim_of(node, m)]
    if any(not machine.deleting for machine in machines):
        return MachineState.PRESENT
    return MachineState.DELETING if machines else MachineState.ABSENT


def require_usable(key: EndorsementKeyObject, cluster: ClusterKey, provider_id: str) -> None:
    """E3: refuse a key that an operator banned, or released from this Cluster or Machine.

    Raises:
        EndorsementKeyBanned: no node may use the key.
        EndorsementKeyReleased: this node may not.

    """
    if key.banned:
        raise EndorsementKeyBanned("the endorsement key is banned")
    if key.is_released_from(cluster, provider_id):
        raise EndorsementKeyReleased("the endorsement key is released from this Machine")


def require_key_free(
    held_by: KeyHolder, state: MachineState, requested: KeyHolder, denial: type[AttestationError]
) -> None:
    """K1, E3: require that the holder does not exist, or that the request outranks its claim."""
    if state is MachineState.ABSENT or requested.basis.outranks(held_by.basis):
        return
    if state is MachineState.DELETING:
        raise EndorsementKeyHolderDeleting(
            "the node that holds the endorsement key is not gone yet"
        )
    if requested.basis.names_machine:
        raise EndorsementKeyRegistrationConflict("the endorsement key is registered for two nodes")
    raise denial("the endorsement key is held by another node")


def require_name_free(
    other: EndorsementKeyObject | None, state: MachineState, requested: KeyHolder
) -> None:
    """K2, E3: require that the name's claim is not live, or that the request outranks it."""
    basis = None if other is None or other.held_by is None else other.held_by.basis
    if state is MachineState.ABSENT or requested.basis.outranks(basis):
        return
    if state is MachineState.DELETING:
        raise NodeNameReserved("the node that has the name is not gone yet")
    raise NodeNameInUse("another endorsement key has a live claim to the node name")
