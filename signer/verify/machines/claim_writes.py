"""Writes claims: which node holds which endorsement key and node name (K1 to K4).

Replicas and clusters write claims concurrently, so every step is a create, or a write under the
resourceVersion that was read. Source: docs/protocol.md sections 2, 5.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from common.node_identity import attested_group
from signer.claims.ended_entry import EndedEntry, NameTerm, next_term
from signer.claims.node_problem import renewal_deadline
from signer.errors import (
    AttestedNodeUnreadable,
    ClaimConflict,
    EndorsementKeyInUse,
    RequesterCredentialUnknown,
)
from signer.kinds.attested_node import AttestedNodeObject
from signer.kinds.cluster import ClusterKey
from signer.kinds.endorsement_key import EndorsementKeyObject, KeyHolder, TrustBasis, is_same_holder
from signer.kinds.machine import MachineState
from signer.policy.policy import NameReuse, Policy, UnknownCredential
from signer.seams import ClaimStore, Inventory
from signer.verify.machines.claims import (
    is_complete_claim,
    is_replaced_by,
    require_key_free,
    require_name_free,
    require_usable,
)
from signer.verify.requests.credentials import credential_ids_after_issue, verify_known_credential

_MAX_ATTEMPTS: Final = 5
"""One of the racing replicas wins each attempt, so more conflicts than this are an outage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WithheldCertificate:
    """A signed certificate that must not leave the signer before the claims name it."""

    pem: bytes
    credential_id: str
    """Empty for a serving certificate, with which no node authenticates."""
    not_after: datetime


Sign = Callable[[str], WithheldCertificate]
"""Signs the certificate; one for clients is in this group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """A claim to write."""

    public_key_pem: str
    key_names: frozenset[str]
    """The EndorsementKeys of all keys of the TPM; `node.endorsement_key` is the trusted one."""
    holder: KeyHolder
    node: AttestedNodeObject
    """What it says about certificates is empty and unused."""
    requester_credential: str
    """ID of the certificate with which the node filed its request; empty if there is none."""
    sign: Sign
    """Called once the checks have passed."""
    entry: EndedEntry | None
    """What the workload cluster requires of writes in the name of the node; `None` for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenClaim:
    """What the claims of a node say now; only `write_claims` creates one."""

    key: EndorsementKeyObject
    node: AttestedNodeObject
    """It names the client certificates that the node may have, with the one that waits."""
    certificate: WithheldCertificate
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
        AttestedNodeUnreadable: the AttestedNode of the requester.
        ApiServerUnavailable: from the store, or a cache has not been filled yet.

    """
    attempt = _Attempt(request=request, inventory=inventory, claims=claims, policy=policy, now=now)
    reads = (attempt.read_cached, *[attempt.read_live] * (_MAX_ATTEMPTS - 1))
    for read in reads:
        try:
            return attempt.run(*read())
        except ClaimConflict:
            continue
    raise ClaimConflict("others write the same claims at the same time")


def remove_credential(
    cluster: ClusterKey, node_name: str, credential_id: str, claims: ClaimStore
) -> None:
    """Remove the ID of a client certificate that was never released from the claim of its node.

    The last ID stays: a claim without one says that nothing is known of the node's certificates
    (K4).

    Raises:
        ClaimConflict: other writers won every attempt.
        ApiServerUnavailable: from the store.

    """
    for _ in range(_MAX_ATTEMPTS):
        try:
            node = claims.attested_node(cluster, node_name)
            known = () if node is None else node.credential_ids
            kept = tuple(known_id for known_id in known if known_id != credential_id)
            if node is None or kept == known or not kept:
                return
            claims.replace_attested_node(node, node.replace(credential_ids=kept))
        except AttestedNodeUnreadable:
            return  # it names no certificate
        except ClaimConflict:
            continue
        return
    raise ClaimConflict("others write the same claim at the same time")


_Read = tuple[EndorsementKeyObject | None, AttestedNodeObject | None]
"""The two objects of a claim, where they exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """One pass over K1, K4, K2 and K3."""

    request: ClaimRequest
    inventory: Inventory
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

    def read_cached(self) -> _Read:
        """Return both objects from the caches.

        Read them live if another node has key or name, or if the certificate is unknown (K4).
        """
        holder, key_name = self.request.holder, self.request.node.endorsement_key
        key = self.inventory.endorsement_key(key_name)
        node = self.inventory.attested_node(holder.node_name)
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
        """Make every check before the first write: a refused request changes no claim."""
        holder = self.request.holder
        for name in sorted(self.request.key_names - {self.request.node.endorsement_key}):
            # From the caches: it is not claimed, so that no write could prove what was read.
            self._require_free(self.inventory.endorsement_key(name))
        self._require_key(key)  # (K1)
        alarm = self._find_unknown_credential(node)  # (K4)
        if alarm is not None and self._denies_unknown_credential(node):
            raise alarm
        self._require_name(node)  # (K2)
        next_name = self._next_term(key, node)
        group = attested_group(self.request.node.endorsement_key, next_name.term)
        certificate = self.request.sign(group)
        held = self._take_key(key)
        written = self._take_name(node, certificate, next_name)
        # K3: otherwise a replica that read an older state could still take the key. Needed even if
        # the claim was complete: the replica that completed it may have crashed before its own K3.
        # It also fails if the key was banned, released or taken since it was read.
        confirmed = self.claims.set_key_holder(held, holder, self.now)
        alarms = () if alarm is None else (alarm,)
        return WrittenClaim(key=confirmed, node=written, certificate=certificate, alarms=alarms)

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

    def _denies_unknown_credential(self, node: AttestedNodeObject | None) -> bool:
        """K4: return whether an unknown certificate is denied. A newer claim may name it."""
        if self.policy.renewals.unknown_credential is not UnknownCredential.DENY:
            return False
        lost = self.inventory.went_back(self.request.holder.cluster)
        return lost is None or node is None or not lost.covers(node.last_attested, self.now)

    def _require_key(self, key: EndorsementKeyObject | None) -> None:
        """K1: require that the node has the key, or may take it."""
        self._require_free(key)
        held_by = None if key is None else key.held_by
        if held_by is None or not is_same_holder(held_by, self.request.holder):
            self._require_no_other_node(key, held_by)

    def _require_free(self, key: EndorsementKeyObject | None) -> None:
        """Require that a key is usable here, and that no other living node holds it."""
        holder = self.request.holder
        if key is None:
            return
        require_usable(key, holder.cluster, holder.provider_id)
        if key.held_by is not None and not is_same_holder(key.held_by, holder):
            state = self._holder_state(key, key.held_by)
            require_key_free(key.held_by, state, holder, EndorsementKeyInUse)

    def _holder_state(self, key: EndorsementKeyObject, held_by: KeyHolder) -> MachineState:
        """Return the state of the Machine of the node that holds a key."""
        if key.is_released_from(held_by.cluster, held_by.provider_id):
            # First: what the holder's tenant writes into its objects must not keep a released key.
            return MachineState.ABSENT
        try:
            node = self.claims.attested_node(held_by.cluster, held_by.node_name)
        except AttestedNodeUnreadable:
            # It names no Machine, but `heldBy` has the provider ID.
            return self.claims.machine_state(held_by.cluster, held_by.provider_id, "")
        if node is not None and self._is_former(node):
            return self._state_when_absent(node)
        return self._state(key, node)

    def _require_no_other_node(
        self, key: EndorsementKeyObject | None, held_by: KeyHolder | None
    ) -> None:
        """K1: require that no AttestedNode of another living Machine names the key.

        `held_by` does not show such a node after a crash between K1 and K2, which leaves the key
        with another name of the same Machine, and after `clusterctl move` to a management cluster
        that has the EndorsementKey already.
        """
        holder, key_name = self.request.holder, self.request.node.endorsement_key
        nodes = {(each.cluster, each.node_name) for each in (holder, held_by) if each is not None}
        found = self.inventory.attested_nodes_with_key(key_name)
        if found is None:
            found = self.claims.attested_nodes_with_key(key_name)
        for each in found:
            if (each.cluster, each.node_name) in nodes:
                continue
            try:
                node = self.claims.attested_node(each.cluster, each.node_name)
            except AttestedNodeUnreadable:
                node = each
            if node is None or node.endorsement_key != key_name or self._is_former(node):
                continue
            other = KeyHolder.of(
                node.cluster,
                node_name=node.node_name,
                provider_id=node.provider_id,
                # The basis of its claim is lost. It may be a record, which no other one outranks.
                basis=TrustBasis.REGISTERED,
            )
            if key is None or not key.is_released_from(other.cluster, other.provider_id):
                state = self.claims.machine_state(node.cluster, node.provider_id, node.machine_name)
                require_key_free(other, state, holder, EndorsementKeyInUse)

    def _require_name(self, node: AttestedNodeObject | None) -> None:
        """K2: require that no other key has the node name, or that the name may be taken."""
        if node is not None and node.endorsement_key not in self.request.key_names:
            other = self.claims.endorsement_key(node.endorsement_key)
            require_name_free(other, self._state(other, node), self.request.holder)

    def _next_term(
        self, key: EndorsementKeyObject | None, node: AttestedNodeObject | None
    ) -> NameTerm:
        """K2: return the term of a client certificate. Raises `BanNotRecorded` and others."""
        return next_term(
            self.request.node.endorsement_key,
            key,
            node,
            self.request.entry,
            lifetime=self.policy.certificate.lifetime,
            now=self.now,
        )

    def _take_key(self, key: EndorsementKeyObject | None) -> EndorsementKeyObject:
        """K1: create the key, confirm it, or take it from a claim that is not live."""
        holder = self.request.holder
        if key is None:
            return self.claims.create_endorsement_key(
                self.request.node.endorsement_key, self.request.public_key_pem, holder, self.now
            )
        if (
            key.held_by is not None
            and is_same_holder(key.held_by, holder)
            and key.held_by.basis is holder.basis
        ):
            return key
        return self.claims.set_key_holder(key, holder, self.now)

    def _take_name(
        self, node: AttestedNodeObject | None, certificate: WithheldCertificate, name: NameTerm
    ) -> AttestedNodeObject:
        """K2: create, confirm or take over the AttestedNode; write what it says of certificates."""
        request = self.request
        credential_ids = credential_ids_after_issue(
            node,
            request.node.endorsement_key,
            presented=request.requester_credential,
            issued=certificate.credential_id,
        )
        requested = request.node.replace(
            credential_ids=credential_ids,
            not_after=certificate.not_after,
            renewal_deadline=renewal_deadline(self.now, certificate.not_after),
            term=name.term,
            since=name.since,
            others_end_at=name.others_end_at,
        )
        if not certificate.credential_id:
            # A serving certificate renews no client certificate.
            requested = _with_renewal_of(node, requested)
        if node is None:
            return self.claims.create_attested_node(requested)
        latest = max(requested.last_attested, node.last_attested)
        requested = requested.replace(last_attested=latest)
        if node.endorsement_key == requested.endorsement_key:
            # An earlier certificate, perhaps the serving one, may expire later than this one.
            requested = requested.replace(not_after=max(requested.not_after, node.not_after))
        return self.claims.replace_attested_node(node, requested)

    def _is_former(self, node: AttestedNodeObject) -> bool:
        """Return whether the request is for the Machine of the claim, which was made again."""
        requested = self.request.node
        return node.cluster == requested.cluster and is_replaced_by(
            node, requested.provider_id, requested.machine_name, requested.machine_uid
        )

    def _state(
        self, key: EndorsementKeyObject | None, node: AttestedNodeObject | None
    ) -> MachineState:
        """Return the state of a claim's Machine; an incomplete claim has none."""
        if key is None or key.held_by is None or node is None or not is_complete_claim(key, node):
            return MachineState.ABSENT
        # The provider IDs differ when a replica crashed while a new Machine took the claim over.
        # In that case the AttestedNode still names the old Machine, so any Machine with the
        # provider ID counts.
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
        """Return the state of a claim whose Machine is gone.

        With `nameReuse: AfterCertificate` the claim holds until its certificate expires.
        """
        if self.policy.name_reuse is NameReuse.AFTER_CERTIFICATE and node.not_after > self.now:
            return MachineState.DELETING
        return MachineState.ABSENT


def _with_renewal_of(
    earlier: AttestedNodeObject | None, node: AttestedNodeObject
) -> AttestedNodeObject:
    """Return a claim that says of the client certificate what the earlier claim of the TPM says."""
    if earlier is None or earlier.endorsement_key != node.endorsement_key:
        return node.replace(renewal_deadline=None, term=0)
    return node.replace(
        renewal_deadline=earlier.renewal_deadline,
        last_refusal=earlier.last_refusal,
        term=earlier.term,
        since=earlier.since,
        others_end_at=earlier.others_end_at,
    )
