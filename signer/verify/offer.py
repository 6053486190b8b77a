"""Verifies an offer before it gets a challenge.

The steps, from caches only, are `checks.OFFER_ORDER` (docs/protocol.md sections 3 and 5). Each call
of `trace` ends one step.

R0, R1 and P come first: signer/verify/requests/recognize.py and signer/verify/requests/parse.py.
"""

from dataclasses import dataclass

from signer.kinds.csr import Csr
from signer.kinds.endorsement_key import KeyHolder
from signer.kinds.machine import Machine
from signer.verify import checks
from signer.verify.attestation.attestation_key import AttestationKey
from signer.verify.attestation.endorsement_key import EndorsementKey, verify_endorsement_key
from signer.verify.context import VerificationContext
from signer.verify.grounds.ground import PresentedKeys
from signer.verify.grounds.trust import verify_endorsement_trust
from signer.verify.machines.attestation_certificate import (
    verify_presented_attestation_key,
)
from signer.verify.machines.claims import verify_no_conflicting_claim
from signer.verify.machines.machine import verify_machine
from signer.verify.requests.credentials import requester_credential
from signer.verify.requests.parse import ParsedOffer
from signer.verify.requests.recognize import CsrKind
from signer.verify.requests.request import verify_requester, verify_version


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedOffer:
    """An offer that passed every check; only `verify_offer` creates one."""

    offer: ParsedOffer
    endorsement_key: EndorsementKey
    attestation_key: AttestationKey
    machine: Machine
    requester_credential: str
    """ID of the certificate with which the node filed the offer; empty if there is none (K4)."""


def verify_offer(
    csr: Csr, kind: CsrKind, offer: ParsedOffer, context: VerificationContext
) -> VerifiedOffer:
    """Verify an offer, in the order of `checks`.

    Raises:
        Denied, Waiting: with the reason.
        ApiServerUnavailable: a cache has not been filled yet.

    """
    inventory, policy, trace = context.inventory, context.policy, context.trace
    evidence, node_name = offer.evidence, offer.request.node_name

    # (R2 R3)
    requester = trace(checks.REQUESTER, verify_requester(csr, kind, policy))
    verify_version(policy)

    # (A1)
    attestation_key = trace(
        checks.ATTESTATION_KEY, verify_presented_attestation_key(evidence, context)
    )

    # (M)
    machine = verify_machine(offer.provider_id, node_name, requester, context)

    # (E1)
    endorsement_key = trace(checks.ENDORSEMENT_KEY, verify_endorsement_key(evidence.ek_public))

    # (A2 E2)
    keys = PresentedKeys(
        endorsement=endorsement_key,
        attestation=attestation_key,
        evidence=evidence,
        pcrs=None,
        context=context,
    )
    ground = trace(checks.TRUST, verify_endorsement_trust(keys, machine, context))

    # (E3)
    holder = KeyHolder.of(
        inventory.cluster().key,
        node_name=node_name,
        provider_id=offer.provider_id,
        basis=ground.basis,
    )
    verify_no_conflicting_claim(ground.names, holder, machine.machine, inventory)
    trace(checks.NO_CONFLICT, holder)

    return VerifiedOffer(
        offer=offer,
        endorsement_key=endorsement_key,
        attestation_key=attestation_key,
        machine=machine.machine,
        requester_credential=requester_credential(csr, requester),
    )
