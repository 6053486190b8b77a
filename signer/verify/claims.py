"""Verifies and writes claims: which node holds which endorsement key and node name (E3, K1 to K4).

A claim is complete when EndorsementKey and AttestedNode name each other. It is live while its
Machine exists. Replicas and clusters write claims concurrently, so every step is a create, or a
write under the resourceVersion that was read. Source: docs/protocol.md sections 2, 5.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from common.errors import AttestationError
from signer.errors import (
    ClaimConflict,
    EndorsementKeyBanned,
    EndorsementKeyHolderDeleting,
    EndorsementKeyInUse,
    EndorsementKeyInUseLocally,
    EndorsementKeyRecordConflict,
    EndorsementKeyReleased,
    NodeNameInUse,
    NodeNameReserved,
    RequesterCredentialUnknown,
)
from signer.model import (
    AttestedNodeObject,
    ClaimStore,
    ClusterKey,
    EndorsementKeyObject,
    Inventory,
    KeyHolder,
    Machine,
    MachineState,
    TrustBasis,
)
from signer.policy import NameReuse, Policy, UnknownCredential
from signer.verify.credentials import credential_ids_after_issue, verify_known_credential

_MAX_ATTEMPTS: Final = 5
"""One of the racing replicas wins each attempt, so more conflicts than this are an outage."""


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


def is_same_holder(one: KeyHolder, other: KeyHolder) -> bool:
    """Return whether two holders are one node; the basis may differ."""
    return (one.cluster, one.node_name, one.provider_id) == (
        other.cluster,
        other.node_name,
        other.provider_id,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """A claim to write."""

    public_key_pem: str
    holder: KeyHolder
    node: AttestedNodeObject
    """`resource_version` and `credential_ids` are empty and unused."""
    requester_credential: str
    """ID of the certificate with which the node filed its request; empty if there is none."""
    issued_credential: str
    """ID of the client certificate that waits for the claims; empty for a serving certificate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenClaim:
    """What the claims of a node say now; only `write_claims` creates one."""

    credential_ids: tuple[str, ...]
    """IDs of the client certificates that the node may have, with the one that waits."""
    alarms: tuple[RequesterCredentialUnknown, ...]
    """What K4 found and the policy does not deny."""


def verify_no_conflicting_claim(
    key_name: str, requested: KeyHolder, machine: Machine, inventory: Inventory
) -> None:
    """E3: verify that the key is usable here and that no claim in this Cluster conflicts.

    `machine` is the requester's.

    K1 compares with claims in other Clusters. An offer must not reveal them.

    Raises:
        EndorsementKeyBanned, EndorsementKeyReleased: denied.
        EndorsementKeyInUseLocally, NodeNameInUse: denied.
        EndorsementKeyHolderDeleting, EndorsementKeyRecordConflict, NodeNameReserved: wait.

    """
    key = inventory.endorsement_key(key_name)
    if key is not None:
        require_usable(key, requested.cluster, requested.provider_id)
        held_by = key.held_by
        if held_by is not None and held_by.cluster == requested.cluster:
            node = inventory.attested_node(held_by.node_name)
            if (
                node is not None
                and not is_same_holder(held_by, requested)
                and is_complete_claim(key, node)
                and not _is_replaced_by(node, machine.provider_id, machine.name, machine.uid)
            ):
                state = _cached_state(inventory, node)
                _require_key_free(held_by, state, requested, EndorsementKeyInUseLocally)
    node = inventory.attested_node(requested.node_name)
    if node is not None and node.endorsement_key != key_name:
        other = inventory.endorsement_key(node.endorsement_key)
        if is_complete_claim(other, node):
            _require_name_free(other, _cached_state(inventory, node), requested)


def _is_replaced_by(node: AttestedNodeObject, provider_id: str, name: str, uid: str) -> bool:
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


def _outranks(requested: KeyHolder, basis: TrustBasis | None) -> bool:
    """Return whether a request on record competes with a claim that was made without a record."""
    return requested.basis is TrustBasis.RECORD and basis is not TrustBasis.RECORD


def _require_key_free(
    held_by: KeyHolder, state: MachineState, requested: KeyHolder, denial: type[AttestationError]
) -> None:
    """K1, E3: require that the holder does not exist, or that the request outranks its claim."""
    if state is MachineState.ABSENT or _outranks(requested, held_by.basis):
        return
    if state is MachineState.DELETING:
        raise EndorsementKeyHolderDeleting(
            "the node that holds the endorsement key is not gone yet"
        )
    if requested.basis is TrustBasis.RECORD:
        raise EndorsementKeyRecordConflict("the endorsement key is on record for two nodes")
    raise denial("the endorsement key is held by another node")


def _require_name_free(
    other: EndorsementKeyObject | None, state: MachineState, requested: KeyHolder
) -> None:
    """K2, E3: require that the name's claim is not live, or that the request outranks it."""
    basis = None if other is None or other.held_by is None else other.held_by.basis
    if state is MachineState.ABSENT or _outranks(requested, basis):
        return
    if state is MachineState.DELETING:
        raise NodeNameReserved("the node that has the name is not gone yet")
    raise NodeNameInUse("another endorsement key has a live claim to the node name")


def write_claims(
    request: ClaimRequest,
    *,
    inventory: Inventory,
    claims: ClaimStore,
    policy: Policy,
    now: datetime,
) -> WrittenClaim:
    """Write the claims through the API server (K1 to K4); after a conflict, start again from K1.

    The first attempt takes key and name from the caches of `inventory` if no other node has either
    there. A cache may be old, but each object is written once under the resourceVersion that was
    cached, or created, before this returns. So an object that has changed since causes a conflict,
    and the next attempt reads it from the API server, as does a contest in the caches.

    Raises:
        Denied, Waiting: another claim conflicts.
        ClaimConflict: other writers won every attempt.
        ApiServerUnavailable: from the store, or a cache has not been filled yet.

    """
    attempt = _Attempt(request=request, claims=claims, policy=policy, now=now)
    reads = (lambda: attempt.read_cached(inventory), *[attempt.read_live] * (_MAX_ATTEMPTS - 1))
    for read in reads:
        try:
            return attempt.run(*read())
        except ClaimConflict:
            continue
    raise ClaimConflict("others write the same claims at the same time")


_Read = tuple[EndorsementKeyObject | None, AttestedNodeObject | None]
"""The two objects of a claim, where they exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """One pass over K1, K4, K2 and K3."""

    request: ClaimRequest
    claims: ClaimStore
    policy: Policy
    now: datetime

    def read_live(self) -> _Read:
        """Read both objects from the API server."""
        holder = self.request.holder
        return (
            self.claims.endorsement_key(self.request.node.endorsement_key),
            self.claims.attested_node(holder.cluster, holder.node_name),
        )

    def read_cached(self, inventory: Inventory) -> _Read:
        """Return both objects from the caches.

        Read them live if another node has key or name, or if the certificate is unknown (K4).
        """
        holder, key_name = self.request.holder, self.request.node.endorsement_key
        key = inventory.endorsement_key(key_name)
        node = inventory.attested_node(holder.node_name)
        held_by = None if key is None else key.held_by
        if held_by is not None and not is_same_holder(held_by, holder):
            return self.read_live()
        if node is not None and node.endorsement_key != key_name:
            return self.read_live()
        if self._find_unknown_credential(node) is not None:
            return self.read_live()
        return key, node

    def run(
        self, key: EndorsementKeyObject | None, node: AttestedNodeObject | None
    ) -> WrittenClaim:
        holder = self.request.holder
        held = self._take_key(key)
        alarm = self._find_unknown_credential(node)  # (K4)
        if alarm is not None and self.policy.unknown_credential is UnknownCredential.DENY:
            raise alarm
        written = self._take_name(node)
        # K3: otherwise a replica that read an older state could still take the key. Needed even if
        # the claim was complete: the replica that completed it may have crashed before its own K3.
        # It also fails if the key was banned, released or taken since it was read.
        self.claims.set_key_holder(held, holder, self.now)
        alarms = () if alarm is None else (alarm,)
        return WrittenClaim(credential_ids=written.credential_ids, alarms=alarms)

    def _find_unknown_credential(
        self, node: AttestedNodeObject | None
    ) -> RequesterCredentialUnknown | None:
        """K4: return why the certificate that filed the request is unknown, `None` if it is known.

        The state of `node` is proved: K2 writes it under its resourceVersion, or creates it.
        """
        try:
            verify_known_credential(self.request.requester_credential, node)
        except RequesterCredentialUnknown as error:
            return error
        return None

    def _take_key(self, key: EndorsementKeyObject | None) -> EndorsementKeyObject:
        """K1: create the key, confirm it, or take it from a claim that is not live."""
        holder = self.request.holder
        if key is None:
            return self.claims.create_endorsement_key(
                self.request.node.endorsement_key, self.request.public_key_pem, holder, self.now
            )
        require_usable(key, holder.cluster, holder.provider_id)
        if key.held_by == holder:
            return key
        if key.held_by is not None and not is_same_holder(key.held_by, holder):
            state = self._key_state(key, key.held_by)
            _require_key_free(key.held_by, state, holder, EndorsementKeyInUse)
        return self.claims.set_key_holder(key, holder, self.now)

    def _take_name(self, node: AttestedNodeObject | None) -> AttestedNodeObject:
        """K2: create, confirm or take over the AttestedNode; write `notAfter` and credentials."""
        request = self.request
        credential_ids = credential_ids_after_issue(
            node,
            request.node.endorsement_key,
            presented=request.requester_credential,
            issued=request.issued_credential,
        )
        requested = replace(request.node, credential_ids=credential_ids)
        if node is None:
            return self.claims.create_attested_node(requested)
        if node.endorsement_key != requested.endorsement_key:
            other = self.claims.endorsement_key(node.endorsement_key)
            _require_name_free(other, self._state(other, node), self.request.holder)
        else:
            # An earlier certificate, perhaps the serving one, may expire later than this one.
            requested = replace(requested, not_after=max(requested.not_after, node.not_after))
        return self.claims.replace_attested_node(node, requested)

    def _key_state(self, key: EndorsementKeyObject, held_by: KeyHolder) -> MachineState:
        node = self.claims.attested_node(held_by.cluster, held_by.node_name)
        requested = self.request.node
        if (
            node is not None
            and node.cluster == requested.cluster
            and _is_replaced_by(
                node, requested.provider_id, requested.machine_name, requested.machine_uid
            )
        ):
            return self._state_when_absent(node)
        return self._state(key, node)

    def _state(
        self, key: EndorsementKeyObject | None, node: AttestedNodeObject | None
    ) -> MachineState:
        """Return the state of a claim's Machine; an incomplete claim has none."""
        if key is None or key.held_by is None or node is None or not is_complete_claim(key, node):
            return MachineState.ABSENT
        # The provider IDs differ when a replica crashed while a new Machine took the claim over.
        # The AttestedNode then does not name the new Machine.
        machines = {key.held_by.provider_id: "", node.provider_id: node.machine_name}
        states = {
            self.claims.machine_state(node.cluster, provider_id, name)
            for provider_id, name in machines.items()
        }
        for state in (MachineState.PRESENT, MachineState.DELETING):
            if state in states:
                return state
        return self._state_when_absent(node)

    def _state_when_absent(self, node: AttestedNodeObject) -> MachineState:
        """Return the state of a claim without Machine: by policy its certificate keeps it."""
        if self.policy.name_reuse is NameReuse.AFTER_CERTIFICATE and node.not_after > self.now:
            return MachineState.DELETING
        return MachineState.ABSENT
