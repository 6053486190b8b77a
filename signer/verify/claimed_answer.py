"""Writes the claims of a verified answer (K1 to K4); only then its certificate may be released."""

from dataclasses import dataclass
from datetime import datetime

from signer.errors import PcrPolicyMismatch, RequesterCredentialUnknown
from signer.model import AttestedNodeObject, BootState, ClaimStore, attested_node_name
from signer.policy import PcrMode, Policy
from signer.verify.answer import VerifiedAnswer
from signer.verify.claim_writes import ClaimRequest, write_claims
from signer.verify.context import VerificationContext


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreleasedCertificate:
    """A signed certificate that must not leave the signer before the claims name it."""

    pem: bytes
    credential_id: str
    """Empty for a serving certificate, with which no node authenticates."""
    not_after: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedAnswer:
    """A verified answer whose claims are written; only `make_claims` creates one."""

    verified: VerifiedAnswer
    certificate: bytes
    """The certificate as PEM. It may be released now."""
    credential_ids: tuple[str, ...]
    """IDs of the client certificates that the node may have, with this one."""
    alarms: tuple[RequesterCredentialUnknown, ...]
    """What K4 found and the policy does not deny: an operator should check it."""


def make_claims(
    verified: VerifiedAnswer,
    context: VerificationContext,
    *,
    claims: ClaimStore,
    certificate: UnreleasedCertificate,
) -> ClaimedAnswer:
    """Write the node's claims through the API server (K1 to K4), and release the certificate.

    Raises:
        Denied, Waiting: another claim conflicts, or K4 fails and the policy denies that.
        ClaimConflict: other writers won every attempt; retry with backoff.
        ApiServerUnavailable: from the store, or a cache has not been filled yet.

    """
    holder = verified.holder
    node = AttestedNodeObject(
        name=attested_node_name(holder.cluster, holder.node_name),
        resource_version="",
        cluster=holder.cluster,
        node_name=holder.node_name,
        provider_id=holder.provider_id,
        # The name of a MachinePool is not that of a Machine.
        machine_name="" if verified.machine.is_pool_member else verified.machine.name,
        machine_uid="" if verified.machine.is_pool_member else verified.machine.uid,
        endorsement_key=verified.endorsement_key.name,
        credential_ids=(),
        not_after=certificate.not_after,
        last_attested=context.now,
        boot=verified.boot,
        policy=context.policy.name,
        boot_state=_boot_state(verified, context.policy),
    )
    request = ClaimRequest(
        public_key_pem=verified.endorsement_key.pem,
        holder=holder,
        node=node,
        requester_credential=verified.requester_credential,
        issued_credential=certificate.credential_id,
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
        certificate=certificate.pem,
        credential_ids=written.credential_ids,
        alarms=written.alarms,
    )


def _boot_state(verified: VerifiedAnswer, policy: Policy) -> BootState | None:
    """Return what Q4 found, `None` if the policy has no rule for it."""
    if any(isinstance(alarm, PcrPolicyMismatch) for alarm in verified.alarms):
        return BootState.MISMATCH
    has_rules = policy.pcr_mode is not PcrMode.RECORD or policy.event_log is not None
    return BootState.VERIFIED if has_rules else None
