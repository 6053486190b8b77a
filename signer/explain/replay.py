"""The signer's own judgement of one stored request, with every step that it took.

It is made by the functions that the signer runs, in the order in which it runs them; here they are
only listened to.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Final, TypeVar

from common.errors import AttestationError, Consequence
from common.evidence import Offer
from signer.errors import ChallengeKeyUnknown
from signer.model import ChallengeKeys, ClaimStore, ClusterKey, Csr, Inventory
from signer.policy import Policy, PolicySet
from signer.verify.answer import make_claims, verify_answer
from signer.verify.context import VerificationContext
from signer.verify.kubelet_serving import verify_kubelet_serving
from signer.verify.offer import verify_offer
from signer.verify.parse import ParsedAnswer, ParsedKubeletServing, ParsedOffer, parse_request
from signer.verify.recognize import CsrKind, recognize_csr
from signer.verify.x509.trust_anchors import TrustAnchors

T = TypeVar("T")


class Verdict(Enum):
    """What would become of the request."""

    CHALLENGED = "would be challenged"
    CERTIFIED = "would be certified"
    APPROVED = "would be approved"
    DENIED = "would be denied"
    WAITING = "would wait"
    IGNORED = "would be left alone"
    UNDECIDED = "cannot be decided"


class Outcome(Enum):
    """What came of one check."""

    PASSED = "ok"
    DENIED = "denied"
    WAITING = "waits"
    IGNORED = "ignored"
    UNDECIDED = "cannot decide"
    NOT_REACHED = "not reached"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One check; `proved` is what its step proved, `error` what ended the judgement."""

    check: str
    outcome: Outcome
    proved: object = None
    error: AttestationError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The verdict on one request, and how it came about."""

    csr: Csr
    """As it was given, decided or not."""
    verdict: Verdict
    steps: tuple[CheckResult, ...]
    parsed: ParsedOffer | ParsedAnswer | ParsedKubeletServing | None
    error: AttestationError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayInputs:
    """Everything that requests are judged by."""

    cluster: ClusterKey
    records: Inventory
    claims: ClaimStore
    policies: PolicySet
    anchors: Mapping[str, TrustAnchors]
    """By the policy's name."""
    challenge_keys: ChallengeKeys | None
    """`None` where they were not given: then no answer can be decided."""
    now: datetime


_ENTRY: Final = ("R1 R0",)
_NODE: Final = ("E2", "E3")
_MACHINE: Final = "M5 M1 M2 M3 M4 M6"
OFFER: Final = (*_ENTRY, "P1 P2 P3 P4 P5 P6", "R2 R3", "A1", _MACHINE, "E1", *_NODE)
ANSWER: Final = (
    *(*_ENTRY, "P1 P2 P3 P4 P5 P6", "R2 R3", "C1", "A1", "E1"),
    *("Q1 Q2", "Q3", "Q4", _MACHINE, *_NODE),
)
SERVING: Final = (*ANSWER, "S1 S2 S3")
CLAIM: Final = ("K1 K2 K3",)
BUILTIN: Final = (*_ENTRY, "P1 P2 P3 P4", "R2 R3", "M5", "M3 E3 M1", "S1 S2 S3")
"""The steps of each kind of judgement, in their order: what was not told was not reached."""

_OUTCOMES: Final = {
    Consequence.DENY: (Outcome.DENIED, Verdict.DENIED),
    Consequence.WAIT: (Outcome.WAITING, Verdict.WAITING),
    Consequence.IGNORE: (Outcome.IGNORED, Verdict.IGNORED),
}
_INTERLEAVED: Final = frozenset({"S2", "S3"})
"""Checks that are made by turns: neither has passed before both have."""
_UNDECIDED: Final = (Outcome.UNDECIDED, Verdict.UNDECIDED)


def replay(csr: Csr, case: ReplayInputs) -> Explanation:
    """Judge a request as if nobody had decided on it yet; raises nothing of the tree of errors."""
    run = _Run(csr, case)
    try:
        verdict = run.judge()
    except AttestationError as e:
        return run.ended_by(e)
    return run.ended(verdict)


class _Run:
    """One judgement while it is made."""

    def __init__(self, csr: Csr, case: ReplayInputs) -> None:
        self._filed = csr
        self._csr = replace(csr, certificate=None, conditions={})
        self._case = case
        self._order: tuple[str, ...] = ()
        self._steps: list[CheckResult] = []
        self._parsed: ParsedOffer | ParsedAnswer | ParsedKubeletServing | None = None
        self._whole: tuple[str, ...] = ()
        """Of an answer without master keys: all that its judgement would have taken."""

    def judge(self) -> Verdict:
        case, policy = self._case, self._case.policies.for_cluster(self._case.cluster)
        cluster = case.records.cluster()
        self._order = _ENTRY
        kind = recognize_csr(self._csr, cluster, policy)
        self._hear("R1 R0", kind)
        builtin = kind is CsrKind.BUILTIN_SERVING
        self._order = BUILTIN if builtin else (*_ENTRY, "P1 P2 P3 P4 P5 P6")
        self._parsed = parse_request(self._csr, kind)
        match self._parsed:
            case ParsedKubeletServing() as serving:
                self._hear("P1 P2 P3 P4", serving)
                verify_kubelet_serving(self._csr, serving, self._context(policy))
                return Verdict.APPROVED
            case ParsedOffer() as offer:
                self._order = OFFER
                self._offer(kind, offer, policy)
                return Verdict.CHALLENGED
            case ParsedAnswer() as answer:
                self._order = SERVING if kind is CsrKind.SERVING else ANSWER
                return self._answer(kind, answer, policy)

    def _offer(self, kind: CsrKind, offer: ParsedOffer, policy: Policy) -> None:
        self._hear("P1 P2 P3 P4 P5 P6", self._parsed)
        verify_offer(self._csr, kind, offer, self._context(policy))

    def _context(self, policy: Policy) -> VerificationContext:
        return VerificationContext(
            inventory=self._case.records,
            policy=policy,
            anchors=self._case.anchors[policy.name],
            now=self._case.now,
            trace=self._hear,
        )

    def _answer(self, kind: CsrKind, answer: ParsedAnswer, policy: Policy) -> Verdict:
        case = self._case
        if case.challenge_keys is None:
            # What is left to judge is the offer that an answer repeats.
            self._whole, self._order = (*self._order, *CLAIM), OFFER
            self._offer(kind, _repeated(answer), policy)
            return Verdict.UNDECIDED
        self._order = (*self._order, *CLAIM)
        self._hear("P1 P2 P3 P4 P5 P6", answer)
        verified = verify_answer(
            self._csr, kind, answer, self._context(policy), case.challenge_keys
        )
        not_after = case.now + policy.certificate_lifetime
        claimed = make_claims(
            verified, claims=case.claims, policy=policy, now=case.now, not_after=not_after
        )
        self._hear("K1 K2 K3", claimed)
        return Verdict.CERTIFIED

    def _hear(self, checks: str, proved: T) -> T:
        passed = Outcome.PASSED
        self._steps += [CheckResult(check=c, outcome=passed, proved=proved) for c in checks.split()]
        return proved

    def ended(self, verdict: Verdict) -> Explanation:
        return self._judgement(verdict, (), None)

    def ended_by(self, error: AttestationError) -> Explanation:
        outcome, verdict = _OUTCOMES.get(error.consequence, _UNDECIDED)
        if isinstance(error, ChallengeKeyUnknown):
            # The signer leaves it to whoever has the key; here it is only known that we have not.
            outcome, verdict = _UNDECIDED
        told = {step.check for step in self._steps}
        left = [step.split() for step in self._order if not told.issuperset(step.split())]
        running = left[0] if left else []
        failed = error.check or next(iter(running), "R0")
        before = running[: running.index(failed)] if failed in running else []
        before = [c for c in before if c not in _INTERLEAVED]
        after = [c for checks in left for c in checks if c not in {*before, failed}]
        steps = (
            *(CheckResult(check=c, outcome=Outcome.PASSED) for c in before),
            CheckResult(check=failed, outcome=outcome, error=error),
            *(CheckResult(check=c, outcome=Outcome.NOT_REACHED) for c in after),
        )
        return self._judgement(verdict, steps, error)

    def _judgement(
        self, verdict: Verdict, steps: Sequence[CheckResult], error: AttestationError | None
    ) -> Explanation:
        told = {step.check for step in (*self._steps, *steps)}
        undecided = [c for checks in self._whole for c in checks.split() if c not in told]
        return Explanation(
            csr=self._filed,
            verdict=Verdict.UNDECIDED if self._whole else verdict,
            steps=(
                *(*self._steps, *steps),
                *(CheckResult(check=c, outcome=Outcome.UNDECIDED) for c in undecided),
            ),
            parsed=self._parsed,
            error=error,
        )


def _repeated(answer: ParsedAnswer) -> ParsedOffer:
    evidence = answer.evidence
    return ParsedOffer(
        request=answer.request,
        provider_id=answer.provider_id,
        evidence=Offer(
            ek_public=evidence.ek_public,
            ek_certificates=evidence.ek_certificates,
            ak_public=evidence.ak_public,
        ),
    )
