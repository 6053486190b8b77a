"""Verifies an answer: its TPM proved itself, and inventory and policy allow the certificate.

The steps of `verify_answer`, from caches only, are `checks.ANSWER_ORDER`, and for a serving
certificate `checks.SERVING_ORDER` (docs/protocol.md section 5). Each call of `trace` ends one step.

`make_claims` (signer/verify/claimed_answer.py) then runs K1 to K4 against the API server. R0, R1
and P come first: recognize.py and parse.py in signer/verify/requests. The order keeps requests to
the API server for answers that are proved.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from common.errors import Denied
from common.evidence import Answer
from common.formats.strict_json import parse_time
from common.public_keys import PublicKey
from common.requests.binding import ChallengeInputs, answer_extra_data, challenge_secret
from common.requests.pkcs10 import SubjectAltName
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
from signer.verify.grounds.ground import Ground, PresentedKeys
from signer.verify.grounds.trust import verify_endorsement_trust
from signer.verify.machines.attestation_certificate import (
    verify_presented_attestation_key,
)
from signer.verify.machines.claims import verify_no_conflicting_claim
from signer.verify.machines.machine import VerifiedMachine, find_machine, verify_machine
from signer.verify.machines.serving_names import ServingNames, verify_serving_names
from signer.verify.refusals import Refusals, proved
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
    """What the TPM proved (C1 to Q4); `None` is what Q3 or Q4 refused."""

    keys: PresentedKeys | None
    boot: BootCounters
    pcrs: Pcrs | None
    measurements: Measurements | None


def verify_answer(
    csr: Csr,
    kind: CsrKind,
    answer: ParsedAnswer,
    context: VerificationContext,
    challenge_keys: ChallengeKeys,
) -> VerifiedAnswer:
    """Verify an answer, in the order of `checks`.

    Raises:
        Denied, Waiting: with the reason; it decides. `further` has those of later checks.
        ChallengeKeyUnknown: read the Secret again and verify again before believing it.
        ApiServerUnavailable: a cache has not been filled yet.

    """
    # (R2 R3)
    requester = context.trace(checks.REQUESTER, verify_requester(csr, kind, context.policy))
    verify_version(context.policy)

    # (C1 A1 E1 Q1 Q2 Q3 Q4) From Q3 on, a refusal is kept, and the next checks are made too.
    refusals = Refusals(goes_on=True)
    context = replace(context, refusals=refusals)
    attempt = context.attempt
    proof = _verify_proof(csr, answer, context, challenge_keys)

    # (M)
    machine = attempt(
        (), verify_machine, answer.provider_id, answer.request.node_name, requester, context
    )

    # (A2 E2)
    ground = attempt(checks.TRUST, _verify_trust, proof.keys, machine, context)

    # (E3)
    holder = attempt(checks.NO_CONFLICT, _verify_holder, answer, machine, ground, context)

    # (S1 S2 S3)
    serving_names = None
    if kind is CsrKind.SERVING:
        requested = answer.request.subject_alt_names
        serving_names = attempt(
            checks.SERVING_NAMES, _verify_serving_names, requested, machine, context
        )

    refusals.raise_first()
    measurements = proved(proof.measurements)
    return VerifiedAnswer(
        kind=kind,
        holder=proved(holder),
        machine=proved(machine).machine,
        public_key=answer.request.public_key,
        serving_names=proved(serving_names) if kind is CsrKind.SERVING else None,
        ground=proved(ground),
        boot=proof.boot,
        pcrs=proved(proof.pcrs),
        measured_boot=measurements.boot,
        requester_credential=requester_credential(csr, requester),
        alarms=(*measurements.alarms, *proved(machine).alarms),
    )


def _verify_proof(
    csr: Csr, answer: ParsedAnswer, context: VerificationContext, challenge_keys: ChallengeKeys
) -> _Proof:
    """Verify what the TPM proves: C1, A1, E1 and Q1 to Q4. `context` keeps refusals from Q3 on."""
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

    # (Q3 Q4)
    pcrs = context.attempt(
        checks.PCR_DIGEST,
        verify_pcrs,
        attest,
        evidence.pcrs,
        requested=context.policy.pcrs.selection,
        signature_hash=attestation_key.scheme.hash,
    )
    measurements = context.attempt(checks.PCR_POLICY, _verify_measurements, pcrs, answer, context)
    keys = None
    if pcrs is not None:
        keys = PresentedKeys(
            endorsement=endorsement_key,
            attestation=attestation_key,
            evidence=evidence,
            pcrs=pcrs,
            context=context,
        )
    return _Proof(keys=keys, boot=_boot_counters(attest), pcrs=pcrs, measurements=measurements)


def _verify_trust(
    keys: PresentedKeys | None, machine: VerifiedMachine | None, context: VerificationContext
) -> Ground:
    """A2, E2: return the ground of trust."""
    return verify_endorsement_trust(proved(keys), proved(machine), context.without_calls())


def _verify_holder(
    answer: ParsedAnswer,
    machine: VerifiedMachine | None,
    ground: Ground | None,
    context: VerificationContext,
) -> KeyHolder:
    """E3: return the node that may hold the keys."""
    ground = proved(ground)
    holder = KeyHolder.of(
        context.inventory.cluster().key,
        node_name=answer.request.node_name,
        provider_id=answer.provider_id,
        basis=ground.basis,
    )
    verify_no_conflicting_claim(ground.names, holder, proved(machine).machine, context.inventory)
    return holder


def _verify_serving_names(
    requested: Sequence[SubjectAltName] | None,
    machine: VerifiedMachine | None,
    context: VerificationContext,
) -> ServingNames:
    """S1 to S3: return the verified names."""
    return verify_serving_names(requested, proved(machine).machine, context.inventory)


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
    quoted: Pcrs | None, answer: ParsedAnswer, context: VerificationContext
) -> Measurements:
    """Q4: check PCR values and event log; the Machine's labels may choose the allowed values."""
    pcrs, evidence, policy = proved(quoted), answer.evidence, context.policy
    alarms = context.attempt((), _verify_values, pcrs, answer, context)
    boot = None
    if policy.event_log is not None:
        log, rules = evidence.event_log, policy.event_log
        boot = proved(context.attempt((), verify_event_log, log, pcrs, rules))
    return Measurements(boot=boot, alarms=proved(alarms))


def _verify_values(
    pcrs: Pcrs, answer: ParsedAnswer, context: VerificationContext
) -> tuple[Denied, ...]:
    rules = context.policy.pcrs
    allowed = rules.allowed
    if rules.variants:
        allowed = rules.values_for(find_machine(context.inventory, answer.provider_id))
    if rules.until:
        allowed = rules.without_ended(allowed, context.now)
    return verify_pcr_policy(pcrs, allowed, rules, answer.evidence.pcr_signatures)


def _boot_counters(attest: Attest) -> BootCounters:
    return BootCounters(
        reset_count=attest.clock_info.reset_count,
        restart_count=attest.clock_info.restart_count,
        firmware_version=f"{attest.firmware_version:#018x}",
    )
