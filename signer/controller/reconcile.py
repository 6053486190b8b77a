"""Reconciles one CSR: verifies it, writes the verdict, and turns errors into decisions.

The reconciler keeps no state between two reconciliations of a CSR. All state is in the objects, and
every write carries the resourceVersion that was verified. So the next reconciliation completes what
a crash interrupted, and two signers may reconcile the same CSR. Source: docs/protocol.md, sections
3 and 5.
"""

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Protocol, TypeVar

from common.errors import (
    AttestationError,
    Denied,
    Ignored,
    Unavailable,
    UnsupportedVersion,
    Waiting,
)
from common.names import (
    CHALLENGE_ANNOTATION,
    SUPPORTED_VERSIONS_ANNOTATION,
)
from signer.controller import audit
from signer.controller.active_policies import PolicyInForce
from signer.controller.audit import AuditContext
from signer.controller.cluster_context import ClusterContext
from signer.controller.csr_reports import CsrReports
from signer.controller.machine_reports import ATTESTED
from signer.controller.workqueue import DONE, RETRY, Requeue, Result
from signer.errors import (
    AccessReviewUnavailable,
    AnnotationsFull,
    ApprovalDisabled,
    AuthorityUnavailable,
    ChallengeKeyUnavailable,
    ChallengeKeyUnknown,
    CsrChanged,
    EndorsementKeyNotRegistered,
    NotOptedIn,
    OfferExpired,
    ServingRequestExpired,
)
from signer.inventory.machine_status import MachineCondition
from signer.issue.certificate import CertificateAuthority, certificate_not_after, issue_certificate
from signer.issue.challenge import ChallengeState, challenge_state, make_challenge
from signer.model import ChallengeKeys, ClaimStore, ClusterKey, Csr, Machine, OfferedKey
from signer.policy import AccessReview, Approval, Policy
from signer.verify.access import verify_access
from signer.verify.answer import VerifiedAnswer, verify_answer
from signer.verify.claimed_answer import make_claims
from signer.verify.context import VerificationContext
from signer.verify.credentials import find_unknown_credential
from signer.verify.endorsement_key import EndorsementKey
from signer.verify.kubelet_serving import verify_kubelet_serving
from signer.verify.offer import VerifiedOffer, verify_offer
from signer.verify.offered_key import describe_offered_key, may_offer_key
from signer.verify.parse import (
    ParsedAnswer,
    ParsedKubeletServing,
    ParsedOffer,
    ParsedRequest,
    parse_request,
)
from signer.verify.platform_keys import PlatformKeySource
from signer.verify.recognize import CsrKind, recognize_csr

_logger = logging.getLogger(__name__)
T = TypeVar("T")

_LASTING_FAILURES: Final = (
    AccessReviewUnavailable,
    AuthorityUnavailable,
    ChallengeKeyUnavailable,
)
"""Failures that last until an operator ends them, and in which a CSR can be annotated."""
MAX_OFFER_AGE: Final = timedelta(minutes=20)
"""After which an offer gets no challenge: its node discards the exchange after 15 minutes
(docs/protocol.md section 3). The rest is for clocks that differ. Only the age counts, which the
requester cannot choose: a newer offer for the node may be from another holder of the same bootstrap
token."""
_MAX_SERVING_WAIT: Final = timedelta(minutes=20)
"""How long a request to `kubernetes.io/kubelet-serving` may wait. The kubelet gives it up after 15
minutes and files another (client-go, util/certificate: certificateWaitTimeout); Kubernetes deletes
it only after a day. The rest is for clocks that differ."""


class PolicySource(Protocol):
    """The policies in force."""

    def for_cluster(self, key: ClusterKey) -> PolicyInForce:
        """Return the policy of a Cluster. Raises `Waiting` if it does not have exactly one."""


class ChallengeKeySource(Protocol):
    """Keys that challenges are made under."""

    def cached(self) -> ChallengeKeys:
        """Return the keys that were read last."""

    def refresh(self) -> ChallengeKeys:
        """Read the Secret and return its keys."""


class AuthoritySource(Protocol):
    """Certificate authorities of the clusters."""

    def authority(self, cluster: ClusterKey) -> CertificateAuthority:
        """Return the authority of a cluster."""


class RateLimiter(Protocol):
    """Limit on the rate of challenges, for each requester."""

    def acquire(self, requester: tuple[ClusterKey, str]) -> None:
        """Count one challenge; raises `TooManyChallenges` above the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciler:
    """Dependencies of all reconciliations, of all clusters."""

    policies: PolicySource
    claims: ClaimStore
    challenge_keys: ChallengeKeySource
    authorities: AuthoritySource
    rate_limiter: RateLimiter
    platforms: PlatformKeySource
    note_machine: Callable[[MachineCondition], None]
    """Remembers what became of a Machine; another thread writes it."""
    note_key_request: Callable[[ClusterKey, Machine, str, Callable[[], OfferedKey]], None]
    """Remembers an unregistered key of a Machine; another thread writes it."""
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    random: Callable[[int], bytes]

    def reconcile(self, csr: Csr, cluster: ClusterContext) -> Result:
        """Verify a CSR from the cache and write the verdict; never raises."""
        reconciliation = _Reconciliation(self, cluster, csr)
        try:
            return reconciliation.run()
        except (ChallengeKeyUnknown, NotOptedIn) as e:
            # The key may be one that another replica made and this one has not read yet.
            # The Cluster may opt in again before its caches are closed.
            reconciliation.record("ignored", e, new=False)
            return Result(requeue=Requeue.ON_CHANGE)
        except Ignored as e:
            reconciliation.record("ignored", e, new=False)
            return DONE
        except Unavailable as e:
            reconciliation.record("retried", e)
            reconciliation.explain_retry(e)
            return RETRY
        except Exception:
            # An exception outside the error tree is a bug: it is never a verdict.
            fields = {
                "cluster": f"{cluster.key.namespace}/{cluster.key.name}",
                "namespace": cluster.key.namespace,
                "csr": csr.name,
            }
            _logger.exception("reconciliation failed", extra={"fields": fields})
            return RETRY


class _Reconciliation:
    """One reconciliation of one CSR."""

    def __init__(self, common: Reconciler, cluster: ClusterContext, csr: Csr) -> None:
        self._common = common
        self._cluster = cluster
        self._reports = CsrReports(csr, cluster, note_machine=common.note_machine, now=common.now)
        self._audit = AuditContext(cluster=cluster.key, csr=csr, started=common.monotonic())
        self._parsed: ParsedRequest | None = None
        self._endorsement_key: EndorsementKey | None = None
        self._is_dry_run = False
        """Whether the policy disables approvals."""
        self._rules: PolicyInForce
        """Set first of all: later steps use one policy, also when another one replaces it."""

    @property
    def _csr(self) -> Csr:
        """The CSR as last read or written."""
        return self._reports.csr

    def run(self) -> Result:
        try:
            self._rules = self._common.policies.for_cluster(self._cluster.key)
            policy = self._rules.policy
            self._is_dry_run = policy.approval is Approval.DISABLED
            kind = self._recognize(policy)
            self._cluster.shares.verify_share(self._csr.username)
            self._parsed = parse_request(self._csr, kind)
            return self._verify_parsed(kind, self._parsed, policy)
        except Denied as e:
            return self._deny(e)
        except Waiting as e:
            return self._wait(e)

    def record(
        self, outcome: str, error: AttestationError | None = None, *, new: bool = True
    ) -> None:
        seconds = self._common.monotonic() - self._audit.started
        audit.log_verdict(self._audit, outcome, seconds=seconds, error=error, new=new)

    def _recognize(self, policy: Policy) -> CsrKind:
        return recognize_csr(self._csr, self._cluster.inventory.cluster(), policy)

    def _verify_parsed(self, kind: CsrKind, parsed: ParsedRequest, policy: Policy) -> Result:
        self._audit.node_name = parsed.request.node_name
        if isinstance(parsed, ParsedKubeletServing):
            self._audit.kind = "serving"
            return self._approve_kubelet_serving(parsed, policy)
        self._audit.provider_id = parsed.provider_id
        if isinstance(parsed, ParsedOffer):
            self._audit.kind = "offer"
            return self._challenge(kind, parsed, policy)
        self._audit.kind = "answer"
        return self._answer(kind, parsed, policy)

    def _challenge(self, kind: CsrKind, offer: ParsedOffer, policy: Policy) -> Result:
        """Verify an offer from caches only, and write a challenge unless it has a valid one."""
        common, now = self._common, self._common.now()
        if now - self._csr.created > MAX_OFFER_AGE:
            raise OfferExpired("the node has discarded this offer")
        challengeable = verify_offer(self._csr, kind, offer, self._context(policy, now))
        challenge_keys = common.challenge_keys.cached()
        state = self._challenge_state(policy, challenge_keys, now)
        if state is ChallengeState.UNKNOWN_KEY:
            # Another replica may have made a new key.
            challenge_keys = common.challenge_keys.refresh()
            state = self._challenge_state(policy, challenge_keys, now)
        if state is ChallengeState.UNKNOWN_KEY:
            return Result(requeue=Requeue.ON_CHANGE)
        if state is ChallengeState.CURRENT:
            self._reports.clear_pending_reason()
            return DONE
        common.rate_limiter.acquire((self._cluster.key, self._csr.username))
        self._check_credential(challengeable)
        challenge = make_challenge(
            challengeable,
            self._csr,
            cluster=self._cluster.inventory.cluster(),
            policy=policy,
            challenge_keys=challenge_keys,
            now=now,
            random=common.random,
        )
        values = {CHALLENGE_ANNOTATION: challenge} | self._reports.without_pending_reason()
        self._cluster.csrs.annotate(self._csr, values)
        self.record("challenged")
        return DONE

    def _check_credential(self, challengeable: VerifiedOffer) -> None:
        """K4: raise the alarm for an offer, which who copied a node's key cannot answer.

        The answer decides, so a failure to read changes nothing.
        """
        with contextlib.suppress(Unavailable):
            alarm = find_unknown_credential(
                challengeable.requester_credential,
                challengeable.offer.request.node_name,
                self._cluster.inventory,
                self._common.claims,
            )
            if alarm is not None:
                self._raise_alarm(alarm, challengeable.machine)

    def _raise_alarm(self, alarm: AttestationError, machine: Machine) -> None:
        self.record(audit.ALARM, alarm)
        self._reports.note_alarm(machine, alarm)

    def _challenge_state(
        self, policy: Policy, challenge_keys: ChallengeKeys, now: datetime
    ) -> ChallengeState:
        return challenge_state(
            self._csr.annotations.get(CHALLENGE_ANNOTATION),
            self._csr,
            cluster=self._cluster.inventory.cluster(),
            policy=policy,
            challenge_keys=challenge_keys,
            now=now,
        )

    def _answer(self, kind: CsrKind, answer: ParsedAnswer, policy: Policy) -> Result:
        """Verify an answer, write the claims, issue the certificate, approve, and write it."""
        verified = self._verify(kind, answer, policy)
        self._audit_answer(verified)
        self._verify_access(kind, policy)
        common, now = self._common, self._common.now()
        authority = common.authorities.authority(self._cluster.key)
        not_after = certificate_not_after(
            policy=policy, csr=self._csr, authority=authority, now=now
        )
        if self._is_dry_run:
            # Not reconciled again: the answer would expire (C1).
            self._withhold("would-issue", "would get a certificate")
            return DONE
        unreleased = issue_certificate(
            verified, not_after=not_after, authority=authority, now=now, random=common.random
        )
        context = self._context(policy, now)
        claimed = make_claims(verified, context, claims=common.claims, certificate=unreleased)
        for unknown in claimed.alarms:
            self._raise_alarm(unknown, verified.machine)
        if policy.publish_credentials and unreleased.credential_id:
            # Before the release: otherwise the node could not write with its new certificate.
            node_name = verified.holder.node_name
            self._cluster.credentials.publish(node_name, claimed.credential_ids)
        self._audit.not_after, self._audit.issued_credential = not_after, unreleased.credential_id
        try:
            self._write_certificate(claimed.certificate)
        except CsrChanged:
            self._read_live(policy)
            self._write_certificate(claimed.certificate)
        self.record("issued")
        for alarm in (*verified.alarms, *claimed.alarms):
            message = f"{alarm.message}; the certificate was issued"
            self._reports.record_event(alarm.reason, message)
        message = "the TPM of the machine attested, and its node has a certificate"
        self._reports.note_machine(verified.machine, ATTESTED, message, attested=True)
        return DONE

    def _write_certificate(self, certificate: bytes) -> None:
        """Approve the CSR unless it is approved, and write the certificate."""
        csrs = self._cluster.csrs
        self._reports.clear_pending_reason()
        if "Approved" not in self._csr.conditions:
            self._reports.csr = csrs.approve(self._csr, ATTESTED, "the TPM proved itself")
        csrs.set_certificate(self._csr, certificate)

    def _read_live(self, policy: Policy) -> None:
        """Replace the cached CSR by the one on the API server, and recognize it again.

        A write conflicted, so the cache lacks a change, perhaps a verdict of another signer. What
        was verified is in `spec`, which is immutable while the UID is the same.
        """
        csr = self._cluster.csrs.read(self._csr.name)
        if csr is None or csr.uid != self._csr.uid:
            raise CsrChanged("the CSR was deleted")
        self._reports.csr = csr
        self._recognize(policy)

    def _verify(self, kind: CsrKind, answer: ParsedAnswer, policy: Policy) -> VerifiedAnswer:
        """Verify the answer; before a challenge key counts as unknown, the Secret is read."""
        try:
            return self._verify_under(self._common.challenge_keys.cached(), kind, answer, policy)
        except ChallengeKeyUnknown:
            return self._verify_under(self._common.challenge_keys.refresh(), kind, answer, policy)

    def _verify_under(
        self, challenge_keys: ChallengeKeys, kind: CsrKind, answer: ParsedAnswer, policy: Policy
    ) -> VerifiedAnswer:
        context = self._context(policy, self._common.now())
        return verify_answer(self._csr, kind, answer, context, challenge_keys)

    def _context(self, policy: Policy, now: datetime) -> VerificationContext:
        return VerificationContext(
            inventory=self._cluster.inventory,
            policy=policy,
            anchors=self._rules.anchors,
            now=now,
            trace=self._record_check,
            platforms=self._common.platforms,
        )

    def _record_check(self, _: str, proved: T) -> T:
        """Note the endorsement key once it is verified, for the audit log and the topics.

        A later check may make the CSR wait for a change of this key's object.
        """
        if isinstance(proved, EndorsementKey):
            self._audit.endorsement_key = proved.name
            self._endorsement_key = proved
        return proved

    def _audit_answer(self, verified: VerifiedAnswer) -> None:
        context = self._audit
        context.machine = verified.machine.name
        context.basis = verified.holder.basis.value
        context.boot, context.pcrs = verified.boot, verified.pcrs
        context.measured_boot = verified.measured_boot
        for alarm in verified.alarms:
            self.record(audit.ALARM, alarm)
        context.alarms = tuple(alarm.reason for alarm in verified.alarms)

    def _approve_kubelet_serving(self, serving: ParsedKubeletServing, policy: Policy) -> Result:
        """Verify and approve a request that kube-controller-manager then signs."""
        if "Approved" in self._csr.conditions:
            return DONE
        context = self._context(policy, self._common.now())
        verified = verify_kubelet_serving(self._csr, serving, context)
        self._audit.machine = verified.machine.name
        self._verify_access(CsrKind.BUILTIN_SERVING, policy)
        if self._is_dry_run:
            return self._withhold("would-approve", "would be approved")
        message = "the names are those of the node's Machine"
        self._cluster.csrs.approve(self._reports.clear_pending_reason(), ATTESTED, message)
        self.record("approved")
        return DONE

    def _verify_access(self, kind: CsrKind, policy: Policy) -> None:
        """R4: only for a verified request, since it costs two calls to the API server."""
        if policy.access_review is AccessReview.REQUIRE:
            verify_access(self._csr, kind, self._cluster.csrs)

    def _deny(self, error: Denied) -> Result:
        """Deny the CSR. If it is approved already, set Failed: the API server refuses Denied."""
        if self._is_dry_run:
            text = f"would be denied: {error.reason}: {error.message}"
            return self._withhold("would-deny", text, error)
        csrs, csr = self._cluster.csrs, self._reports.clear_pending_reason()
        if isinstance(error, UnsupportedVersion):
            with contextlib.suppress(AnnotationsFull):
                csr = csrs.annotate(csr, {SUPPORTED_VERSIONS_ANNOTATION: self._versions()})
        if "Approved" in csr.conditions:
            csrs.fail(csr, error.reason, error.message)
            self.record("failed", error)
        else:
            csrs.deny(csr, error.reason, error.message)
            self.record("denied", error)
        self._reports.report(error, self._audit.provider_id)
        return DONE

    def _versions(self) -> str:
        return ",".join(self._rules.policy.versions)

    def _wait(self, error: Waiting) -> Result:
        """Leave the CSR pending and report the reason; requeue on change of its topics."""
        if self._is_expired_serving_request():
            detail = f"it waited for: {error.reason}: {error.message}"
            return self._deny(ServingRequestExpired("the kubelet has given up", detail=detail))
        new = self._reports.is_new(error)
        if new:
            try:
                self._reports.write_pending_reason(error)
            except AnnotationsFull as e:
                if self._parsed is None or isinstance(self._parsed, ParsedOffer):
                    return self._deny(e)
            self._reports.report(error, self._audit.provider_id)
        if isinstance(error, EndorsementKeyNotRegistered):
            self._note_key_request()
        self.record("waiting", error, new=new)
        return self._requeue_on_change()

    def _withhold(self, outcome: str, text: str, error: Denied | None = None) -> Result:
        """Leave the CSR pending, and report the verdict that the policy does not let us write.

        The Machine's condition does not change: another approver may accept this request.
        """
        withheld = ApprovalDisabled(f"the policy disables approvals; the request {text}")
        new = self._reports.is_new(withheld)
        if new:
            with contextlib.suppress(AnnotationsFull):
                self._reports.write_pending_reason(withheld)
            self._reports.record_event(withheld.reason, withheld.message)
        self.record(outcome, error, new=new)
        return self._requeue_on_change()

    def _requeue_on_change(self) -> Result:
        names = (self._audit.node_name, self._audit.provider_id, self._audit.endorsement_key)
        return Result(requeue=Requeue.ON_CHANGE, topics=frozenset(filter(None, names)))

    def explain_retry(self, error: Unavailable) -> None:
        """Report a failure that an operator may have to end; never raises."""
        if isinstance(error, _LASTING_FAILURES) and self._reports.is_new(error):
            with contextlib.suppress(Unavailable, AnnotationsFull):
                self._reports.write_pending_reason(error)
                self._reports.report(error, self._audit.provider_id)

    def _note_key_request(self) -> None:
        """Note the unregistered key of an offer for the operators."""
        csr, offer, key = self._reports.csr, self._parsed, self._endorsement_key
        if not isinstance(offer, ParsedOffer) or key is None:
            return
        context = self._context(self._rules.policy, self._common.now())
        with contextlib.suppress(Unavailable):
            machines = self._cluster.inventory.machines(offer.provider_id)
            if len(machines) == 1 and may_offer_key(csr, machines[0]):
                describe = partial(describe_offered_key, csr, offer, key, context)
                self._common.note_key_request(self._cluster.key, machines[0], key.name, describe)

    def _is_expired_serving_request(self) -> bool:
        age = self._common.now() - self._csr.created
        return isinstance(self._parsed, ParsedKubeletServing) and age > _MAX_SERVING_WAIT
