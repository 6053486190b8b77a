"""The state of one reconciliation of one CSR, and the steps that several kinds of request share."""

from datetime import datetime
from typing import TypeVar

from common.errors import AttestationError
from signer.controller import audit
from signer.controller.active_policies import PolicyInForce
from signer.controller.audit import AuditContext
from signer.controller.cluster_context import ClusterContext
from signer.controller.csr_reports import CsrReports
from signer.controller.dependencies import Dependencies
from signer.controller.workqueue import Requeue, Result
from signer.errors import CsrChanged
from signer.model import Csr, Machine
from signer.policy import AccessReview, Approval, Policy
from signer.verify.access import verify_access
from signer.verify.context import VerificationContext
from signer.verify.endorsement_key import EndorsementKey
from signer.verify.parse import ParsedRequest
from signer.verify.recognize import CsrKind, recognize_csr

T = TypeVar("T")


class Reconciliation:
    """One reconciliation of one CSR."""

    def __init__(self, dependencies: Dependencies, cluster: ClusterContext, csr: Csr) -> None:
        self.dependencies = dependencies
        self.cluster = cluster
        self.reports = CsrReports(
            csr, cluster, note_machine=dependencies.note_machine, now=dependencies.now
        )
        self.audit = AuditContext(cluster=cluster.key, csr=csr, started=dependencies.monotonic())
        self.parsed: ParsedRequest | None = None
        self.endorsement_key: EndorsementKey | None = None
        self.is_dry_run = False
        """Whether the policy disables approvals."""
        self._rules: PolicyInForce

    @property
    def csr(self) -> Csr:
        """The CSR as last read or written."""
        return self.reports.csr

    @property
    def policy(self) -> Policy:
        """The policy that `load_policy` loaded."""
        return self._rules.policy

    def load_policy(self) -> None:
        """Load the policy of the Cluster; all steps use it, also when another one replaces it.

        Raises `Waiting` if the Cluster does not have exactly one.
        """
        self._rules = self.dependencies.policies.for_cluster(self.cluster.key)
        self.is_dry_run = self.policy.approval is Approval.DISABLED

    def recognize(self) -> CsrKind:
        """Return the kind of the CSR. Raises `Ignored` for one that the signer does not serve."""
        return recognize_csr(self.csr, self.cluster.inventory.cluster(), self.policy)

    def read_live(self) -> None:
        """Replace the cached CSR by the one on the API server, and recognize it again.

        A write conflicted, so the cache lacks a change, perhaps a verdict of another signer. What
        was verified is in `spec`, which is immutable while the UID is the same.
        """
        csr = self.cluster.csrs.read(self.csr.name)
        if csr is None or csr.uid != self.csr.uid:
            raise CsrChanged("the CSR was deleted")
        self.reports.csr = csr
        self.recognize()

    def context(self, now: datetime) -> VerificationContext:
        """Return the inputs of the checks."""
        return VerificationContext(
            inventory=self.cluster.inventory,
            policy=self.policy,
            anchors=self._rules.anchors,
            now=now,
            trace=self._record_check,
            platforms=self.dependencies.platforms,
        )

    def verify_access(self, kind: CsrKind) -> None:
        """R4: only for a verified request, since it costs two calls to the API server."""
        if self.policy.access_review is AccessReview.REQUIRE:
            verify_access(self.csr, kind, self.cluster.csrs)

    def record(
        self, outcome: str, error: AttestationError | None = None, *, new: bool = True
    ) -> None:
        """Log and count a verdict."""
        seconds = self.dependencies.monotonic() - self.audit.started
        audit.log_verdict(self.audit, outcome, seconds=seconds, error=error, new=new)

    def raise_alarm(self, alarm: AttestationError, machine: Machine) -> None:
        """Log an alarm, and note it for the Machine."""
        self.record(audit.ALARM, alarm)
        self.reports.note_alarm(machine, alarm)

    def requeue_on_change(self) -> Result:
        """Return the result for a CSR that waits for a change of what it names."""
        names = (self.audit.node_name, self.audit.provider_id, self.audit.endorsement_key)
        return Result(requeue=Requeue.ON_CHANGE, topics=frozenset(filter(None, names)))

    def _record_check(self, _: str, proved: T) -> T:
        """Note the endorsement key once it is verified, for the audit log and the topics.

        A later check may make the CSR wait for a change of this key's object.
        """
        if isinstance(proved, EndorsementKey):
            self.audit.endorsement_key = proved.name
            self.endorsement_key = proved
        return proved
