"""Verifies and writes claims: which node holds which endorsement key and node name (E3, K1 to K3).

A claim is complete when EndorsementKey and AttestedNode name each other. It is live while one of
their provider IDs is in its Cluster. Replicas and clusters race for claims, so every step is a
create, or a write under the resourceVersion that was read. Source: docs/protocol.md sections 2, 5.
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
    NodeNameInUse,
    NodeNameReserved,
)
from signer.model import (
    AttestedNodeObject,
    ClaimStore,
    EndorsementKeyObject,
    Inventory,
    KeyHolder,
    MachineState,
    TrustBasis,
)
from signer.policy import NameReuse

_MAX_ATTEMPTS: Final = 5
"""One of the racing replicas wins each attempt, so more conflicts than this are an outage."""


def is_complete_claim(key: EndorsementKeyObject | None, node: AttestedNodeObject | None) -> bool:
    """Return whether key and node name each other. A banned key has no complete claim."""
    return (
        key is not None
        and node is not None
        and not key.banned
        and key.held_by is not None
        and node.endorsement_key == key.name
        and key.held_by.cluster == node.cluster
        and key.held_by.node_name == node.node_name
    )


def is_same_holder(one: KeyHolder, other: KeyHolder) -> bool:
    """Return whether two holders are one node; the basis may differ."""
    return (one.cluster, one.node_name, one.provider_id) == (
        other.cluster,
        other.node_name,
        other.provider_id,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """A claim to write."""

    public_key_pem: str
    holder: KeyHolder
    node: AttestedNodeObject
    """`resource_version` is empty and unused."""


def verify_no_conflicting_claim(key_name: str, requested: KeyHolder, inventory: Inventory) -> None:
    """E3: verify that the key is not banned and that no claim in this Cluster conflicts.

    K1 compares with claims in other Clusters. An offer must not reveal them.

    Raises:
        EndorsementKeyBanned, EndorsementKeyInUseLocally, NodeNameInUse: denied.
        EndorsementKeyHolderDeleting, EndorsementKeyRecordConflict, NodeNameReserved: wait.

    """
    key = inventory.endorsement_key(key_name)
    if key is not None:
        require_not_banned(key)
        held_by = key.held_by
        if held_by is not None and held_by.cluster == requested.cluster:
            node = inventory.attested_node(held_by.node_name)
            if not is_same_holder(held_by, requested) and is_complete_claim(key, node):
                state = _cached_state(inventory, held_by.provider_id)
                _require_key_free(held_by, state, requested, EndorsementKeyInUseLocally)
    node = inventory.attested_node(requested.node_name)
    if node is not None and node.endorsement_key != key_name:
        other = inventory.endorsement_key(node.endorsement_key)
        if is_complete_claim(other, node):
            state = _cached_state(inventory, node.provider_id)
            _require_name_free(other, state, requested)


def _cached_state(inventory: Inventory, provider_id: str) -> MachineState:
    machines = inventory.machines(provider_id)
    if any(not machine.deleting for machine in machines):
        return MachineState.PRESENT
    return MachineState.DELETING if machines else MachineState.ABSENT


def require_not_banned(key: EndorsementKeyObject) -> None:
    """E3: refuse a key that an operator has banned.

    Raises:
        EndorsementKeyBanned: the key is banned.

    """
    if key.banned:
        raise EndorsementKeyBanned("the endorsement key is banned")


def _outranks(requested: KeyHolder, basis: TrustBasis | None) -> bool:
    """Return whether a request on record competes with a claim that was made without a record."""
    return requested.basis is TrustBasis.RECORD and basis is not TrustBasis.RECORD


def _require_key_free(
    held_by: KeyHolder, state: MachineState, requested: KeyHolder, denial: type[AttestationError]
) -> None:
    """K1, E3: require that the holder is gone, or that the request outranks its claim."""
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
    """K2, E3: require that the name's claim is dead, or that the request outranks it."""
    basis = None if other is None or other.held_by is None else other.held_by.basis
    if state is MachineState.ABSENT or _outranks(requested, basis):
        return
    if state is MachineState.DELETING:
        raise NodeNameReserved("the node that has the name is not gone yet")
    raise NodeNameInUse("another endorsement key has a live claim to the node name")


def write_claims(
    request: ClaimRequest, *, claims: ClaimStore, reuse: NameReuse, now: datetime
) -> None:
    """Write the claims through the API server (K1 to K3); after a conflict, start again from K1.

    Raises:
        Denied, Waiting: another claim conflicts.
        ClaimConflict: other writers won every attempt.
        ApiServerUnavailable: from the store.

    """
    for _ in range(_MAX_ATTEMPTS):
        try:
            _Attempt(request=request, claims=claims, reuse=reuse, now=now).run()
        except ClaimConflict:
            continue
        return
    raise ClaimConflict("others write the same claims at the same time")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """One pass over K1, K2 and K3."""

    request: ClaimRequest
    claims: ClaimStore
    reuse: NameReuse
    now: datetime

    def run(self) -> None:
        holder = self.request.holder
        key = self.claims.endorsement_key(self.request.node.endorsement_key)
        node = self.claims.attested_node(holder.cluster, holder.node_name)
        held = self._take_key(key)
        self._take_name(node)
        # K3: otherwise a replica that read an older state could still take the key. Needed even if
        # the claim was complete: the replica that completed it may have crashed before its own K3.
        self.claims.set_key_holder(held, holder, self.now)

    def _take_key(self, key: EndorsementKeyObject | None) -> EndorsementKeyObject:
        """K1: create the key, confirm it, or take it from a claim that is not live."""
        holder = self.request.holder
        if key is None:
            return self.claims.create_endorsement_key(
                self.request.node.endorsement_key, self.request.public_key_pem, holder, self.now
            )
        require_not_banned(key)
        if key.held_by == holder:
            return key
        if key.held_by is not None and not is_same_holder(key.held_by, holder):
            state = self._key_state(key, key.held_by)
            _require_key_free(key.held_by, state, holder, EndorsementKeyInUse)
        return self.claims.set_key_holder(key, holder, self.now)

    def _take_name(self, node: AttestedNodeObject | None) -> AttestedNodeObject:
        """K2: create the name, confirm it, or take it from a dead claim; write `notAfter`."""
        requested = self.request.node
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
        return self._state(key, node)

    def _state(
        self, key: EndorsementKeyObject | None, node: AttestedNodeObject | None
    ) -> MachineState:
        """Return the state of a claim's Machine; an incomplete claim has none."""
        if key is None or key.held_by is None or node is None or not is_complete_claim(key, node):
            return MachineState.ABSENT
        # The two differ when a replica crashed while a new Machine took the claim over.
        provider_ids = {key.held_by.provider_id, node.provider_id}
        states = {self.claims.machine_state(node.cluster, p) for p in provider_ids}
        for state in (MachineState.PRESENT, MachineState.DELETING):
            if state in states:
                return state
        if self.reuse is NameReuse.AFTER_CERTIFICATE and node.not_after > self.now:
            return MachineState.DELETING
        return MachineState.ABSENT
