"""Writes the claims of a verified answer (K1 to K3); its certificate is issued only after that."""

from dataclasses import dataclass
from datetime import datetime

from signer.model import AttestedNodeObject, ClaimStore, attested_node_name
from signer.verify.answer import VerifiedAnswer
from signer.verify.claims import ClaimRequest, write_claims
from signer.verify.context import VerificationContext


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedAnswer:
    """A verified answer whose claims are written; only `make_claims` creates one."""

    verified: VerifiedAnswer
    not_after: datetime


def make_claims(
    verified: VerifiedAnswer,
    context: VerificationContext,
    *,
    claims: ClaimStore,
    not_after: datetime,
) -> ClaimedAnswer:
    """Write the node's claims through the API server (K1 to K3).

    Raises:
        Denied, Waiting: another claim conflicts.
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
        not_after=not_after,
        last_attested=context.now,
        boot=verified.boot,
    )
    request = ClaimRequest(public_key_pem=verified.endorsement_key.pem, holder=holder, node=node)
    write_claims(
        request,
        inventory=context.inventory,
        claims=claims,
        reuse=context.policy.name_reuse,
        now=context.now,
    )
    return ClaimedAnswer(verified=verified, not_after=not_after)
