"""The state of one reconciliation of one CSR, and the steps that several kinds of request share."""

from datetime import datetime
from typing import TypeVar, cast

from common.errors import AttestationError
from signer.controller.observability import audit
from signer.controller.observability.audit import AuditContext
from signer.controller.policies.active import EffectivePolicy
from signer.controller.queue.workqueue import Requeue, Result
from signer.controller.reconcile.csr_status import CsrStatus
from signer.controller.reconcile.dependencies import ClusterContext, Dependencies
from signer.errors import CsrChanged
from signer.kinds.csr import Csr
from signer.kinds.machine import Machine
from signer.policy.policy import AccessReview, Approval, Policy
from signer.verify import checks
from signer.verify.attestation.attestation_key import AttestationKey
from signer.verify.attestation.endorsement_key import EndorsementKey
from signer.verify.attestation.quoted_pcrs import Pcrs
from signer.verify.checks import Step
from signer.verify.context import VerificationContext
from signer.verify.grounds.ground import Ground
from signer.verify.requests.access import verify_access
from signer.verify.requests.parse import ParsedRequest
from signer.verify.requests.recognize import CsrKind, recognize_csr

T = TypeVar("T")


class CsrState:
    """One reconciliation of one CSR."""

    def __init__(self, dependencies: Dependencies, cluster: ClusterContext, csr: Csr) -> None:
        self.dependencies = dependencies
        self.cluster = cluster
        self.reports = CsrStatus(
            csr, cluster, enqueue_condition=dependencies.enqueue_condition, now=dependencies.now
        )
        self.audit = AuditContext(cluster=cluster.key, csr=csr, started=dependencies.monotonic())
        self.parsed: ParsedRequest | None = None
        self.endorsement_key: EndorsementKey | None = None
        self.proved_keys: frozenset[str] = frozenset()
        """Names of the keys of the TPM that made the quote, once that is verified."""
        self.quoted: Pcrs | None = None
        """The values that this TPM quoted, once that is verified."""
        self.is_dry_run = False
        """Whether the policy disables approvals."""
        self._rules: EffectivePolicy
        self._key_names: set[str] = set()

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

        Raises `Waiting` if the `Cluster` does not have exactly one.
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
            verify_access(self.csr, kind, self.cluster.csrs.may_create)

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
        """Let the queue try this CSR again when an object changes that it names."""
        names = {self.audit.node_name, self.audit.provider_id} | self._key_names
        return Result(requeue=Requeue.ON_CHANGE, topics=frozenset(filter(None, names)))

    def _record_check(self, step: Step, proved: T) -> T:
        """Note the keys of the TPM once they are verified, for the audit log and the topics.

        A later check may make the CSR wait for a change of the object of one of them.
        """
        if isinstance(proved, (EndorsementKey, AttestationKey)):
            self._key_names.add(proved.name)
        if isinstance(proved, EndorsementKey):
            self.audit.endorsement_key = proved.name
            self.endorsement_key = proved
        if isinstance(proved, Ground):
            self.audit.endorsement_key = proved.key.name
            self._key_names |= proved.names
        if step == checks.QUOTE:
            self.proved_keys = frozenset(self._key_names)
        if step == checks.PCR_DIGEST:
            self.quoted = cast("Pcrs", proved)
        return proved
