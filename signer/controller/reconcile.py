"""One CSR through the flow; the only place where errors become decisions.

Nothing is kept between two looks at a CSR: what has been done stands in the objects, and every
write carries the resource version that was judged. So a crash at any step is healed by looking
again, and two signers at once are harmless. Source: docs/protocol.md sections 3 and 5.
"""

import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
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
    PENDING_REASON_ANNOTATION,
    SUPPORTED_VERSIONS_ANNOTATION,
)
from signer.controller import audit
from signer.controller.audit import AuditContext
from signer.controller.workqueue import DONE, RETRY, Requeue, Result
from signer.errors import AnnotationsFull, ChallengeKeyUnknown, CsrChanged, NotOptedIn
from signer.issue.certificate import CertificateAuthority, certificate_not_after, issue_certificate
from signer.issue.challenge import ChallengeState, challenge_state, make_challenge
from signer.model import ChallengeKeys, ClaimStore, ClusterKey, Csr, Inventory
from signer.policy import Policy, PolicySet
from signer.verify.answer import VerifiedAnswer, make_claims, verify_answer
from signer.verify.context import VerificationContext
from signer.verify.endorsement_key import EndorsementKey
from signer.verify.kubelet_serving import verify_kubelet_serving
from signer.verify.offer import verify_offer
from signer.verify.parse import (
    ParsedAnswer,
    ParsedKubeletServing,
    ParsedOffer,
    ParsedRequest,
    parse_request,
)
from signer.verify.recognize import CsrKind, recognize_csr
from signer.verify.x509.trust_anchors import TrustAnchors

_logger = logging.getLogger(__name__)
T = TypeVar("T")

_ATTESTED: Final = "Attested"
"""The reason of Approved."""


class CsrWriter(Protocol):
    """What is written to CSRs; a lost race raises `CsrChanged`."""

    def read(self, name: str) -> Csr | None:
        """Return the CSR as it is now."""

    def annotate(self, csr: Csr, values: Mapping[str, str]) -> Csr:
        """Write annotations; raises `AnnotationsFull` when there is no room for them."""

    def approve(self, csr: Csr, reason: str, message: str) -> Csr:
        """Add the condition Approved."""

    def deny(self, csr: Csr, reason: str, message: str) -> Csr:
        """Add the condition Denied."""

    def fail(self, csr: Csr, reason: str, message: str) -> Csr:
        """Add the condition Failed."""

    def set_certificate(self, csr: Csr, certificate: bytes) -> Csr:
        """Write the certificate."""

    def record_event(self, csr: Csr, reason: str, message: str, now: datetime) -> None:
        """Write one Event, once for each reason."""


class ChallengeKeySource(Protocol):
    """The master keys of the challenges."""

    def cached(self) -> ChallengeKeys:
        """Return the keys as last read."""

    def refresh(self) -> ChallengeKeys:
        """Return the keys as the Secret says now."""


class AuthoritySource(Protocol):
    """The certificate authorities of the clusters."""

    def authority(self, cluster: ClusterKey) -> CertificateAuthority:
        """Return a cluster's authority."""


class RateLimiter(Protocol):
    """How fast challenges are given."""

    def acquire(self, requester: tuple[ClusterKey, str]) -> None:
        """Take one, or raise `TooManyChallenges`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterContext:
    """One cluster: what is known of it, and where its CSRs are written."""

    key: ClusterKey
    records: Inventory
    csrs: CsrWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciler:
    """What all looks at CSRs of all clusters have in common."""

    policies: PolicySet
    anchors: Mapping[str, TrustAnchors]
    """By the policy's name."""
    claims: ClaimStore
    challenge_keys: ChallengeKeySource
    authorities: AuthoritySource
    rate_limiter: RateLimiter
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    random: Callable[[int], bytes]

    def reconcile(self, csr: Csr, side: ClusterContext) -> Result:
        """Look at a CSR as the cache has it, and do what follows; never raises."""
        look = _Reconciliation(self, side, csr)
        try:
            return look.run()
        except (ChallengeKeyUnknown, NotOptedIn) as e:
            # Another signer's, or ours of a moment ago that this one has not read yet; or of a
            # Cluster that may opt in again before it is closed.
            look.record("ignored", e, new=False)
            return Result(requeue=Requeue.ON_CHANGE)
        except Ignored as e:
            look.record("ignored", e, new=False)
            return DONE
        except Unavailable as e:
            look.record("retried", e)
            return RETRY
        except Exception:
            # Outside the tree: a bug. Neither a yes nor a no may come of it.
            fields = {"cluster": f"{side.key.namespace}/{side.key.name}", "csr": csr.name}
            _logger.exception("look failed", extra={"fields": fields})
            return RETRY


class _Reconciliation:
    """One look at one CSR."""

    def __init__(self, common: Reconciler, side: ClusterContext, csr: Csr) -> None:
        self._common = common
        self._side = side
        self._csr = csr
        self._trail = AuditContext(cluster=side.key, csr=csr, started=common.monotonic())
        self._parsed: ParsedRequest | None = None

    def run(self) -> Result:
        try:
            policy = self._common.policies.for_cluster(self._side.key)
            kind = self._recognise(policy)
            self._parsed = parse_request(self._csr, kind)
            return self._judge(kind, self._parsed, policy)
        except Denied as e:
            return self._refuse(e)
        except Waiting as e:
            return self._wait(e)

    def record(
        self, outcome: str, error: AttestationError | None = None, *, new: bool = True
    ) -> None:
        seconds = self._common.monotonic() - self._trail.started
        audit.log_verdict(self._trail, outcome, seconds=seconds, error=error, new=new)

    def _recognise(self, policy: Policy) -> CsrKind:
        return recognize_csr(self._csr, self._side.records.cluster(), policy)

    def _judge(self, kind: CsrKind, parsed: ParsedRequest, policy: Policy) -> Result:
        self._trail.node_name = parsed.request.node_name
        if isinstance(parsed, ParsedKubeletServing):
            self._trail.kind = "serving"
            return self._approve_builtin(parsed, policy)
        self._trail.provider_id = parsed.provider_id
        if isinstance(parsed, ParsedOffer):
            self._trail.kind = "offer"
            return self._challenge(kind, parsed, policy)
        self._trail.kind = "answer"
        return self._answer(kind, parsed, policy)

    def _challenge(self, kind: CsrKind, offer: ParsedOffer, policy: Policy) -> Result:
        """Answer an offer with a challenge, unless it has one; from caches only."""
        common, now = self._common, self._common.now()
        challengeable = verify_offer(self._csr, kind, offer, self._context(policy, now))
        masters = common.challenge_keys.cached()
        state = self._challenge_state(policy, masters, now)
        if state is ChallengeState.UNKNOWN_KEY:
            # Another replica may have rotated the key.
            masters = common.challenge_keys.refresh()
            state = self._challenge_state(policy, masters, now)
        if state is ChallengeState.UNKNOWN_KEY:
            return Result(requeue=Requeue.ON_CHANGE)
        if state is ChallengeState.CURRENT:
            return DONE
        common.rate_limiter.acquire((self._side.key, self._csr.username))
        challenge = make_challenge(
            challengeable,
            self._csr,
            cluster=self._side.records.cluster(),
            policy=policy,
            challenge_keys=masters,
            now=now,
            random=common.random,
        )
        self._side.csrs.annotate(self._csr, {CHALLENGE_ANNOTATION: challenge})
        self.record("challenged")
        return DONE

    def _challenge_state(
        self, policy: Policy, masters: ChallengeKeys, now: datetime
    ) -> ChallengeState:
        return challenge_state(
            self._csr.annotations.get(CHALLENGE_ANNOTATION),
            self._csr,
            cluster=self._side.records.cluster(),
            policy=policy,
            challenge_keys=masters,
            now=now,
        )

    def _answer(self, kind: CsrKind, answer: ParsedAnswer, policy: Policy) -> Result:
        """Judge an answer; then claim, issue, approve and write the certificate."""
        verified = self._verify(kind, answer, policy)
        self._learn(verified)
        self._reread(policy)
        common, now = self._common, self._common.now()
        authority = common.authorities.authority(self._side.key)
        not_after = certificate_not_after(
            policy=policy, csr=self._csr, authority=authority, now=now
        )
        claimed = make_claims(
            verified, claims=common.claims, policy=policy, now=now, not_after=not_after
        )
        certificate = issue_certificate(claimed, authority=authority, now=now, random=common.random)
        self._trail.not_after = not_after
        csr = self._csr
        if "Approved" not in csr.conditions:
            csr = self._side.csrs.approve(csr, _ATTESTED, "the TPM proved itself")
        self._side.csrs.set_certificate(csr, certificate)
        self.record("issued")
        return DONE

    def _reread(self, policy: Policy) -> None:
        """Go on with the CSR as it is now: the cache may be behind our own writes, or another's.

        Everything that was judged is in `spec`, which never changes while the UID stays. Only what
        is proved gets here: nobody is asked for the sake of other bytes.
        """
        csr = self._side.csrs.read(self._csr.name)
        if csr is None or csr.uid != self._csr.uid:
            raise CsrChanged("the CSR is gone")
        self._csr = csr
        self._recognise(policy)

    def _verify(self, kind: CsrKind, answer: ParsedAnswer, policy: Policy) -> VerifiedAnswer:
        """Judge the answer; an unknown key is only believed when the Secret says so now."""
        try:
            return self._verify_under(self._common.challenge_keys.cached(), kind, answer, policy)
        except ChallengeKeyUnknown:
            return self._verify_under(self._common.challenge_keys.refresh(), kind, answer, policy)

    def _verify_under(
        self, masters: ChallengeKeys, kind: CsrKind, answer: ParsedAnswer, policy: Policy
    ) -> VerifiedAnswer:
        context = self._context(policy, self._common.now())
        return verify_answer(self._csr, kind, answer, context, masters)

    def _context(self, policy: Policy, now: datetime) -> VerificationContext:
        return VerificationContext(
            inventory=self._side.records,
            policy=policy,
            anchors=self._common.anchors[policy.name],
            now=now,
            trace=self._record_check,
        )

    def _record_check(self, _: str, proved: T) -> T:
        """Learn as early as can be which key it is: a wait may be for a change of that key."""
        if isinstance(proved, EndorsementKey):
            self._trail.endorsement_key = proved.name
        return proved

    def _learn(self, verified: VerifiedAnswer) -> None:
        trail = self._trail
        trail.machine = verified.machine.name
        trail.basis = verified.holder.basis.value
        trail.boot, trail.pcrs = verified.boot, verified.pcrs
        trail.measured_boot = verified.measured_boot
        for alarm in verified.alarms:
            self.record("alarm", alarm)

    def _approve_builtin(self, serving: ParsedKubeletServing, policy: Policy) -> Result:
        """Approve what kube-controller-manager then signs."""
        if "Approved" in self._csr.conditions:
            return DONE
        context = self._context(policy, self._common.now())
        verified = verify_kubelet_serving(self._csr, serving, context)
        self._trail.machine = verified.machine.name
        message = "the names are those of the node's Machine"
        self._side.csrs.approve(self._csr, _ATTESTED, message)
        self.record("approved")
        return DONE

    def _refuse(self, error: Denied) -> Result:
        """Deny the CSR, or fail it where somebody approved it."""
        csrs, csr = self._side.csrs, self._csr
        if isinstance(error, UnsupportedVersion):
            with contextlib.suppress(AnnotationsFull):
                csr = csrs.annotate(csr, {SUPPORTED_VERSIONS_ANNOTATION: self._versions()})
        if "Approved" in csr.conditions:
            csrs.fail(csr, error.reason, error.message)
            self.record("failed", error)
        else:
            csrs.deny(csr, error.reason, error.message)
            self.record("denied", error)
        return DONE

    def _versions(self) -> str:
        return ",".join(self._common.policies.for_cluster(self._side.key).versions)

    def _wait(self, error: Waiting) -> Result:
        """Leave the CSR pending, and say why: on it, and for what is no offer by an Event."""
        told = f"{error.reason}: {error.message}"
        new = self._csr.annotations.get(PENDING_REASON_ANNOTATION) != told
        if new:
            try:
                self._csr = self._side.csrs.annotate(self._csr, {PENDING_REASON_ANNOTATION: told})
            except AnnotationsFull as e:
                if self._parsed is None or isinstance(self._parsed, ParsedOffer):
                    return self._refuse(e)
            if isinstance(self._parsed, (ParsedAnswer, ParsedKubeletServing)):
                now = self._common.now()
                self._side.csrs.record_event(self._csr, error.reason, error.message, now)
        self.record("waiting", error, new=new)
        names = (self._trail.node_name, self._trail.provider_id, self._trail.endorsement_key)
        return Result(requeue=Requeue.ON_CHANGE, topics=frozenset(filter(None, names)))
