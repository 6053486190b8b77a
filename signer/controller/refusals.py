"""What a CSR without a success gets: a denial, a reason why it waits, or only a report."""

import contextlib
from datetime import timedelta
from functools import partial
from typing import Final

from common.errors import Denied, Unavailable, UnsupportedVersion, Waiting
from common.names import SUPPORTED_VERSIONS_ANNOTATION
from signer.controller.reconciliation import Reconciliation
from signer.controller.workqueue import DONE, Result
from signer.errors import (
    AccessReviewUnavailable,
    AnnotationsFull,
    ApprovalDisabled,
    AuthorityUnavailable,
    ChallengeKeyUnavailable,
    EndorsementKeyNotRegistered,
    ServingRequestExpired,
)
from signer.verify.offered_key import describe_offered_key, may_offer_key
from signer.verify.parse import ParsedKubeletServing, ParsedOffer

_LASTING_FAILURES: Final = (
    AccessReviewUnavailable,
    AuthorityUnavailable,
    ChallengeKeyUnavailable,
)
"""Failures that last until an operator ends them, and in which a CSR can be annotated."""
_MAX_SERVING_WAIT: Final = timedelta(minutes=20)
"""How long a request to `kubernetes.io/kubelet-serving` may wait. The kubelet gives it up after 15
minutes and files another (client-go, util/certificate: certificateWaitTimeout); Kubernetes deletes
it only after a day. The rest is for clocks that differ."""


def deny(current: Reconciliation, error: Denied) -> Result:
    """Deny the CSR. If it is approved already, set Failed: the API server refuses Denied."""
    if current.is_dry_run:
        text = f"would be denied: {error.reason}: {error.message}"
        return withhold(current, "would-deny", text, error)
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
    return DONE


def wait(current: Reconciliation, error: Waiting) -> Result:
    """Leave the CSR pending and report the reason; requeue on change of its topics."""
    if _is_expired_serving_request(current):
        detail = f"it waited for: {error.reason}: {error.message}"
        return deny(current, ServingRequestExpired("the kubelet has given up", detail=detail))
    new = current.reports.is_new(error)
    if new:
        try:
            current.reports.write_pending_reason(error)
        except AnnotationsFull as e:
            if current.parsed is None or isinstance(current.parsed, ParsedOffer):
                return deny(current, e)
        current.reports.report(error, current.audit.provider_id)
    if isinstance(error, EndorsementKeyNotRegistered):
        _note_key_request(current)
    current.record("waiting", error, new=new)
    return current.requeue_on_change()


def withhold(
    current: Reconciliation, outcome: str, text: str, error: Denied | None = None
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


def explain_retry(current: Reconciliation, error: Unavailable) -> None:
    """Report a failure that an operator may have to end; never raises."""
    if isinstance(error, _LASTING_FAILURES) and current.reports.is_new(error):
        with contextlib.suppress(Unavailable, AnnotationsFull):
            current.reports.write_pending_reason(error)
            current.reports.report(error, current.audit.provider_id)


def _note_key_request(current: Reconciliation) -> None:
    """Note the unregistered key of an offer for the operators."""
    csr, offer, key = current.csr, current.parsed, current.endorsement_key
    if not isinstance(offer, ParsedOffer) or key is None:
        return
    context = current.context(current.dependencies.now())
    with contextlib.suppress(Unavailable):
        machines = current.cluster.inventory.machines(offer.provider_id)
        if len(machines) == 1 and may_offer_key(csr, machines[0]):
            describe = partial(describe_offered_key, csr, offer, key, context)
            current.dependencies.note_key_request(
                current.cluster.key, machines[0], key.name, describe
            )


def _is_expired_serving_request(current: Reconciliation) -> bool:
    age = current.dependencies.now() - current.csr.created
    return isinstance(current.parsed, ParsedKubeletServing) and age > _MAX_SERVING_WAIT
