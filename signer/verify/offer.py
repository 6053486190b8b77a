"""Verifies an offer before it gets a challenge.

Steps, from caches only (docs/protocol.md sections 3 and 5):

1. R2, R3: the usages and the requester are allowed.
2. A1: the attestation key is a restricted signing key of its TPM.
3. M5, M1, M2, M3, M4, M6, M7: the Machine exists, is ready and has this node name.
4. E1: the endorsement key has a TCG template and is strong.
5. E2: the policy trusts the endorsement key for this Machine.
6. E3: the key is not banned, and no claim in this Cluster conflicts.

R0, R1 and P come first: signer/verify/recognize.py and signer/verify/parse.py.
"""

from dataclasses import dataclass

from signer.model import Csr, KeyHolder, Machine
from signer.verify.attestation_key import AttestationKey, verify_attestation_key
from signer.verify.claims import verify_no_conflicting_claim
from signer.verify.context import VerificationContext
from signer.verify.credentials import requester_credential
from signer.verify.endorsement_key import EndorsementKey, verify_endorsement_key
from signer.verify.endorsement_trust import verify_endorsement_trust
from signer.verify.machine import verify_machine
from signer.verify.parse import ParsedOffer
from signer.verify.recognize import CsrKind
from signer.verify.request import verify_requester, verify_version


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
    """Verify an offer, in the order that the module lists.

    Raises:
        Denied, Waiting: with the reason.
        ApiServerUnavailable: a cache has not been filled yet.

    """
    inventory, policy, trace = context.inventory, context.policy, context.trace
    evidence, node_name = offer.evidence, offer.request.node_name

    # (R2 R3)
    requester = trace("R2 R3", verify_requester(csr, kind, policy))
    verify_version(policy)

    # (A1)
    attestation_key = trace(
        "A1", verify_attestation_key(evidence.ak_public, policy.attestation_key_schemes)
    )

    # (M5 M1 M2 M3 M4 M6 M7)
    machine = verify_machine(offer.provider_id, node_name, requester, context)
    trace("M5 M1 M2 M3 M4 M6 M7", machine)

    # (E1)
    endorsement_key = trace("E1", verify_endorsement_key(evidence.ek_public))

    # (E2)
    basis = verify_endorsement_trust(
        endorsement_key, evidence.ek_certificates, machine, requester, context
    )
    trace("E2", basis)

    # (E3)
    holder = KeyHolder(
        cluster=inventory.cluster().key,
        node_name=node_name,
        provider_id=offer.provider_id,
        basis=basis,
    )
    verify_no_conflicting_claim(endorsement_key.name, holder, machine.machine, inventory)
    trace("E3", holder)

    return VerifiedOffer(
        offer=offer,
        endorsement_key=endorsement_key,
        attestation_key=attestation_key,
        machine=machine.machine,
        requester_credential=requester_credential(csr, requester),
    )
