"""Answers: verifies one, writes the claims, issues the certificate, approves, and writes it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from http import HTTPStatus

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from common.errors import ApiServerUnavailable
from common.names import NODES_GROUP
from signer.claims.ended_entry import EndedEntry, NameClaims, next_entry
from signer.controller.observability import audit
from signer.controller.queue.workqueue import DONE, Result
from signer.controller.reconcile.csr_state import CsrState
from signer.controller.reconcile.dependencies import ClusterContext
from signer.controller.reconcile.refusals import report_dry_run
from signer.controller.reports.machine_reports import ATTESTED, ATTESTED_MESSAGE
from signer.errors import ChallengeKeyUnknown, CsrChanged, PermissionMissing
from signer.inventory.ended_certificates import EndedCertificates
from signer.issue.authority import CertificateAuthority
from signer.issue.certificate import certificate_not_after, issue_certificate
from signer.issue.lint import ExpectedCertificate, lint_certificate
from signer.kube.csrs import is_settled
from signer.seams import ChallengeKeys, ClaimStore
from signer.verify.answer import VerifiedAnswer, verify_answer
from signer.verify.claimed_answer import ClaimedAnswer, make_claims, verify_unchanged_claim
from signer.verify.machines.claim_writes import WithheldCertificate, remove_credential
from signer.verify.requests.parse import ParsedAnswer
from signer.verify.requests.recognize import CsrKind

_logger = logging.getLogger(__name__)


def certify_answer(current: CsrState, kind: CsrKind, answer: ParsedAnswer) -> Result:
    """Verify an answer, write the claims, issue the certificate, approve, and write it."""
    verified = _verify(current, kind, answer)
    _audit_answer(current, verified)
    current.verify_access(kind)
    dependencies, policy, now = current.dependencies, current.policy, current.dependencies.now()
    with _naming_missing_permission():
        authority = dependencies.authorities.authority(current.cluster.key)
    not_after = certificate_not_after(
        lifetime=policy.certificate.lifetime, csr=current.csr, authority=authority, now=now
    )
    if current.is_dry_run:
        # No requeue: until approvals are enabled again, this answer will have expired (C1).
        report_dry_run(current, "would-issue", "would get a certificate")
        return DONE
    entry = current.cluster.ended.entry(verified.holder.node_name)
    with _naming_missing_permission():
        claimed = make_claims(
            verified,
            current.context(now),
            claims=dependencies.claims,
            sign=partial(_sign, current, answer, verified, authority, not_after, now),
            entry=entry,
        )
    for unknown in claimed.alarms:
        current.raise_alarm(unknown, verified.machine)
    if claimed.node.others_end_at is not None and claimed.certificate.credential_id:
        # Before the release: where it cannot be written, this node waits.
        _end_others(current, claimed)
    current.audit.not_after = claimed.certificate.not_after
    current.audit.issued_credential = claimed.certificate.credential_id
    _release(current, claimed)
    current.cluster.withheld.note_release(current.csr.uid)
    current.record("issued")
    _report(current, verified, claimed)
    return DONE


def _end_others(current: CsrState, claimed: ClaimedAnswer) -> None:
    """List which group a write in the node's name must have."""
    name, claims = claimed.node.node_name, NameClaims(node=claimed.node, key=claimed.key)

    def following(listed: EndedCertificates) -> dict[str, EndedEntry | None]:
        entry = next_entry(
            listed.entry(name),
            claims,
            claimed.key.ban_lifted,
            lifetime=current.policy.certificate.lifetime,
            now=current.dependencies.now(),
        )
        return {name: entry}

    current.cluster.ended.change(following)


def _sign(  # noqa: PLR0913, PLR0917 - everything that the certificate depends on
    current: CsrState,
    answer: ParsedAnswer,
    verified: VerifiedAnswer,
    authority: CertificateAuthority,
    not_after: datetime,
    now: datetime,
    group: str,
) -> WithheldCertificate:
    """Sign the certificate, unless an earlier attempt did, and look at it.

    Raises `CertificateNotAsVerified`.
    """
    sign = partial(
        issue_certificate,
        verified,
        not_after=not_after,
        authority=authority,
        now=now,
        random=current.dependencies.random,
    )
    withheld = current.cluster.withheld.get_or_sign(
        current.csr, verified, authority, not_after, sign, group
    )
    expected = _expect(current, answer, verified, group, authority.certificate, now)
    lint_certificate(withheld.pem, expected, now)
    return withheld


def _expect(  # noqa: PLR0913, PLR0917 - as _sign
    current: CsrState,
    answer: ParsedAnswer,
    verified: VerifiedAnswer,
    group: str,
    authority: x509.Certificate,
    now: datetime,
) -> ExpectedCertificate:
    """Return what the certificate must say, from the request and the verdict."""
    names, seconds = verified.serving_names, current.csr.expiration_seconds
    lifetime = current.policy.certificate.lifetime
    return ExpectedCertificate(
        node_name=verified.holder.node_name,
        organizations=[NODES_GROUP, *([group] if names is None else [])],
        public_key=answer.request.public_key.public_bytes(
            Encoding.DER, PublicFormat.SubjectPublicKeyInfo
        ),
        serving_names=None if names is None else [*names.dns, *names.addresses],
        authority=authority,
        latest_end=now
        + (lifetime if seconds is None else min(lifetime, timedelta(seconds=seconds))),
    )


def forget_unreleased(cluster: ClusterContext, claims: ClaimStore, csr_name: str) -> None:
    """Remove from the claim what was signed for a CSR that is decided without it.

    Two replicas may record a certificate each for one CSR, of which one is released. Only a CSR
    with a verdict and without the certificate proves that it was never released: a write whose
    answer was lost may have succeeded, and a CSR that was deleted proves nothing. Raises
    `ApiServerUnavailable` and `ClaimConflict`.
    """
    for signed in cluster.withheld.unreleased(csr_name):
        csr = cluster.csrs.read(csr_name)
        if (
            csr is not None
            and csr.uid == signed.csr_uid
            and is_settled(csr)
            and csr.certificate != signed.certificate.pem
        ):
            credential = signed.certificate.credential_id
            remove_credential(cluster.key, signed.node_name, credential, claims)
            fields = cluster.key.log_fields() | {
                "csr": csr_name,
                "node": signed.node_name,
                "issuedCredential": credential,
            }
            _logger.info("certificate was not released", extra={"fields": fields})
    cluster.withheld.forget(csr_name)


@contextmanager
def _naming_missing_permission() -> Iterator[None]:
    """Raise `PermissionMissing` if the management cluster forbids a request.

    What is unique over all Clusters is asked over all namespaces, and an operator may have given
    the signer the permissions of a few.
    """
    try:
        yield
    except ApiServerUnavailable as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        message = "the management cluster forbids the signer a request: apply management-rbac.yaml"
        raise PermissionMissing(message, detail=error.detail) from error


def _verify(current: CsrState, kind: CsrKind, answer: ParsedAnswer) -> VerifiedAnswer:
    """Verify the answer; before a challenge key counts as unknown, the Secret is read."""
    challenge_keys = current.dependencies.challenge_keys
    try:
        return _verify_under(current, challenge_keys.cached(), kind, answer)
    except ChallengeKeyUnknown:
        return _verify_under(current, challenge_keys.refresh(), kind, answer)


def _verify_under(
    current: CsrState, challenge_keys: ChallengeKeys, kind: CsrKind, answer: ParsedAnswer
) -> VerifiedAnswer:
    context = current.context(current.dependencies.now())
    return verify_answer(current.csr, kind, answer, context, challenge_keys)


def _audit_answer(current: CsrState, verified: VerifiedAnswer) -> None:
    context = current.audit
    context.machine = verified.machine.name
    context.basis = verified.holder.basis.value
    context.boot, context.pcrs = verified.boot, verified.pcrs
    context.measured_boot = verified.measured_boot
    for alarm in verified.alarms:
        current.record(audit.ALARM, alarm)
    context.alarms = tuple(alarm.reason for alarm in verified.alarms)


def _release(current: CsrState, claimed: ClaimedAnswer) -> None:
    """Approve the CSR and write the certificate; after a conflict, once more on the live CSR."""
    try:
        _write_certificate(current, claimed)
    except CsrChanged:
        current.read_live()
        _write_certificate(current, claimed)


def _write_certificate(current: CsrState, claimed: ClaimedAnswer) -> None:
    """Approve the CSR unless it is approved, and write the certificate."""
    csrs = current.cluster.csrs
    current.reports.clear_pending_reason()
    if "Approved" not in current.csr.conditions:
        current.reports.csr = csrs.approve(current.csr, ATTESTED, "the TPM proved itself")
    # Between this and the release there is only one call, so no other exchange fits in between.
    verify_unchanged_claim(claimed, current.dependencies.claims)
    csrs.set_certificate(current.csr, claimed.certificate.pem)


def _report(current: CsrState, verified: VerifiedAnswer, claimed: ClaimedAnswer) -> None:
    """Record an Event for each alarm, and note that the Machine is attested."""
    for alarm in (*verified.alarms, *claimed.alarms):
        message = f"{alarm.message}; the certificate was issued"
        current.reports.record_event(alarm.reason, message)
    current.reports.enqueue_condition(verified.machine, ATTESTED, ATTESTED_MESSAGE, attested=True)
