"""Answers: verifies one, writes the claims, issues the certificate, approves, and writes it."""

from functools import partial

from signer.controller import audit
from signer.controller.credential_lists import publish_entries, read_entry
from signer.controller.machine_reports import ATTESTED
from signer.controller.reconciliation import Reconciliation
from signer.controller.refusals import withhold
from signer.controller.workqueue import DONE, Result
from signer.errors import ChallengeKeyUnknown, CsrChanged
from signer.inventory.credential_list import encode_entry
from signer.issue.certificate import certificate_not_after, issue_certificate
from signer.model import ChallengeKeys
from signer.verify.answer import VerifiedAnswer, verify_answer
from signer.verify.claimed_answer import ClaimedAnswer, make_claims
from signer.verify.parse import ParsedAnswer
from signer.verify.recognize import CsrKind


def certify_answer(current: Reconciliation, kind: CsrKind, answer: ParsedAnswer) -> Result:
    """Verify an answer, write the claims, issue the certificate, approve, and write it."""
    verified = _verify(current, kind, answer)
    _audit_answer(current, verified)
    current.verify_access(kind)
    dependencies, policy, now = current.dependencies, current.policy, current.dependencies.now()
    authority = dependencies.authorities.authority(current.cluster.key)
    not_after = certificate_not_after(
        lifetime=policy.certificate_lifetime, csr=current.csr, authority=authority, now=now
    )
    if current.is_dry_run:
        # Not reconciled again: the answer would expire (C1).
        withhold(current, "would-issue", "would get a certificate")
        return DONE
    unreleased = issue_certificate(
        verified, not_after=not_after, authority=authority, now=now, random=dependencies.random
    )
    claimed = make_claims(
        verified, current.context(now), claims=dependencies.claims, certificate=unreleased
    )
    for unknown in claimed.alarms:
        current.raise_alarm(unknown, verified.machine)
    if policy.publish_credentials and unreleased.credential_id:
        # Before the release: otherwise the node could not write with its new certificate.
        publish_entries(
            current.cluster.credentials,
            {verified.holder.node_name: encode_entry(claimed.credential_ids)},
            partial(read_entry, dependencies.claims, current.cluster.key),
        )
    current.audit.not_after = not_after
    current.audit.issued_credential = unreleased.credential_id
    _release(current, claimed.certificate)
    current.record("issued")
    _report(current, verified, claimed)
    return DONE


def _verify(current: Reconciliation, kind: CsrKind, answer: ParsedAnswer) -> VerifiedAnswer:
    """Verify the answer; before a challenge key counts as unknown, the Secret is read."""
    challenge_keys = current.dependencies.challenge_keys
    try:
        return _verify_under(current, challenge_keys.cached(), kind, answer)
    except ChallengeKeyUnknown:
        return _verify_under(current, challenge_keys.refresh(), kind, answer)


def _verify_under(
    current: Reconciliation, challenge_keys: ChallengeKeys, kind: CsrKind, answer: ParsedAnswer
) -> VerifiedAnswer:
    context = current.context(current.dependencies.now())
    return verify_answer(current.csr, kind, answer, context, challenge_keys)


def _audit_answer(current: Reconciliation, verified: VerifiedAnswer) -> None:
    context = current.audit
    context.machine = verified.machine.name
    context.basis = verified.holder.basis.value
    context.boot, context.pcrs = verified.boot, verified.pcrs
    context.measured_boot = verified.measured_boot
    for alarm in verified.alarms:
        current.record(audit.ALARM, alarm)
    context.alarms = tuple(alarm.reason for alarm in verified.alarms)


def _release(current: Reconciliation, certificate: bytes) -> None:
    """Approve the CSR and write the certificate; after a conflict, once more on the live CSR."""
    try:
        _write_certificate(current, certificate)
    except CsrChanged:
        current.read_live()
        _write_certificate(current, certificate)


def _write_certificate(current: Reconciliation, certificate: bytes) -> None:
    """Approve the CSR unless it is approved, and write the certificate."""
    csrs = current.cluster.csrs
    current.reports.clear_pending_reason()
    if "Approved" not in current.csr.conditions:
        current.reports.csr = csrs.approve(current.csr, ATTESTED, "the TPM proved itself")
    csrs.set_certificate(current.csr, certificate)


def _report(current: Reconciliation, verified: VerifiedAnswer, claimed: ClaimedAnswer) -> None:
    """Record an Event for each alarm, and note that the Machine is attested."""
    for alarm in (*verified.alarms, *claimed.alarms):
        message = f"{alarm.message}; the certificate was issued"
        current.reports.record_event(alarm.reason, message)
    message = "the TPM of the machine attested, and its node has a certificate"
    current.reports.note_machine(verified.machine, ATTESTED, message, attested=True)
