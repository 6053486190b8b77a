"""Replays the verification of one stored request, and records the result of each check.

Runs the functions that the signer runs, in the same order, and records their traces.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Final, TypeVar

from common.errors import AttestationError, Consequence
from common.evidence import Offer
from signer.errors import ChallengeKeyUnknown
from signer.kinds.attested_node import Refusal
from signer.kinds.cluster import ClusterKey
from signer.kinds.csr import Csr
from signer.policy.policy import AccessReview, Policy, PolicyMode, PolicySet
from signer.seams import ChallengeKeys, ClaimStore, Inventory
from signer.verify import checks
from signer.verify.answer import verify_answer
from signer.verify.checks import Step
from signer.verify.claimed_answer import make_claims
from signer.verify.context import VerificationContext
from signer.verify.kubelet_serving import verify_kubelet_serving
from signer.verify.machines.claim_writes import WithheldCertificate
from signer.verify.offer import verify_offer
from signer.verify.requests.parse import (
    ParsedAnswer,
    ParsedKubeletServing,
    ParsedOffer,
    parse_request,
)
from signer.verify.requests.recognize import CsrKind, recognize_csr
from signer.verify.x509.trust_anchors import TrustAnchors

T = TypeVar("T")


class Verdict(Enum):
    """What the signer would do with the request."""

    CHALLENGED = "would be challenged"
    CERTIFIED = "would be certified"
    APPROVED = "would be approved"
    DENIED = "would be denied"
    WAITING = "would wait"
    IGNORED = "would be ignored"
    UNDECIDED = "cannot be decided"


class Outcome(Enum):
    """The outcome of one check."""

    PASSED = "ok"
    DENIED = "denied"
    WAITING = "waits"
    IGNORED = "ignored"
    UNDECIDED = "cannot decide"
    NOT_REACHED = "not reached"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One check: the value that it proved, or the error that ended the replay."""

    check: str
    outcome: Outcome
    proved: object = None
    error: AttestationError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The verdict on one request, and the checks that led to it."""

    csr: Csr
    """As in the file, with the conditions that it has."""
    verdict: Verdict
    results: tuple[CheckResult, ...]
    parsed: ParsedOffer | ParsedAnswer | ParsedKubeletServing | None
    error: AttestationError | None
    recorded: Refusal | None
    """Every reason of the time when the signer refused this request, if the claim still has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayInputs:
    """Everything that the verdict depends on, except the request."""

    cluster: ClusterKey
    labels: Mapping[str, str]
    """Of the Cluster; a policy may select by them."""
    inventory: Inventory
    claims: ClaimStore
    policies: PolicySet
    anchors: Mapping[str, TrustAnchors]
    """By the name of the policy."""
    challenge_keys: ChallengeKeys | None
    """`None`: no answer can be decided."""
    now: datetime


_OUTCOMES: Final = {
    Consequence.DENY: (Outcome.DENIED, Verdict.DENIED),
    Consequence.WAIT: (Outcome.WAITING, Verdict.WAITING),
    Consequence.IGNORE: (Outcome.IGNORED, Verdict.IGNORED),
}
_INTERLEAVED: Final = frozenset({"S2", "S3"})
"""Checks that alternate for each name: neither has passed before both have."""
_UNDECIDED: Final = (Outcome.UNDECIDED, Verdict.UNDECIDED)


def replay(csr: Csr, inputs: ReplayInputs) -> Explanation:
    """Verify a request as if it had no certificate and no condition, and explain the verdict."""
    run = _Replay(csr, inputs)
    try:
        verdict = run.verify()
    except AttestationError as error:
        return run.explain_error(error)
    return run.explain(verdict)


class _Replay:
    """The replay of one request."""

    def __init__(self, csr: Csr, inputs: ReplayInputs) -> None:
        self._stored = csr
        self._csr = replace(csr, certificate=None, conditions={})
        self._inputs = inputs
        self._order: tuple[Step, ...] = ()
        self._results: list[CheckResult] = []
        self._parsed: ParsedOffer | ParsedAnswer | ParsedKubeletServing | None = None
        self._undecidable: tuple[Step, ...] = ()
        """Checks that need more than the inputs."""

    def verify(self) -> Verdict:
        inputs = self._inputs
        policy = inputs.policies.for_cluster(inputs.cluster, inputs.labels)
        cluster = inputs.inventory.cluster()
        self._order = (checks.CLUSTER,)
        kind = recognize_csr(self._csr, cluster, policy)
        self._record_check(checks.CLUSTER, kind)
        if kind is not CsrKind.BUILTIN_SERVING:
            self._order = (checks.CLUSTER, checks.FORM)
        else:
            serving_only = policy.mode is PolicyMode.SERVING_ONLY
            self._order = checks.SERVING_ONLY_ORDER if serving_only else checks.BUILTIN_ORDER
        self._parsed = parse_request(self._csr, kind)
        match self._parsed:
            case ParsedKubeletServing() as serving:
                self._record_check(checks.FORM_WITHOUT_ATTESTATION, serving)
                verify_kubelet_serving(self._csr, serving, self._context(policy))
                return self._after_review(policy, Verdict.APPROVED)
            case ParsedOffer() as offer:
                self._order = checks.OFFER_ORDER
                self._offer(kind, offer, policy)
                return Verdict.CHALLENGED
            case ParsedAnswer() as answer:
                self._order = (
                    checks.SERVING_ORDER if kind is CsrKind.SERVING else checks.ANSWER_ORDER
                )
                return self._answer(kind, answer, policy)

    def _offer(self, kind: CsrKind, offer: ParsedOffer, policy: Policy) -> None:
        self._record_check(checks.FORM, self._parsed)
        verify_offer(self._csr, kind, offer, self._context(policy))

    def _context(self, policy: Policy) -> VerificationContext:
        return VerificationContext(
            inventory=self._inputs.inventory,
            policy=policy,
            anchors=self._inputs.anchors[policy.name],
            now=self._inputs.now,
            trace=self._record_check,
        )

    def _answer(self, kind: CsrKind, answer: ParsedAnswer, policy: Policy) -> Verdict:
        inputs = self._inputs
        if inputs.challenge_keys is None:
            # An answer repeats its offer, and that can be verified.
            self._undecidable = (*self._order, checks.CLAIMS)
            self._order = checks.OFFER_ORDER
            self._offer(kind, _repeated_offer(answer), policy)
            return Verdict.UNDECIDED
        self._order = (*self._order, checks.CLAIMS)
        self._record_check(checks.FORM, answer)
        context = self._context(policy)
        verified = verify_answer(self._csr, kind, answer, context, inputs.challenge_keys)
        # No authority is in the files, so the certificate is a blank.
        not_after = inputs.now + policy.certificate.lifetime
        blank = WithheldCertificate(pem=b"", credential_id="", not_after=not_after)
        claimed = make_claims(verified, context, claims=inputs.claims, sign=lambda _: blank)
        self._record_check(checks.CLAIMS, claimed)
        return self._after_review(policy, Verdict.CERTIFIED)

    def _after_review(self, policy: Policy, verdict: Verdict) -> Verdict:
        """R4: only the API server of the workload cluster can decide it."""
        if policy.access_review is AccessReview.REQUIRE:
            self._undecidable = (("R4",),)
        return verdict

    def _record_check(self, step: Step, proved: T) -> T:
        self._results += [
            CheckResult(check=check, outcome=Outcome.PASSED, proved=proved) for check in step
        ]
        return proved

    def explain(self, verdict: Verdict) -> Explanation:
        return self._explain(verdict, self._results, None)

    def explain_error(self, error: AttestationError) -> Explanation:
        outcome, verdict = _OUTCOMES.get(error.consequence, _UNDECIDED)
        if isinstance(error, ChallengeKeyUnknown):
            # Another signer may have the key. The files do not say which signer is at work.
            outcome, verdict = _UNDECIDED
        passed = {result.check: result for result in self._results}
        remaining = [step for step in self._order if not passed.keys() >= set(step)]
        failed = error.check or next((step[0] for step in remaining), "R0")
        refused = [CheckResult(check=failed, outcome=outcome, error=error)]
        for further in error.further:
            outcome, _ = _OUTCOMES[further.consequence]
            refused.append(CheckResult(check=further.check, outcome=outcome, error=further))
        if failed not in {check for step in self._order for check in step}:
            place = self._order.index(remaining[0]) if remaining else len(self._order)
            self._order = (*self._order[:place], (failed,), *self._order[place:])
        results = [
            result for step in self._order for result in _results_of_step(step, passed, refused)
        ]
        return self._explain(verdict, results, error)

    def _explain(
        self, verdict: Verdict, results: Sequence[CheckResult], error: AttestationError | None
    ) -> Explanation:
        recorded = {result.check for result in results}
        undecided = [c for step in self._undecidable for c in step if c not in recorded]
        return Explanation(
            csr=self._stored,
            verdict=Verdict.UNDECIDED if self._undecidable else verdict,
            results=(
                *results,
                *(CheckResult(check=c, outcome=Outcome.UNDECIDED) for c in undecided),
            ),
            parsed=self._parsed,
            error=error,
            recorded=self._recorded(),
        )

    def _recorded(self) -> Refusal | None:
        """Return the refusal of this request in the claim of its node."""
        if self._parsed is None:
            return None
        node = self._inputs.inventory.attested_node(self._parsed.request.node_name)
        refusal = None if node is None else node.last_refusal
        return refusal if refusal and refusal.request == self._stored.name else None


def _results_of_step(
    step: Step, passed: Mapping[str, CheckResult], refused: Sequence[CheckResult]
) -> Iterator[CheckResult]:
    """Return the results of one step; the checks before a refusal in it have passed."""
    reasons = [result for result in refused if result.check in step]
    before = step[: step.index(reasons[0].check)] if reasons else ()
    for check in step:
        own = [result for result in reasons if result.check == check]
        if own:
            yield from own
        elif check in passed:
            yield passed[check]
        else:
            has_passed = check in before and check not in _INTERLEAVED
            outcome = Outcome.PASSED if has_passed else Outcome.NOT_REACHED
            yield CheckResult(check=check, outcome=outcome)


def _repeated_offer(answer: ParsedAnswer) -> ParsedOffer:
    evidence = answer.evidence
    return ParsedOffer(
        request=answer.request,
        provider_id=answer.provider_id,
        evidence=Offer(
            ek_public=evidence.ek_public,
            ek_certificates=evidence.ek_certificates,
            ak_public=evidence.ak_public,
            ak_certificate=evidence.ak_certificate,
            ek_creation=evidence.ek_creation,
        ),
    )
