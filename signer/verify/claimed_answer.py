"""Writes the claims of a verified answer (K1 to K4); only then its certificate may be released.

`verify_unchanged_claim` comes last before the release.
"""

from dataclasses import dataclass

from signer.claims.ended_entry import EndedEntry
from signer.errors import ClaimConflict, PcrPolicyMismatch, RequesterCredentialUnknown
from signer.kinds.attested_node import AttestedNodeObject, BootState, attested_node_name
from signer.kinds.endorsement_key import EndorsementKeyObject
from signer.policy.policy import PcrMode, Policy
from signer.seams import ClaimStore
from signer.verify.answer import VerifiedAnswer
from signer.verify.attestation.measured_values import describe_boot
from signer.verify.context import VerificationContext
from signer.verify.machines.claim_writes import (
    ClaimRequest,
    Sign,
    WithheldCertificate,
    write_claims,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedAnswer:
    """A verified answer whose claims are written; only `make_claims` creates one."""

    verified: VerifiedAnswer
    certificate: WithheldCertificate
    """It may be released while the claim is unchanged."""
    key: EndorsementKeyObject
    node: AttestedNodeObject
    """It names the client certificates that the node may have, with this one."""
    alarms: tuple[RequesterCredentialUnknown, ...]
    """What K4 found and the policy does not deny: an operator should check it."""


def make_claims(
    verified: VerifiedAnswer,
    context: VerificationContext,
    *,
    claims: ClaimStore,
    sign: Sign,
    entry: EndedEntry | None = None,
) -> ClaimedAnswer:
    """Write the node's claims through the API server (K1 to K4), and release the certificate.

    `sign` signs it for a group. `entry` is what the workload cluster requires of writes in the name
    of the node, `None` for nothing.

    Raises:
        Denied, Waiting: another claim conflicts, or K4 fails and the policy denies that.
        ClaimConflict: other writers won every attempt; retry with backoff.
        ApiServerUnavailable: from the store, or a cache has not been filled yet.

    """
    request = ClaimRequest(
        public_key_pem=verified.ground.key.pem,
        key_names=verified.ground.names,
        holder=verified.holder,
        node=_attested_node(verified, context),
        requester_credential=verified.requester_credential,
        sign=sign,
        entry=entry,
    )
    written = write_claims(
        request,
        inventory=context.inventory,
        claims=claims,
        policy=context.policy,
        now=context.now,
    )
    return ClaimedAnswer(
        verified=verified,
        certificate=written.certificate,
        key=written.key,
        node=written.node,
        alarms=written.alarms,
    )


def _attested_node(verified: VerifiedAnswer, context: VerificationContext) -> AttestedNodeObject:
    """Return what the AttestedNode of this answer has to say, without its certificate."""
    holder = verified.holder
    return AttestedNodeObject(
        name=attested_node_name(holder.cluster, holder.node_name),
        resource_version="",
        namespace=holder.cluster_namespace,
        cluster_name=holder.cluster_name,
        node_name=holder.node_name,
        provider_id=holder.provider_id,
        # The name of a MachinePool is not that of a Machine.
        machine_name="" if verified.machine.is_pool_member else verified.machine.name,
        machine_uid="" if verified.machine.is_pool_member else verified.machine.uid,
        endorsement_key=verified.ground.key.name,
        credential_ids=(),
        not_after=context.now,
        last_attested=context.now,
        boot=verified.boot,
        policy=context.policy.name,
        basis=holder.basis,
        boot_state=_boot_state(verified, context.policy),
        measured=describe_boot(verified.pcrs, verified.measured_boot, context.policy),
    )


def verify_unchanged_claim(claimed: ClaimedAnswer, claims: ClaimStore) -> None:
    """Verify in the API server that the claim still names the certificate, and key and Machine.

    A later exchange of the node ends the certificates that are recorded before the one that filed
    its request. A signer that was slow meanwhile must not release one of those.

    Raises:
        ClaimConflict: the claim changed; the answer has to be verified again.
        ApiServerUnavailable: from the store.

    """
    holder, issued = claimed.verified.holder, claimed.certificate.credential_id
    node = claims.attested_node(holder.cluster, holder.node_name)
    if (
        node is None
        or node.endorsement_key != claimed.verified.ground.key.name
        or node.provider_id != holder.provider_id
        or (issued and issued not in node.credential_ids)
    ):
        raise ClaimConflict("the claim has changed since the certificate was recorded")


def _boot_state(verified: VerifiedAnswer, policy: Policy) -> BootState | None:
    """Return what Q4 found, `None` if the policy has no rule for it."""
    if any(alarm.check == PcrPolicyMismatch.check for alarm in verified.alarms):
        return BootState.MISMATCH
    has_rules = policy.pcrs.mode is not PcrMode.RECORD or policy.event_log is not None
    return BootState.VERIFIED if has_rules else None
