"""From an answer and what is known to what may be certified: the checks in their order.

Nothing is asked of anybody on behalf of bytes that are not proved: R, P, C, A and Q come before
M, E and S, and those before the claims. Source: docs/protocol.md section 5.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from common.binding import ChallengeInputs, answer_extra_data, challenge_secret
from common.evidence import Answer
from common.public_keys import PublicKey
from common.strict_json import parse_time
from common.tpm.attest import Attest
from signer.errors import AnswerExpired, NodeRefMismatch
from signer.model import (
    AttestedNodeObject,
    BootCounters,
    ChallengeKeys,
    ClaimStore,
    Csr,
    Inventory,
    KeyHolder,
    Machine,
    attested_node_name,
)
from signer.policy import Policy
from signer.verify.attestation_key import AttestationKey, verify_attestation_key
from signer.verify.claims import ClaimRequest, verify_no_conflicting_claim, write_claims
from signer.verify.endorsement_key import EndorsementKey, verify_endorsement_key
from signer.verify.endorsement_trust import verify_endorsement_trust
from signer.verify.machine import find_machine, verify_machine
from signer.verify.measured_boot import MeasuredBoot, verify_event_log
from signer.verify.parse import ParsedAnswer
from signer.verify.pcrs import Pcrs, verify_pcr_policy, verify_pcrs
from signer.verify.quote import verify_quote
from signer.verify.recognize import CsrKind
from signer.verify.request import verify_requester, verify_version
from signer.verify.serving_names import ServingNames, verify_serving_names
from signer.verify.trace import CheckTrace, no_trace
from signer.verify.x509.trust_anchors import TrustAnchors

CHALLENGE_MAX_AGE: Final = timedelta(minutes=15)
CHALLENGE_MAX_SKEW: Final = timedelta(seconds=60)
"""How old a challenge may be when its answer is judged, and how far ahead another replica's clock
may have been (C1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedAnswer:
    """What an answer proved; only `judge_answer` makes one."""

    kind: CsrKind
    holder: KeyHolder
    """Who may hold key and name, and on what basis."""
    machine: Machine
    public_key: PublicKey
    serving_names: ServingNames | None
    """For serving certificates only."""
    endorsement_key: EndorsementKey
    boot: BootCounters
    pcrs: Pcrs
    """The quoted values, bank to index to digest: for the audit record, not for the node."""
    measured_boot: MeasuredBoot | None
    """What the event log showed, where the policy asks for one."""
    alarms: tuple[NodeRefMismatch, ...]
    """Signs that an operator should look at, though they do not stop this certificate (M6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedAnswer:
    """A verified answer whose key and name are claimed; only `claim` makes one (K1 to K3)."""

    verified: VerifiedAnswer
    not_after: datetime


def verify_answer(  # noqa: PLR0913 - each by name, and each a thing of its own
    csr: Csr,
    kind: CsrKind,
    answer: ParsedAnswer,
    *,
    records: Inventory,
    policy: Policy,
    anchors: TrustAnchors,
    masters: ChallengeKeys,
    now: datetime,
    told: CheckTrace = no_trace,
) -> VerifiedAnswer:
    """Check R2, R3, C, A, Q, then M, E (and S for serving), from caches only.

    Raises:
        Denied, Waiting: with the reason.
        ChallengeKeyUnknown: read the Secret live and judge again before believing it.
        ApiServerUnavailable: a cache is not filled yet.

    """
    requester = told("R2 R3", verify_requester(csr, kind, policy))
    verify_version(policy)
    evidence, name = answer.evidence, answer.request.node_name
    master = _verify_challenge(evidence, masters, now)
    told("C1", evidence.challenge)
    attestation_key = told("A1", verify_attestation_key(evidence.ak_public, policy))
    # E1 comes early on an answer: without a key of a template there is no secret to derive
    endorsement_key = told("E1", verify_endorsement_key(evidence.ek_public))
    cluster = records.cluster()
    expected = _expected(csr, answer, cluster.uid, master, endorsement_key, attestation_key)
    attest = verify_quote(evidence.quote, evidence.signature, attestation_key, expected)
    told("Q1 Q2", attest)
    pcrs = verify_pcrs(
        attest,
        evidence.pcrs,
        requested=policy.pcr_selection,
        signature_hash=attestation_key.scheme.hash,
    )
    told("Q3", pcrs)
    measured_boot = told("Q4", _verify_measurements(pcrs, answer, records, policy))
    verified = verify_machine(
        records=records,
        provider_id=answer.provider_id,
        node_name=name,
        requester=requester,
        policy=policy,
    )
    told("M5 M1 M2 M3 M4 M6", verified)
    basis = verify_endorsement_trust(
        endorsement_key,
        evidence.ek_certificates,
        verified,
        requester=requester,
        records=records,
        policy=policy,
        anchors=anchors,
        now=now,
    )
    told("E2", basis)
    holder = KeyHolder(
        cluster=cluster.key, node_name=name, provider_id=answer.provider_id, basis=basis
    )
    verify_no_conflicting_claim(endorsement_key.name, holder, records)
    told("E3", holder)
    names = None
    if kind is CsrKind.SERVING:
        asked = answer.request.subject_alt_names
        names = told("S1 S2 S3", verify_serving_names(asked, verified.machine, records))
    return VerifiedAnswer(
        kind=kind,
        holder=holder,
        machine=verified.machine,
        public_key=answer.request.public_key,
        serving_names=names,
        endorsement_key=endorsement_key,
        boot=_boot(attest),
        pcrs=pcrs,
        measured_boot=measured_boot,
        alarms=verified.alarms,
    )


def _verify_challenge(evidence: Answer, masters: ChallengeKeys, now: datetime) -> bytes:
    """C1: the challenge is fresh by our own clock; return the master that it was made under."""
    age = now - parse_time(evidence.challenge.issued_at)
    if not -CHALLENGE_MAX_SKEW <= age <= CHALLENGE_MAX_AGE:
        raise AnswerExpired("the answered challenge is too old, or of the future")
    return masters.by_id(evidence.challenge.key)


def _expected(  # noqa: PLR0913, PLR0917 - everything that a quote is bound to
    csr: Csr,
    answer: ParsedAnswer,
    cluster_uid: str,
    master: bytes,
    endorsement_key: EndorsementKey,
    attestation_key: AttestationKey,
) -> bytes:
    """Derive what only the TPM of both keys can have quoted, for this very object (Q2)."""
    challenge = answer.evidence.challenge
    inputs = ChallengeInputs(
        cluster_uid=cluster_uid,
        signer_name=csr.signer_name,
        username=csr.username,
        offer_uid=challenge.uid,
        issued_at=challenge.issued_at,
        pkcs10_sha256=answer.request.sha256,
        ek_spki_sha256=endorsement_key.spki_sha256,
        ak_name=attestation_key.name,
    )
    return answer_extra_data(
        challenge_secret(master, inputs),
        name=csr.name,
        expiration_seconds=csr.expiration_seconds,
        usages=csr.usages,
    )


def _verify_measurements(
    pcrs: Pcrs, answer: ParsedAnswer, records: Inventory, policy: Policy
) -> MeasuredBoot | None:
    """Q4: PCR values and event log; which values are allowed may hang on the Machine's labels."""
    allowed = policy.pcr_allowed
    if policy.pcr_variants:
        allowed = policy.pcr_values_for(find_machine(records, answer.provider_id))
    verify_pcr_policy(pcrs, allowed, policy)
    if policy.event_log is None:
        return None
    return verify_event_log(answer.evidence.event_log, pcrs, policy.event_log)


def _boot(attest: Attest) -> BootCounters:
    return BootCounters(
        reset_count=attest.clock_info.reset_count,
        restart_count=attest.clock_info.restart_count,
        firmware_version=attest.firmware_version,
    )


def make_claims(
    verified: VerifiedAnswer,
    *,
    claims: ClaimStore,
    policy: Policy,
    now: datetime,
    not_after: datetime,
) -> ClaimedAnswer:
    """Make the node's claims, live (K1 to K3); a lost race begins again from K1, a few times.

    Raises:
        Denied, Waiting: somebody else's claim stands.
        ClaimConflict: raced too often; retry with backoff.
        ApiServerUnavailable: from the seam.

    """
    holder = verified.holder
    node = AttestedNodeObject(
        name=attested_node_name(holder.cluster, holder.node_name),
        resource_version="",
        cluster=holder.cluster,
        node_name=holder.node_name,
        provider_id=holder.provider_id,
        machine_name=verified.machine.name,
        endorsement_key=verified.endorsement_key.name,
        not_after=not_after,
        last_attested=now,
        boot=verified.boot,
    )
    claimant = ClaimRequest(public_key_pem=verified.endorsement_key.pem, holder=holder, node=node)
    write_claims(claimant, claims=claims, reuse=policy.name_reuse, now=now)
    return ClaimedAnswer(verified=verified, not_after=not_after)
