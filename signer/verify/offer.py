"""Verifies an offer before it gets a challenge: checks R2, R3, A1, M and E, from caches only.

Source: docs/protocol.md sections 3 and 5.
"""

from dataclasses import dataclass
from datetime import datetime

from signer.model import Csr, Inventory, KeyHolder
from signer.policy import Policy
from signer.verify.attestation_key import AttestationKey, verify_attestation_key
from signer.verify.claims import verify_no_conflicting_claim
from signer.verify.endorsement_key import EndorsementKey, verify_endorsement_key
from signer.verify.endorsement_trust import verify_endorsement_trust
from signer.verify.machine import verify_machine
from signer.verify.parse import ParsedOffer
from signer.verify.recognize import CsrKind
from signer.verify.request import verify_requester, verify_version
from signer.verify.trace import CheckTrace, no_trace
from signer.verify.x509.trust_anchors import TrustAnchors


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedOffer:
    """An offer that passed R, P, A, M and E; only `judge_offer` makes one."""

    offer: ParsedOffer
    endorsement_key: EndorsementKey
    attestation_key: AttestationKey


def verify_offer(  # noqa: PLR0913 - each by name, and each a thing of its own
    csr: Csr,
    kind: CsrKind,
    offer: ParsedOffer,
    *,
    records: Inventory,
    policy: Policy,
    anchors: TrustAnchors,
    now: datetime,
    told: CheckTrace = no_trace,
) -> VerifiedOffer:
    """Check R2, R3, A1, M and E from caches only.

    Raises:
        Denied, Waiting: with the reason.
        ApiServerUnavailable: a cache is not filled yet.

    """
    requester = told("R2 R3", verify_requester(csr, kind, policy))
    verify_version(policy)
    evidence, name = offer.evidence, offer.request.node_name
    attestation_key = told("A1", verify_attestation_key(evidence.ak_public, policy))
    machine = verify_machine(
        records=records,
        provider_id=offer.provider_id,
        node_name=name,
        requester=requester,
        policy=policy,
    )
    told("M5 M1 M2 M3 M4 M6", machine)
    endorsement_key = told("E1", verify_endorsement_key(evidence.ek_public))
    basis = verify_endorsement_trust(
        endorsement_key,
        evidence.ek_certificates,
        machine,
        requester=requester,
        records=records,
        policy=policy,
        anchors=anchors,
        now=now,
    )
    told("E2", basis)
    wanted = KeyHolder(
        cluster=records.cluster().key,
        node_name=name,
        provider_id=offer.provider_id,
        basis=basis,
    )
    verify_no_conflicting_claim(endorsement_key.name, wanted, records)
    told("E3", wanted)
    return VerifiedOffer(
        offer=offer, endorsement_key=endorsement_key, attestation_key=attestation_key
    )
