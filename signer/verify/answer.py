"""Verifies an answer: its TPM proved itself, and inventory and policy allow the certificate.

Steps of `verify_answer`, from caches only (docs/protocol.md section 5):

1. R2, R3: the usages and the requester are allowed.
2. C1: the challenge is recent and was made under a known challenge key.
3. A1, E1: attestation key and endorsement key are acceptable keys of a TPM.
4. Q1, Q2: the quote is signed by the attestation key and bound to this challenge and object.
5. Q3, Q4: the PCR values are the quoted ones, and the policy allows them.
6. M5, M1, M2, M3, M4, M6, M7: the Machine exists, is ready and has this node name.
7. E2: the policy trusts the endorsement key for this Machine.
8. E3: the key is not banned, and no claim in this Cluster conflicts.
9. S1, S2, S3: for serving certificates, each requested name is the Machine's.

`make_claims` (signer/verify/claimed_answer.py) then runs K1 to K4 against the API server. R0, R1
and P come first: signer/verify/recognize.py and signer/verify/parse.py. The order keeps requests
to the API server for answers that are proved.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from common.binding import ChallengeInputs, answer_extra_data, challenge_secret
from common.evidence import Answer
from common.public_keys import PublicKey
from common.strict_json import parse_time
from common.tpm.attest import Attest
from signer.errors import AnswerExpired, NodeRefMismatch, PcrPolicyMismatch
from signer.model import (
    BootCounters,
    ChallengeKeys,
    Csr,
    KeyHolder,
    Machine,
)
from signer.verify.attestation_key import AttestationKey, verify_attestation_key
from signer.verify.claims import verify_no_conflicting_claim
from signer.verify.context import VerificationContext
from signer.verify.credentials import requester_credential
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
    endorsement_key: EndorsementKey
    boot: BootCounters
    pcrs: Pcrs
    """Quoted values, bank to index to digest, for the audit record. The node never sees them."""
    measured_boot: MeasuredBoot | None
    """What the event log shows; `None` where the policy asks for no event log."""
    requester_credential: str
    """ID of the certificate with which the node filed the answer; empty if there is none (K4)."""
    alarms: tuple[NodeRefMismatch | PcrPolicyMismatch, ...]
    """What Q4 and M6 found: an operator should check it. The certificate is issued."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What the policy says about quoted PCRs and event log (Q4)."""

    boot: MeasuredBoot | None
    """`None` where the policy asks for no event log."""
    alarms: tuple[PcrPolicyMismatch, ...]
    """Values that the policy does not allow, in mode Warn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proof:
    """What the TPM proved (steps 2 to 5)."""

    endorsement_key: EndorsementKey
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
    """Verify an answer, in the order that the module lists.

    Raises:
        Denied, Waiting: with the reason.
        ChallengeKeyUnknown: read the Secret again and verify again before believing it.
        ApiServerUnavailable: a cache has not been filled yet.

    """
    inventory, policy, trace = context.inventory, context.policy, context.trace
    node_name = answer.request.node_name

    # (R2 R3)
    requester = trace("R2 R3", verify_requester(csr, kind, policy))
    verify_version(policy)

    # (C1 A1 E1 Q1 Q2 Q3 Q4)
    proof = _verify_proof(csr, answer, context, challenge_keys)

    # (M5 M1 M2 M3 M4 M6 M7)
    machine = verify_machine(answer.provider_id, node_name, requester, context)
    trace("M5 M1 M2 M3 M4 M6 M7", machine)

    # (E2)
    key, certificates = proof.endorsement_key, answer.evidence.ek_certificates
    basis = verify_endorsement_trust(key, certificates, machine, requester, context)
    trace("E2", basis)

    # (E3)
    cluster = inventory.cluster().key
    holder = KeyHolder(
        cluster=cluster, node_name=node_name, provider_id=answer.provider_id, basis=basis
    )
    verify_no_conflicting_claim(key.name, holder, machine.machine, inventory)
    trace("E3", holder)

    # (S1 S2 S3)
    serving_names = _verify_serving_names(kind, answer, machine.machine, context)

    return VerifiedAnswer(
        kind=kind,
        holder=holder,
        machine=machine.machine,
        public_key=answer.request.public_key,
        serving_names=serving_names,
        endorsement_key=key,
        boot=proof.boot,
        pcrs=proof.pcrs,
        measured_boot=proof.measurements.boot,
        requester_credential=requester_credential(csr, requester),
        alarms=(*proof.measurements.alarms, *machine.alarms),
    )


def _verify_proof(
    csr: Csr, answer: ParsedAnswer, context: VerificationContext, challenge_keys: ChallengeKeys
) -> _Proof:
    """Verify what the TPM proves: steps 2 to 5 of the module's list."""
    trace, evidence = context.trace, answer.evidence

    # (C1)
    challenge_key = _verify_challenge(evidence, challenge_keys, context.now)
    trace("C1", evidence.challenge)

    # (A1 E1) E1 is this early because the challenge secret depends on the endorsement key.
    schemes = context.policy.attestation_key_schemes
    attestation_key = trace("A1", verify_attestation_key(evidence.ak_public, schemes))
    endorsement_key = trace("E1", verify_endorsement_key(evidence.ek_public))

    # (Q1 Q2)
    cluster_uid = context.inventory.cluster().uid
    inputs = _challenge_inputs(csr, answer, cluster_uid, endorsement_key, attestation_key)
    expected = answer_extra_data(
        challenge_secret(challenge_key, inputs),
        name=csr.name,
        expiration_seconds=csr.expiration_seconds,
        usages=csr.usages,
    )
    attest = verify_quote(evidence.quote, evidence.signature, attestation_key, expected)
    trace("Q1 Q2", attest)

    # (Q3)
    pcrs = verify_pcrs(
        attest,
        evidence.pcrs,
        requested=context.policy.pcr_selection,
        signature_hash=attestation_key.scheme.hash,
    )
    trace("Q3", pcrs)

    # (Q4)
    measurements = trace("Q4", _verify_measurements(pcrs, answer, context))

    return _Proof(
        endorsement_key=endorsement_key,
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
    return context.trace("S1 S2 S3", serving_names)


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
        ak_name=attestation_key.name,
    )


def _verify_measurements(
    pcrs: Pcrs, answer: ParsedAnswer, context: VerificationContext
) -> Measurements:
    """Q4: check PCR values and event log; the Machine's labels may choose the allowed values."""
    policy = context.policy
    allowed = policy.pcr_allowed
    if policy.pcr_variants:
        allowed = policy.pcr_values_for(find_machine(context.inventory, answer.provider_id))
    alarms = verify_pcr_policy(pcrs, allowed, policy)
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
