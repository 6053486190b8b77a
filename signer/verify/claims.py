"""Claims: who holds which endorsement key and which node name (E3, K1 to K3).

A claim is whole when EndorsementKey and AttestedNode name each other, and living while one of
their provider IDs is in its Cluster. Two Machines, replicas or clusters can only be told apart by
what one of them wrote first, so every step is a create, or a write under the resourceVersion that
was read. Source: docs/protocol.md sections 2 and 5.
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

_ATTEMPTS: Final = 5
"""Replicas that race for one key or name lose to one winner each time; more is an outage."""


def is_complete_claim(key: EndorsementKeyObject | None, node: AttestedNodeObject | None) -> bool:
    """Tell whether a claim is whole. A banned key holds nothing."""
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
    """Tell whether two holders are one Machine under one name; the basis may have changed."""
    return (one.cluster, one.node_name, one.provider_id) == (
        other.cluster,
        other.node_name,
        other.provider_id,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """Who makes a claim, as it will be written."""

    public_key_pem: str
    holder: KeyHolder
    node: AttestedNodeObject
    """`resource_version` is empty: it is never looked at."""


def verify_no_conflicting_claim(key_name: str, wanted: KeyHolder, records: Inventory) -> None:
    """E3: the key is not banned, and no claim in this Cluster speaks against the claimant.

    Other clusters' claims are left to K1, so that nobody learns of them by an offer.

    Raises:
        EndorsementKeyBanned, EndorsementKeyInUseLocally, NodeNameInUse: no.
        EndorsementKeyHolderDeleting, EndorsementKeyRecordConflict, NodeNameReserved: not yet.

    """
    key = records.endorsement_key(key_name)
    if key is not None:
        require_not_banned(key)
        held_by = key.held_by
        if held_by is not None and held_by.cluster == wanted.cluster:
            node = records.attested_node(held_by.node_name)
            if not is_same_holder(held_by, wanted) and is_complete_claim(key, node):
                liveness = _cached_liveness(records, held_by.provider_id)
                _require_key_free(held_by, liveness, wanted, EndorsementKeyInUseLocally)
    node = records.attested_node(wanted.node_name)
    if node is not None and node.endorsement_key != key_name:
        other = records.endorsement_key(node.endorsement_key)
        if is_complete_claim(other, node):
            liveness = _cached_liveness(records, node.provider_id)
            _require_name_free(other, liveness, wanted)


def _cached_liveness(records: Inventory, provider_id: str) -> MachineState:
    machines = records.machines(provider_id)
    if any(not machine.deleting for machine in machines):
        return MachineState.PRESENT
    return MachineState.DELETING if machines else MachineState.ABSENT


def require_not_banned(key: EndorsementKeyObject) -> None:
    """E3: refuse a key that an operator has banned.

    Raises:
        EndorsementKeyBanned: it is.

    """
    if key.banned:
        raise EndorsementKeyBanned("the endorsement key is banned")


def _outranks(wanted: KeyHolder, basis: TrustBasis | None) -> bool:
    """Tell whether a record stands against a claim that was made without one."""
    return wanted.basis is TrustBasis.RECORD and basis is not TrustBasis.RECORD


def _require_key_free(
    held_by: KeyHolder, liveness: MachineState, wanted: KeyHolder, denial: type[AttestationError]
) -> None:
    """K1, E3: a key is free when its holder is gone; a record beats a claim without one."""
    if liveness is MachineState.ABSENT or _outranks(wanted, held_by.basis):
        return
    if liveness is MachineState.DELETING:
        raise EndorsementKeyHolderDeleting(
            "the node that holds the endorsement key is not gone yet"
        )
    if wanted.basis is TrustBasis.RECORD:
        raise EndorsementKeyRecordConflict("the endorsement key is on record for two nodes")
    raise denial("the endorsement key is held by another node")


def _require_name_free(
    other: EndorsementKeyObject | None, liveness: MachineState, wanted: KeyHolder
) -> None:
    """K2, E3: a name is free when its claim is dead; a record beats a claim without one."""
    basis = None if other is None or other.held_by is None else other.held_by.basis
    if liveness is MachineState.ABSENT or _outranks(wanted, basis):
        return
    if liveness is MachineState.DELETING:
        raise NodeNameReserved("the node that has the name is not gone yet")
    raise NodeNameInUse("the node name lives with another endorsement key")


def write_claims(
    claimant: ClaimRequest, *, claims: ClaimStore, reuse: NameReuse, now: datetime
) -> None:
    """K1 to K3, live; a lost race begins again from K1.

    Raises:
        Denied, Waiting: another claim stands.
        ClaimConflict: every attempt lost a race.
        ApiServerUnavailable: from the seam.

    """
    for _ in range(_ATTEMPTS):
        try:
            _Attempt(claimant=claimant, claims=claims, reuse=reuse, now=now).run()
        except ClaimConflict:
            continue
        return
    raise ClaimConflict("others write the same claims at the same time")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """One pass over K1, K2 and K3."""

    claimant: ClaimRequest
    claims: ClaimStore
    reuse: NameReuse
    now: datetime

    def run(self) -> None:
        wanted = self.claimant.holder
        key = self.claims.endorsement_key(self.claimant.node.endorsement_key)
        node = self.claims.attested_node(wanted.cluster, wanted.node_name)
        held = self._take_key(key)
        self._take_name(node)
        # K3: a replica that read an older state could otherwise take the key from now on. Where the
        # claim was whole, too: whoever made it so may have died before this very write.
        self.claims.set_key_holder(held, wanted, self.now)

    def _take_key(self, key: EndorsementKeyObject | None) -> EndorsementKeyObject:
        """K1: created, confirmed, or taken from a claim that is not living."""
        wanted = self.claimant.holder
        if key is None:
            return self.claims.create_endorsement_key(
                self.claimant.node.endorsement_key, self.claimant.public_key_pem, wanted, self.now
            )
        require_not_banned(key)
        if key.held_by == wanted:
            return key
        if key.held_by is not None and not is_same_holder(key.held_by, wanted):
            liveness = self._key_liveness(key, key.held_by)
            _require_key_free(key.held_by, liveness, wanted, EndorsementKeyInUse)
        return self.claims.set_key_holder(key, wanted, self.now)

    def _take_name(self, node: AttestedNodeObject | None) -> AttestedNodeObject:
        """K2: created, confirmed, or a dead one taken; `notAfter` is written with it."""
        wanted = self.claimant.node
        if node is None:
            return self.claims.create_attested_node(wanted)
        if node.endorsement_key != wanted.endorsement_key:
            other = self.claims.endorsement_key(node.endorsement_key)
            liveness = self._liveness(other, node)
            _require_name_free(other, liveness, self.claimant.holder)
        else:
            # An earlier certificate, of the other kind perhaps, may live longer than this one
            wanted = replace(wanted, not_after=max(wanted.not_after, node.not_after))
        return self.claims.replace_attested_node(node, wanted)

    def _key_liveness(self, key: EndorsementKeyObject, held_by: KeyHolder) -> MachineState:
        node = self.claims.attested_node(held_by.cluster, held_by.node_name)
        return self._liveness(key, node)

    def _liveness(
        self, key: EndorsementKeyObject | None, node: AttestedNodeObject | None
    ) -> MachineState:
        """Tell whether a claim lives; one that is not whole does not."""
        if key is None or key.held_by is None or node is None or not is_complete_claim(key, node):
            return MachineState.ABSENT
        # The two differ when a signer died while a Machine made anew took its claim over
        provider_ids = {key.held_by.provider_id, node.provider_id}
        states = {self.claims.machine_state(node.cluster, p) for p in provider_ids}
        for state in (MachineState.PRESENT, MachineState.DELETING):
            if state in states:
                return state
        if self.reuse is NameReuse.AFTER_CERTIFICATE and node.not_after > self.now:
            return MachineState.DELETING
        return MachineState.ABSENT
