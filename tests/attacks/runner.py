"""The one entry of every attack: a CSR is filed, the whole signer looks at it, and leaves traces.

An attack changes one thing in a scenario where everything is in order, and redoes whatever its
attacker could redo: signatures of keys that are the attacker's, the challenge's secret where the
attacker holds the TPM. So the reason it meets is the check that guards against it, and not a
broken signature on the way there. Each attack runs twice: through the functions of signer/verify,
where the one that makes the check has to refuse, and through `Reconciler.reconcile`, where these
assertions hold:

- the reason and its check number are the ones that are named, in the condition, the annotation
  and the audit record alike; no certificate is written;
- no message tells a secret, an expected value or another cluster's name;
- no claim of anybody is lost; none is made, unless the claims are what is attacked;
- an honest node of the same scenario gets its certificate as if nothing had happened.
"""

import base64
import logging
from collections.abc import Callable, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from random import Random
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from common.errors import AttestationError, Consequence
from common.names import PENDING_REASON_ANNOTATION
from signer.controller.rate_limit import ChallengeRateLimiter
from signer.controller.reconcile import ClusterContext, Reconciler
from signer.controller.requester_share import RequesterShares
from signer.issue.certificate import CertificateAuthority
from signer.model import ChallengeKeys, ClaimStore, ClusterKey, Csr
from signer.policy import PolicySet
from signer.verify.answer import make_claims, verify_answer
from signer.verify.claims import is_complete_claim
from signer.verify.kubelet_serving import verify_kubelet_serving
from signer.verify.offer import verify_offer
from signer.verify.parse import ParsedAnswer, ParsedKubeletServing, ParsedOffer, parse_request
from signer.verify.recognize import recognize_csr
from tests.builders.scenario import ABROAD, NOW, OFFER_UID, Scenario
from tests.fakes.claims import FakeClaimStore
from tests.fakes.csrs import FakeCsrs

Mutation = Callable[[Scenario], Csr | Sequence[Csr] | None]
"""Files hostile CSRs, or (`None`) changes the scenario so that its offer and answer are hostile."""

OUTCOMES = {
    Consequence.DENY: "denied",
    Consequence.WAIT: "waiting",
    Consequence.IGNORE: "ignored",
    Consequence.RETRY: "retried",
}


_VERIFY: Final = frozenset({"verify_offer", "verify_answer", "verify_kubelet_serving"})
_FUNCTIONS: Final[Mapping[str, frozenset[str]]] = {
    "": frozenset({"make_claims"}),
    "R": frozenset(),
    "R0": frozenset({"recognize_csr"}),
    "R1": frozenset({"recognize_csr"}),
    "R2": _VERIFY,
    "R3": _VERIFY,
    "P": frozenset({"parse_request"}),
    "P6": _VERIFY,
    "C": _VERIFY,
    "A": _VERIFY,
    "Q": _VERIFY,
    "M": _VERIFY,
    "E": _VERIFY,
    "E3": frozenset({"make_claims"}),
    "K": frozenset({"make_claims"}),
    "K1": _VERIFY,
    "K2": _VERIFY,
    "S": _VERIFY,
}
"""Which function has to refuse, by letter or number of the check.

E3 and K1, K2 share reasons: E3 reads caches in `verify_*`, K1 and K2 read live in `make_claims`.
"""


@dataclass(frozen=True, slots=True)
class Attack:
    """One hostile input: what it breaks, the reason that it meets, and how it is made."""

    check: str
    name: str
    reason: type[AttestationError]
    mutate: Mutation
    scenario: Callable[[], Scenario] = Scenario
    claims: Callable[[Scenario], ClaimStore] | None = None
    """The claims as another replica leaves them, where it writes in between."""

    def __str__(self) -> str:
        return f"{self.check}: {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a look left behind."""

    outcome: str
    reason: str
    check: str
    csr: Csr
    events: Sequence[tuple[str, str]]
    public: str
    """Everything that was written where the requester, or any reader of CSRs, sees it."""
    logged: str
    """The audit record, for operators alone: it may tell PCRs, and still no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Masters:
    """The `MasterSource` seam: the Secret says what the cache says."""

    value: ChallengeKeys

    def cached(self) -> ChallengeKeys:
        return self.value

    def refresh(self) -> ChallengeKeys:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Authorities:
    """The `AuthoritySource` seam."""

    def authority(self, cluster: ClusterKey) -> CertificateAuthority:
        assert cluster.name
        return authority()


class _Recorder(logging.Handler):
    """Keeps what the signer logs."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@cache
def authority() -> CertificateAuthority:
    """Make the cluster's certificate authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
    certificate = (
        x509.CertificateBuilder()
        .issuer_name(name)
        .subject_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW - timedelta(days=365))
        .not_valid_after(NOW + timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return CertificateAuthority(certificate=certificate, private_key=key)


def reconcile_once(
    scenario: Scenario, csr: Csr, *, csrs: FakeCsrs | None = None, claims: ClaimStore | None = None
) -> Outcome:
    """File the CSR where it is not yet there, and let the signer look at it once."""
    csrs = FakeCsrs() if csrs is None else csrs
    filed = csrs.read(csr.name) or csrs.put(csr)
    claims = FakeClaimStore(store=scenario.store) if claims is None else claims
    side = ClusterContext(
        key=scenario.cluster.key, inventory=scenario.inventory, csrs=csrs, shares=RequesterShares()
    )
    verdict = _recorded(lambda: _reconciler(scenario, claims).reconcile(filed, side))
    after = csrs.read(csr.name)
    assert after is not None
    return Outcome(
        outcome=verdict.get("outcome", ""),
        reason=verdict.get("reason", ""),
        check=verdict.get("check", ""),
        csr=after,
        events=csrs.events,
        public=_public(csr, after, csrs),
        logged=repr(verdict),
    )


def _reconciler(scenario: Scenario, claims: ClaimStore) -> Reconciler:
    return Reconciler(
        policies=PolicySet(by_cluster={scenario.cluster.key: scenario.policy}, default=None),
        anchors={scenario.policy.name: scenario.anchors},
        claims=claims,
        challenge_keys=_Masters(value=scenario.challenge_keys),
        authorities=_Authorities(),
        rate_limiter=ChallengeRateLimiter(lambda: 0.0),
        now=lambda: scenario.now,
        monotonic=lambda: 0.0,
        random=Random(0).randbytes,
    )


def _recorded(look_once: Callable[[], object]) -> Mapping[str, Any]:
    """Return the fields of the verdict; what was no error of ours is raised as the bug it is."""
    recorder, logger = _Recorder(), logging.getLogger("signer")
    level = logger.level
    logger.addHandler(recorder)
    logger.setLevel(logging.DEBUG)
    try:
        look_once()
    finally:
        logger.removeHandler(recorder)
        logger.setLevel(level)
    fields: dict[str, Any] = {}
    for record in recorder.records:
        if record.exc_info is not None and record.exc_info[1] is not None:
            raise AssertionError("an error that is none of ours") from record.exc_info[1]
        told = getattr(record, "fields", {})
        if told.get("outcome") != "alarm":
            fields = told
    return fields


def _public(before: Csr, after: Csr, csrs: FakeCsrs) -> str:
    written = {k: v for k, v in after.annotations.items() if before.annotations.get(k) != v}
    conditions = [c for k, c in after.conditions.items() if before.conditions.get(k) != c]
    return repr((written, conditions, csrs.events))


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """Everything that outlives a look, copied."""

    keys: Mapping[str, Any]
    nodes: Mapping[tuple[str, str], Any]
    rest: tuple[Any, ...]

    def whole_claims(self) -> set[tuple[str, str]]:
        """Which endorsement key has which node, by their names."""
        return {
            (key.name, node.name)
            for key in self.keys.values()
            for node in self.nodes.values()
            if is_complete_claim(key, node)
        }


def _state(scenario: Scenario) -> _State:
    machines = {key: tuple(found) for key, found in scenario.store.machines.items()}
    rest = (
        *(
            scenario.policy,
            scenario.anchors,
            scenario.challenge_keys,
            scenario.now,
            scenario.cluster,
        ),
        *(machines, tuple(scenario.inventory.nodes), scenario.inventory.filled),
    )
    return _State(keys=dict(scenario.store.keys), nodes=dict(scenario.store.nodes), rest=rest)


@cache
def _honest(make: Callable[[], Scenario]) -> tuple[_State, Csr]:
    """Make the good case of a scenario, once: its state, and the answer of its node."""
    scenario = make()
    return _state(scenario), scenario.answer_csr()


def assert_issued(make: Callable[[], Scenario]) -> None:
    """Require that the scenario as it is made is a good case: a challenge, then a certificate."""
    scenario = make()
    assert reconcile_once(scenario, scenario.offer_csr()).outcome == "challenged"
    traces = reconcile_once(scenario, scenario.answer_csr())
    assert (traces.outcome, traces.reason) == ("issued", "")
    assert traces.csr.certificate is not None
    assert set(traces.csr.conditions) == {"Approved"}


def assert_refused(attack: Attack) -> None:
    """Require that the attack meets its reason, and costs nobody else anything."""
    scenario = attack.scenario()
    filed = attack.mutate(scenario)
    if filed is None:
        filed = [scenario.offer_csr(), scenario.answer_csr()]
    for csr in [filed] if isinstance(filed, Csr) else filed:
        _require_refused_by_function(attack, scenario, csr)
        _refused(attack, scenario, csr)
    good, answer = _honest(attack.scenario)
    if _state(scenario) == good:
        assert reconcile_once(scenario, answer).outcome == "issued"


def _require_refused_by_function(attack: Attack, scenario: Scenario, csr: Csr) -> None:
    """Require that the one function that makes the check refuses, without the reconciler."""
    function, error = _refusing_function(attack, scenario, csr)
    assert type(error) is attack.reason
    allowed = _FUNCTIONS[attack.check[:1]] | _FUNCTIONS.get(attack.check, frozenset())
    assert function in allowed


def _refusing_function(
    attack: Attack, scenario: Scenario, csr: Csr
) -> tuple[str, AttestationError | None]:
    """Run the signer's functions on a copy of the store: a refused attempt may write claims."""
    isolated, inventory = copy(scenario), copy(scenario.inventory)
    isolated.store, isolated.inventory = deepcopy(scenario.store), inventory
    if inventory.store is scenario.store:  # else the caches are behind
        inventory.store = isolated.store
    context, function = isolated.context(), "recognize_csr"
    try:
        kind = recognize_csr(csr, scenario.cluster, scenario.policy)
        function = "parse_request"
        parsed = parse_request(csr, kind)
        match parsed:
            case ParsedOffer():
                function = "verify_offer"
                verify_offer(csr, kind, parsed, context)
            case ParsedKubeletServing():
                function = "verify_kubelet_serving"
                verify_kubelet_serving(csr, parsed, context)
            case ParsedAnswer():
                function = "verify_answer"
                verified = verify_answer(csr, kind, parsed, context, scenario.challenge_keys)
                function = "make_claims"
                make_claims(
                    verified,
                    claims=_claims(attack, isolated, csr),
                    policy=scenario.policy,
                    now=scenario.now,
                    not_after=scenario.now + scenario.policy.certificate_lifetime,
                )
    except AttestationError as error:
        return function, error
    return function, None


def _refused(attack: Attack, scenario: Scenario, csr: Csr) -> None:
    before = _state(scenario)
    traces = reconcile_once(scenario, csr, claims=_claims(attack, scenario, csr))
    told = (traces.outcome, traces.reason, traces.check)
    outcome = OUTCOMES[attack.reason.consequence]
    if outcome == "denied" and "Approved" in csr.conditions:
        outcome = "failed"
    assert told == (outcome, attack.reason.__name__, attack.check)
    _require_told(traces, csr, outcome)
    _require_discreet(scenario, traces)
    after = _state(scenario)
    assert before.whole_claims() <= after.whole_claims()
    about_claims = attack.claims is not None or attack.check.startswith("K")
    assert about_claims or after == before


def _claims(attack: Attack, scenario: Scenario, csr: Csr) -> ClaimStore:
    """Return the live claims: for offers, where nobody may be asked, they are out of reach."""
    if attack.claims is not None:
        return attack.claims(scenario)
    return FakeClaimStore(store=scenario.store, unavailable=csr.uid == OFFER_UID)


def _require_told(traces: Outcome, csr: Csr, outcome: str) -> None:
    """Require one trace on the CSR, with the very reason; and none on what is not ours."""
    after = traces.csr
    assert after.certificate == csr.certificate
    new = set(after.conditions) - set(csr.conditions)
    assert new == {"denied": {"Denied"}, "failed": {"Failed"}}.get(outcome, set())
    for kind in new:
        assert after.conditions[kind].reason == traces.reason
    if outcome == "waiting":
        assert after.annotations[PENDING_REASON_ANNOTATION].startswith(f"{traces.reason}: ")
    if csr.uid == OFFER_UID or outcome != "waiting":
        assert not traces.events
    if outcome in {"ignored", "retried"}:
        assert replace(after, resource_version=csr.resource_version) == csr


def _require_discreet(scenario: Scenario, traces: Outcome) -> None:
    """No secret, no expected value and no other cluster's name (Keylime CVE-2023-38201)."""
    masters = [
        m
        for m in (scenario.challenge_keys.current, scenario.challenge_keys.previous)
        if m is not None
    ]
    secrets = [*masters, scenario.extra_data(traces.csr.name)]
    quoted = [value for bank in scenario.pcrs.values() for value in bank.values()]
    for values, text in ((secrets, traces.public + traces.logged), (quoted, traces.public)):
        for value in values:
            assert value.hex() not in text
            assert base64.b64encode(value).decode() not in text
    assert ABROAD.name not in traces.public
