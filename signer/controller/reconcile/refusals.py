"""What a CSR without a success gets: a denial, a reason why it waits, or only a report."""

import contextlib
from datetime import timedelta
from functools import partial
from typing import Final

from common.errors import AttestationError, Denied, Unavailable, UnsupportedVersion, Waiting
from common.names import SUPPORTED_VERSIONS_ANNOTATION
from signer.controller.queue.workqueue import DONE, Result
from signer.controller.reconcile.csr_state import CsrState
from signer.errors import (
    AccessReviewUnavailable,
    AnnotationsFull,
    ApprovalDisabled,
    AttestedNodeUnreadable,
    AuthorityUnavailable,
    ChallengeKeyUnavailable,
    EndedCertificatesNotListed,
    EndorsementKeyNotRegistered,
    EventLogPolicyMismatch,
    MachineDeleting,
    PcrPolicyMismatch,
    PermissionMissing,
    ServingRequestExpired,
)
from signer.kinds.attested_node import AttestedNodeObject, MeasuredValues, Refusal
from signer.verify.attestation.measured_boot import describe_event_log
from signer.verify.attestation.measured_values import describe_boot
from signer.verify.machines.offered_key import describe_offered_key, may_offer_key
from signer.verify.refusals import describe_reasons
from signer.verify.requests.parse import ParsedAnswer, ParsedKubeletServing, ParsedOffer
from signer.verify.requests.refused_node import find_refused_node

_LASTING_FAILURES: Final = (
    AccessReviewUnavailable,
    AttestedNodeUnreadable,
    AuthorityUnavailable,
    ChallengeKeyUnavailable,
    EndedCertificatesNotListed,
    PermissionMissing,
)
"""Failures that last until an operator ends them, and in which a CSR can be annotated."""
_MAX_SERVING_WAIT: Final = timedelta(minutes=20)
"""How long a request to `kubernetes.io/kubelet-serving` may wait. The kubelet gives it up after 15
minutes and files another (client-go, util/certificate: certificateWaitTimeout); Kubernetes deletes
it only after a day. The rest is for clocks that differ."""


def deny(current: CsrState, error: Denied) -> Result:
    """Deny the CSR. If it is approved already, set Failed: the API server refuses Denied."""
    if current.is_dry_run:
        text = f"would be denied: {error.reason}: {error.message}"
        return report_dry_run(current, "would-deny", text, error)
    csrs, csr = current.cluster.csrs, current.reports.clear_pending_reason()
    if isinstance(error, UnsupportedVersion):
        versions = ",".join(current.policy.versions)
        with contextlib.suppress(AnnotationsFull):
            csr = csrs.annotate(csr, {SUPPORTED_VERSIONS_ANNOTATION: versions})
    if "Approved" in csr.conditions:
        csrs.fail(csr, error.reason, error.message)
        current.record("failed", error)
    else:
        csrs.deny(csr, error.reason, error.message)
        current.record("denied", error)
    current.reports.report(error, current.audit.provider_id)
    _enqueue_refusal(current, error)
    return DONE


def wait(current: CsrState, error: Waiting) -> Result:
    """Leave the CSR pending and report the reason; requeue on change of its topics."""
    if _is_expired_serving_request(current):
        detail = f"it waited for: {error.reason}: {error.message}"
        return deny(current, ServingRequestExpired("the kubelet has given up", detail=detail))
    new = current.reports.is_new(error)
    if new:
        try:
            current.reports.write_pending_reason(error)
        except AnnotationsFull as full:
            if current.parsed is None or isinstance(current.parsed, ParsedOffer):
                return deny(current, full)
        current.reports.report(error, current.audit.provider_id)
    _enqueue_refusal(current, error)
    if isinstance(error, EndorsementKeyNotRegistered):
        _enqueue_key_request(current)
    current.record("waiting", error, new=new)
    return current.requeue_on_change()


def report_dry_run(
    current: CsrState, outcome: str, text: str, error: Denied | None = None
) -> Result:
    """Leave the CSR pending, and report the verdict that the policy does not let us write.

    The Machine's condition does not change: another approver may accept this request.
    """
    withheld = ApprovalDisabled(f"the policy disables approvals; the request {text}")
    new = current.reports.is_new(withheld)
    if new:
        with contextlib.suppress(AnnotationsFull):
            current.reports.write_pending_reason(withheld)
        current.reports.record_event(withheld.reason, withheld.message)
    current.record(outcome, error, new=new)
    return current.requeue_on_change()


def report_unavailable(current: CsrState, error: Unavailable) -> None:
    """Report a failure that an operator may have to end; never raises."""
    if isinstance(error, AuthorityUnavailable):
        current.cluster.on_authority_failure()
    if isinstance(error, _LASTING_FAILURES) and current.reports.is_new(error):
        with contextlib.suppress(Unavailable, AnnotationsFull):
            current.reports.write_pending_reason(error)
            current.reports.report(error, current.audit.provider_id)


def _enqueue_refusal(current: CsrState, error: AttestationError) -> None:
    """Note the refusal for the claim of the node, if the request is proved to be of the node.

    Not while the policy disables approvals, because another approver decides, and not if the
    Machine is being deleted, because its node must lose its certificate.
    """
    if current.is_dry_run or isinstance(error, MachineDeleting):
        return
    with contextlib.suppress(Unavailable):
        node = find_refused_node(
            current.csr,
            current.cluster.inventory,
            node_name=current.audit.node_name,
            proved_keys=current.proved_keys,
        )
        if node is not None:
            refusal = Refusal(
                reason=error.reason,
                message=describe_reasons(error),
                time=current.dependencies.now(),
                request=current.csr.name,
                measured=_measured(current, node, error),
            )
            current.dependencies.enqueue_refusal(node, refusal)


def _measured(
    current: CsrState, node: AttestedNodeObject, error: AttestationError
) -> MeasuredValues | None:
    """Return what the policy refused, for an operator who may accept it.

    Only if the TPM of the claim quoted it: a copy of the node's certificate can file a request with
    the quote of any TPM.
    """
    quoted, answer, reasons = current.quoted, current.parsed, (error, *error.further)
    if (
        not any(isinstance(e, (PcrPolicyMismatch, EventLogPolicyMismatch)) for e in reasons)
        or not isinstance(answer, ParsedAnswer)
        or quoted is None
        or node.endorsement_key not in current.proved_keys
    ):
        return None
    boot = describe_event_log(answer.evidence.event_log, quoted)
    return describe_boot(quoted, boot, current.policy)


def _enqueue_key_request(current: CsrState) -> None:
    """Report the unregistered key of an offer to the operators."""
    csr, offer, key = current.csr, current.parsed, current.endorsement_key
    if not isinstance(offer, ParsedOffer) or key is None:
        return
    context = current.context(current.dependencies.now())
    with contextlib.suppress(Unavailable):
        machines = current.cluster.inventory.machines(offer.provider_id)
        if len(machines) == 1 and may_offer_key(csr, machines[0]):
            describe = partial(describe_offered_key, csr, offer, key, context)
            current.dependencies.enqueue_key_request(
                current.cluster.key, machines[0], key.name, describe
            )


def _is_expired_serving_request(current: CsrState) -> bool:
    age = current.dependencies.now() - current.csr.created
    return isinstance(current.parsed, ParsedKubeletServing) and age > _MAX_SERVING_WAIT
