"""Writes claims: which node holds which endorsement key and node name (K1 to K4).

Replicas and clusters write claims concurrently, so every step is a create, or a write under the
resourceVersion that was read. Source: docs/protocol.md sections 2, 5.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from signer.errors import (
    ClaimConflict,
    EndorsementKeyInUse,
    RequesterCredentialUnknown,
)
from signer.model import (
    AttestedNodeObject,
    ClaimStore,
    EndorsementKeyObject,
    Inventory,
    KeyHolder,
    MachineState,
)
from signer.policy import NameReuse, Policy, UnknownCredential
from signer.verify.claims import (
    is_complete_claim,
    is_replaced_by,
    is_same_holder,
    require_key_free,
    require_name_free,
    require_usable,
)
from signer.verify.credentials import credential_ids_after_issue, verify_known_credential

_MAX_ATTEMPTS: Final = 5
"""One of the racing replicas wins each attempt, so more conflicts than this are an outage."""


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


def write_claims(
    request: ClaimRequest,
    *,
    inventory: Inventory,
    claims: ClaimStore,
    policy: Policy,
    now: datetime,
) -> WrittenClaim:
    """Write the claims through the API server (K1 to K4); after a conflict, start again from K1.

    The first attempt reads both objects from the caches of `inventory`, unless they show another
    holder of the key or of the name. A cache may be old. But before this returns, each object is
    created, or written under the resourceVersion that was cached. So an object that has changed
    since causes a conflict, and the next attempt reads both objects from the API server.

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
            require_key_free(key.held_by, state, holder, EndorsementKeyInUse)
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
            require_name_free(other, self._state(other, node), self.request.holder)
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
            and is_replaced_by(
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
