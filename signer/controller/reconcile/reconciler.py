"""Reconciles one CSR: verifies it, writes the verdict, and turns errors into decisions.

The reconciler keeps no state between two reconciliations of a CSR. All state is in the objects, and
every write carries the resourceVersion that was verified. So the next reconciliation completes what
a crash interrupted, and two signers may reconcile the same CSR. Source: docs/protocol.md, sections
3 and 5.
"""

import logging
from dataclasses import dataclass

from common.errors import Denied, Ignored, Unavailable, Waiting
from signer.controller.observability import audit
from signer.controller.queue.workqueue import DONE, RETRY, Requeue, Result
from signer.controller.reconcile.answers import certify_answer, forget_unreleased
from signer.controller.reconcile.csr_state import CsrState
from signer.controller.reconcile.dependencies import ClusterContext, Dependencies
from signer.controller.reconcile.offers import challenge_offer
from signer.controller.reconcile.refusals import deny, report_dry_run, report_unavailable, wait
from signer.controller.reports.machine_reports import ATTESTED
from signer.errors import ChallengeKeyUnknown, NotOptedIn, OfferExpired
from signer.kinds.csr import Csr
from signer.verify.kubelet_serving import verify_kubelet_serving
from signer.verify.requests.parse import (
    ParsedKubeletServing,
    ParsedOffer,
    ParsedRequest,
    parse_request,
)
from signer.verify.requests.recognize import CsrKind

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CsrReconciler:
    """Reconciles the CSRs of all clusters."""

    dependencies: Dependencies

    def reconcile(self, csr: Csr, cluster: ClusterContext) -> Result:
        """Verify a CSR from the cache and write the verdict; never raises."""
        current = CsrState(self.dependencies, cluster, csr)
        try:
            return _write_verdict(current)
        except (ChallengeKeyUnknown, NotOptedIn) as error:
            # The key may be one that another replica made and this one has not read yet.
            # The Cluster may opt in again before its caches are closed.
            current.record("ignored", error, new=False)
            return Result(requeue=Requeue.ON_CHANGE)
        except Ignored as error:
            if isinstance(error, OfferExpired):
                # If the clock of this machine is ahead, nothing else shows it for a Cluster. A line
                # for each would fill the log after an outage.
                audit.count_verdict(current.audit, "ignored", error)
            current.record("ignored", error, new=False)
            return DONE
        except Unavailable as error:
            current.record("retried", error)
            report_unavailable(current, error)
            return RETRY
        except Exception:
            # An exception outside the error tree is a bug: it is never a verdict.
            fields = cluster.key.log_fields() | {"csr": csr.name}
            _logger.exception("reconciliation failed", extra={"fields": fields})
            return RETRY

    def forget_unreleased(self, csr_name: str, cluster: ClusterContext) -> None:
        """Remove from the claim what was signed for a CSR that is decided without it."""
        forget_unreleased(cluster, self.dependencies.claims, csr_name)


def _write_verdict(current: CsrState) -> Result:
    try:
        current.load_policy()
        kind = current.recognize()
        current.cluster.shares.verify_share(current.csr.username)
        current.parsed = parse_request(current.csr, kind)
        return _verify_parsed(current, kind, current.parsed)
    except Denied as error:
        return deny(current, error)
    except Waiting as error:
        return wait(current, error)


def _verify_parsed(current: CsrState, kind: CsrKind, parsed: ParsedRequest) -> Result:
    current.audit.node_name = parsed.request.node_name
    if isinstance(parsed, ParsedKubeletServing):
        current.audit.kind = "serving"
        return _approve_kubelet_serving(current, parsed)
    current.audit.provider_id = parsed.provider_id
    if isinstance(parsed, ParsedOffer):
        current.audit.kind = "offer"
        return challenge_offer(current, kind, parsed)
    current.audit.kind = "answer"
    return certify_answer(current, kind, parsed)


def _approve_kubelet_serving(current: CsrState, serving: ParsedKubeletServing) -> Result:
    """Verify and approve a request that kube-controller-manager then signs."""
    if "Approved" in current.csr.conditions:
        return DONE
    context = current.context(current.dependencies.now())
    verified = verify_kubelet_serving(current.csr, serving, context)
    current.audit.machine = verified.machine.name
    current.verify_access(CsrKind.BUILTIN_SERVING)
    if current.is_dry_run:
        return report_dry_run(current, "would-approve", "would be approved")
    message = "the names are those of the node's Machine"
    current.cluster.csrs.approve(current.reports.clear_pending_reason(), ATTESTED, message)
    current.record("approved")
    return DONE
