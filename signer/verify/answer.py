"""Verifies an answer: its TPM proved itself, and inventory and policy allow the certificate.

The steps of `verify_answer`, from caches only, are `checks.ANSWER_ORDER`, and for a serving
certificate `checks.SERVING_ORDER` (docs/protocol.md section 5). Each call of `trace` ends one step.

`make_claims` (signer/verify/claimed_answer.py) then runs K1 to K4 against the API server. R0, R1
and P come first: recognize.py and parse.py in signer/verify/requests. The order keeps requests to
the API server for answers that are proved.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from common.errors import Denied
from common.evidence import Answer
from common.formats.strict_json import parse_time
from common.public_keys import PublicKey
from common.requests.binding import ChallengeInputs, answer_extra_data, challenge_secret
from common.tpm.attest import Attest
from signer.errors import AnswerExpired, NodeRefMismatch
from signer.kinds.attested_node import BootCounters
from signer.kinds.csr import Csr
from signer.kinds.endorsement_key import KeyHolder
from signer.kinds.machine import Machine
from signer.seams import ChallengeKeys
from signer.verify import checks
from signer.verify.attestation.attestation_key import AttestationKey
from signer.verify.attestation.endorsement_key import EndorsementKey, verify_endorsement_key
from signer.verify.attestation.measured_boot import MeasuredBoot, verify_event_log
from signer.verify.attestation.quote import verify_quote
from signer.verify.attestation.quoted_pcrs import Pcrs, verify_pcr_policy, verify_pcrs
from signer.verify.context import VerificationContext
from signer.verify.grounds.ground import Ground, PresentedKeys, present_keys
from signer.verify.grounds.trust import verify_endorsement_trust
from signer.verify.machines.attestation_certificate import (
    verify_presented_attestation_key,
)
from signer.verify.machines.claims import verify_no_conflicting_claim
from signer.verify.machines.machine import find_machine, verify_machine
from signer.verify.machines.serving_names import ServingNames, verify_serving_names
from signer.verify.requests.credentials import requester_credential
from signer.verify.requests.parse import ParsedAnswer
from signer.verify.requests.recognize import CsrKind
from signer.verify.requests.request import verify_requester, verify_version

CHALLENGE_MAX_AGE: Final = timedelta(minutes=15)
"""Maximum age of a challenge when its answer is verified (C1)."""
CHALLENGE_MAX_SKEW: Final = timedelta(seconds=60)
"""How far in the future `issuedAt` may be: the clocks of two replicas differ (C1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedAnswer:
    """What an answer proved; only `verify_answer` creates one."""

    kind: CsrKind
    holder: KeyHolder
    """The node that may hold the endorsement key and the node name, and on what basis."""
    machine: Machine
    public_key: PublicKey
    serving_names: ServingNames | None
    """`None` for client certificates."""
    ground: Ground
    """Which key of the TPM is trusted, and so is claimed."""
    boot: BootCounters
    pcrs: Pcrs
    """Quoted values, bank to index to digest, for the audit record. The node never sees them."""
    measured_boot: MeasuredBoot | None
    """What the event log shows; `None` where the policy asks for no event log."""
    requester_credential: str
    """ID of the certificate with which the node filed the answer; empty if there is none (K4)."""
    alarms: tuple[Denied | NodeRefMismatch, ...]
    """What Q4 and M6 found: an operator should check it. The certificate is issued."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What the policy says about quoted PCRs and event log (Q4)."""

    boot: MeasuredBoot | None
    """`None` where the policy asks for no event log."""
    alarms: tuple[Denied, ...]
    """Values that the policy does not allow, in mode Warn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proof:
    """What the TPM proved (C1 to Q4)."""

    keys: PresentedKeys
    boot: BootCounters
    pcrs: Pcrs
    measurements: Measurements


def verify_answer(
    csr: Csr,
    kind: CsrKind,
    answer: ParsedAnswer,
    context: VerificationContext,
    challenge_keys: ChallengeKeys,
) -> VerifiedAnswer:
    """Verify an answer, in the order of `checks`.

    Raises:
        Denied, Waiting: with the reason.
        ChallengeKeyUnknown: read the Secret again and verify again before believing it.
        ApiServerUnavailable: a cache has not been filled yet.

    """
    inventory, policy, trace = context.inventory, context.policy, context.trace
    node_name = answer.request.node_name

    # (R2 R3)
    requester = trace(checks.REQUESTER, verify_requester(csr, kind, policy))
    verify_version(policy)

    # (C1 A1 E1 Q1 Q2 Q3 Q4)
    proof = _verify_proof(csr, answer, context, challenge_keys)

    # (M)
    machine = verify_machine(answer.provider_id, node_name, requester, context)
    trace(checks.MACHINE, machine)

    # (A2 E2)
    ground = trace(checks.TRUST, verify_endorsement_trust(proof.keys, machine, context))

    # (E3)
    cluster = inventory.cluster().key
    holder = KeyHolder(
        cluster=cluster, node_name=node_name, provider_id=answer.provider_id, basis=ground.basis
    )
    verify_no_conflicting_claim(ground.names, holder, machine.machine, inventory)
    trace(checks.NO_CONFLICT, holder)

    # (S1 S2 S3)
    serving_names = _verify_serving_names(kind, answer, machine.machine, context)

    return VerifiedAnswer(
        kind=kind,
        holder=holder,
        machine=machine.machine,
        public_key=answer.request.public_key,
        serving_names=serving_names,
        ground=ground,
        boot=proof.boot,
        pcrs=proof.pcrs,
        measured_boot=proof.measurements.boot,
        requester_credential=requester_credential(csr, requester),
        alarms=(*proof.measurements.alarms, *machine.alarms),
    )


def _verify_proof(
    csr: Csr, answer: ParsedAnswer, context: VerificationContext, challenge_keys: ChallengeKeys
) -> _Proof:
    """Verify what the TPM proves: C1, A1, E1 and Q1 to Q4."""
    trace, evidence = context.trace, answer.evidence

    # (C1)
    challenge_key = _verify_challenge(evidence, challenge_keys, context.now)
    trace(checks.CHALLENGE, evidence.challenge)

    # (A1 E1) E1 is this early because the challenge secret depends on the endorsement key.
    attestation_key = trace(
        checks.ATTESTATION_KEY, verify_presented_attestation_key(evidence, context)
    )
    endorsement_key = trace(checks.ENDORSEMENT_KEY, verify_endorsement_key(evidence.ek_public))

    # (Q1 Q2)
    cluster_uid = context.inventory.cluster().uid
    inputs = _challenge_inputs(csr, answer, cluster_uid, endorsement_key, attestation_key)
    expected = answer_extra_data(
        challenge_secret(challenge_key, inputs),
        name=csr.name,
        pkcs10_sha256=answer.request.sha256,
        expiration_seconds=csr.expiration_seconds,
        usages=csr.usages,
        members=evidence.challenge.members,
    )
    attest = verify_quote(evidence.quote, evidence.signature, attestation_key, expected)
    trace(checks.QUOTE, attest)

    # (Q3)
    pcrs = verify_pcrs(
        attest,
        evidence.pcrs,
        requested=context.policy.pcrs.selection,
        signature_hash=attestation_key.scheme.hash,
    )
    trace(checks.PCR_DIGEST, pcrs)

    # (Q4)
    measurements = trace(checks.PCR_POLICY, _verify_measurements(pcrs, answer, context))

    keys = present_keys(endorsement_key, attestation_key, evidence, context, pcrs)
    return _Proof(
        keys=keys,
        boot=_boot_counters(attest),
        pcrs=pcrs,
        measurements=measurements,
    )


def _verify_serving_names(
    kind: CsrKind, answer: ParsedAnswer, machine: Machine, context: VerificationContext
) -> ServingNames | None:
    """S1 to S3: return the verified names, `None` for a client certificate, which has none."""
    if kind is not CsrKind.SERVING:
        return None
    requested = answer.request.subject_alt_names
    serving_names = verify_serving_names(requested, machine, context.inventory)
    return context.trace(checks.SERVING_NAMES, serving_names)


def _verify_challenge(evidence: Answer, challenge_keys: ChallengeKeys, now: datetime) -> bytes:
    """C1: check the age by the signer's clock; return the key that the challenge was made under."""
    age = now - parse_time(evidence.challenge.issued_at)
    if not -CHALLENGE_MAX_SKEW <= age <= CHALLENGE_MAX_AGE:
        raise AnswerExpired("the answered challenge is too old, or of the future")
    return challenge_keys.by_id(evidence.challenge.key)


def _challenge_inputs(
    csr: Csr,
    answer: ParsedAnswer,
    cluster_uid: str,
    endorsement_key: EndorsementKey,
    attestation_key: AttestationKey,
) -> ChallengeInputs:
    """Collect what the challenge secret was derived from, if the answer is honest (Q2)."""
    challenge = answer.evidence.challenge
    return ChallengeInputs(
        cluster_uid=cluster_uid,
        signer_name=csr.signer_name,
        username=csr.username,
        offer_uid=challenge.uid,
        issued_at=challenge.issued_at,
        pkcs10_sha256=answer.request.sha256,
        ek_spki_sha256=endorsement_key.spki_sha256,
        ak_name=attestation_key.tpm_name,
    )


def _verify_measurements(
    pcrs: Pcrs, answer: ParsedAnswer, context: VerificationContext
) -> Measurements:
    """Q4: check PCR values and event log; the Machine's labels may choose the allowed values."""
    policy = context.policy
    allowed = policy.pcrs.allowed
    if policy.pcrs.variants:
        allowed = policy.pcrs.values_for(find_machine(context.inventory, answer.provider_id))
    if policy.pcrs.until:
        allowed = policy.pcrs.without_ended(allowed, context.now)
    alarms = verify_pcr_policy(pcrs, allowed, policy.pcrs, answer.evidence.pcr_signatures)
    boot = None
    if policy.event_log is not None:
        boot = verify_event_log(answer.evidence.event_log, pcrs, policy.event_log)
    return Measurements(boot=boot, alarms=alarms)


def _boot_counters(attest: Attest) -> BootCounters:
    return BootCounters(
        reset_count=attest.clock_info.reset_count,
        restart_count=attest.clock_info.restart_count,
        firmware_version=attest.firmware_version,
    )
