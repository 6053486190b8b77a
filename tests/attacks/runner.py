"""Run each attack through the function that has to refuse it, and through the reconciler.

An attack changes one thing in a scenario that is otherwise valid. It redoes everything that its
attacker could redo: signatures with keys of the attacker, and the secret of the challenge where the
attacker has the TPM. So the check under test refuses it, and no earlier check.

Each attack runs twice. In the functions of signer/verify, the one that makes the check must refuse
it, in a module that names the check. So these tables are the negative tests of signer/verify. In
`CsrReconciler.reconcile`, these assertions hold:

- The condition, the annotation and the audit record have the expected reason and check number. No
  certificate is written.
- No message contains a secret, an expected value, the detail for operators, a reason after the
  first one, or the name of another Cluster.
- No claim is lost. No claim is made, unless another replica has just changed the claims.
- A valid node of the same scenario still gets its certificate.
"""

import base64
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from traceback import walk_tb
from typing import Any, Final

from common.errors import AttestationError, Consequence
from common.names import PENDING_REASON_ANNOTATION
from signer.kinds.csr import Csr
from signer.verify.answer import verify_answer
from signer.verify.checks import CHECKS
from signer.verify.claimed_answer import make_claims
from signer.verify.kubelet_serving import verify_kubelet_serving
from signer.verify.machines.claims import is_complete_claim
from signer.verify.offer import verify_offer
from signer.verify.requests.parse import (
    ParsedAnswer,
    ParsedKubeletServing,
    ParsedOffer,
    parse_request,
)
from signer.verify.requests.recognize import recognize_csr
from tests.builders.reconciler import ReconcilerFixture
from tests.builders.scenario import ABROAD, OFFER_UID, Scenario, signed
from tests.fakes.claims import FakeClaimStore
from tests.fakes.csrs import FakeCsrs

Mutation = Callable[[Scenario], Csr | Sequence[Csr] | None]
"""Return hostile CSRs, or change the scenario so that its offer and answer are hostile (`None`)."""

Table = Mapping[type[AttestationError], Mapping[str, Mutation]]
"""The mutations that a reason must refuse, by name."""

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
"""The function that has to refuse, by letter or number of the check.

E3 reads caches in `verify_*`; K1 and K2 read live in `make_claims`, with some of the same reasons.
"""


@dataclass(frozen=True, slots=True)
class Attack:
    """A hostile input: the reason that refuses it, and its mutation of a scenario."""

    name: str
    reason: type[AttestationError]
    mutate: Mutation
    scenario: Callable[[], Scenario] = Scenario
    claims: Callable[[Scenario], FakeClaimStore] | None = None
    """Returns claims that another replica changes during the reconciliation."""
    says: str = ""
    """A part of the message, or of the detail, which only operators see."""

    @property
    def check(self) -> str:
        """Return the number of the check that refuses it."""
        return self.reason.check

    def __str__(self) -> str:
        return f"{self.check}: {self.name}"


def attacks(*tables: Table, scenario: Callable[[], Scenario] = Scenario) -> list[Attack]:
    """Return the attacks of tables, all on one scenario."""
    return [
        Attack(name, reason, mutate, scenario)
        for table in tables
        for reason, mutations in table.items()
        for name, mutate in mutations.items()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a reconciliation wrote."""

    outcome: str
    reason: str
    check: str
    csr: Csr
    events: Sequence[tuple[str, str]]
    public: str
    """Everything that readers of the CSR and its events can see."""
    logged: str
    """The audit record, for operators: it may contain PCR values, and no secret."""


class _LogRecorder(logging.Handler):
    """Records the log of the signer."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def reconcile_once(
    scenario: Scenario,
    csr: Csr,
    *,
    csrs: FakeCsrs | None = None,
    claims: FakeClaimStore | None = None,
) -> Outcome:
    """Create the CSR unless it exists, and reconcile it once."""
    csrs = FakeCsrs() if csrs is None else csrs
    stored = csrs.read(csr.name) or csrs.put(csr)
    fixture = ReconcilerFixture(scenario, csrs)
    if claims is not None:
        fixture.claims = claims
    verdict = _record_verdict(lambda: fixture.reconcile(stored))
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


def _record_verdict(reconcile: Callable[[], object]) -> Mapping[str, Any]:
    """Return the fields of the verdict. Raise `AssertionError` for an unexpected exception."""
    recorder, logger = _LogRecorder(), logging.getLogger("signer")
    level = logger.level
    logger.addHandler(recorder)
    logger.setLevel(logging.DEBUG)
    try:
        reconcile()
    finally:
        logger.removeHandler(recorder)
        logger.setLevel(level)
    fields: dict[str, Any] = {}
    for record in recorder.records:
        if record.exc_info is not None and record.exc_info[1] is not None:
            raise AssertionError("the signer raised an unexpected exception") from record.exc_info[
                1
            ]
        logged = getattr(record, "fields", {})
        if logged.get("outcome") != "alarm":
            fields = logged
    return fields


def _public(before: Csr, after: Csr, csrs: FakeCsrs) -> str:
    written = {k: v for k, v in after.annotations.items() if before.annotations.get(k) != v}
    conditions = [c for k, c in after.conditions.items() if before.conditions.get(k) != c]
    return repr((written, conditions, csrs.events))


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """A copy of everything that outlives a reconciliation."""

    keys: Mapping[str, Any]
    nodes: Mapping[tuple[str, str], Any]
    settings: tuple[Any, ...]

    def complete_claims(self) -> set[tuple[str, str]]:
        """Return the names of each endorsement key and the node that holds it."""
        return {
            (key.name, node.name)
            for key in self.keys.values()
            for node in self.nodes.values()
            if is_complete_claim(key, node)
        }


def _state(scenario: Scenario) -> _State:
    machines = {cluster: tuple(members) for cluster, members in scenario.store.machines.items()}
    settings = (
        *(
            scenario.policy,
            scenario.anchors,
            scenario.challenge_keys,
            scenario.now,
            scenario.cluster,
        ),
        *(machines, tuple(scenario.inventory.nodes), scenario.inventory.filled),
        *(dict(scenario.platforms.names), dict(scenario.platforms.vm_ids)),
        scenario.platforms.error,
    )
    return _State(
        keys=dict(scenario.store.keys), nodes=dict(scenario.store.nodes), settings=settings
    )


@cache
def _valid_case(make: Callable[[], Scenario]) -> tuple[_State, Csr]:
    """Return the initial state of a scenario and the valid answer of its node."""
    scenario = make()
    return _state(scenario), scenario.answer_csr()


def assert_issued(make: Callable[[], Scenario]) -> None:
    """Assert that the unchanged scenario gets a challenge, then a certificate."""
    scenario = make()
    assert reconcile_once(scenario, scenario.offer_csr()).outcome == "challenged"
    traces = reconcile_once(scenario, scenario.answer_csr())
    assert (traces.outcome, traces.reason) == ("issued", "")
    assert traces.csr.certificate is not None
    assert set(traces.csr.conditions) == {"Approved"}


def assert_refused(attack: Attack) -> None:
    """Assert that the attack is refused for its reason, and that a valid node is not affected."""
    scenario = attack.scenario()
    hostile = attack.mutate(scenario)
    if hostile is None:
        hostile = [scenario.offer_csr(), scenario.answer_csr()]
    for csr in [hostile] if isinstance(hostile, Csr) else hostile:
        error = _assert_refused_by_function(attack, scenario, csr)
        _assert_refused_by_reconciler(attack, scenario, csr, error)
    good, answer = _valid_case(attack.scenario)
    if _state(scenario) == good:
        assert reconcile_once(scenario, answer).outcome == "issued"


def _assert_refused_by_function(attack: Attack, scenario: Scenario, csr: Csr) -> AttestationError:
    """Assert that the function that makes the check refuses, in a module that the check names."""
    function, error = _refusing_function(attack, scenario, csr)
    assert error is not None
    assert type(error) is attack.reason
    assert attack.says in error.message or attack.says in error.detail
    allowed = _FUNCTIONS[attack.check[:1]] | _FUNCTIONS.get(attack.check, frozenset())
    assert function in allowed
    frames = [frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__)]
    frames = [path for path in frames if "/signer/verify/" in path or "/common/" in path]
    named = next(filter(None, map(_checks_of, reversed(frames))), frozenset())
    assert {attack.check} - {""} <= named
    return error


@cache
def _checks_of(path: str) -> frozenset[str]:
    """Return the numbers of the checks that a module names: a search finds the code of a check."""
    numbers = re.findall(r"\b[A-Z][0-9]\b", Path(path).read_text(encoding="utf-8"))
    return frozenset(numbers) & CHECKS.keys()


def _refusing_function(
    attack: Attack, scenario: Scenario, csr: Csr
) -> tuple[str, AttestationError | None]:
    """Run the signer's functions on a copy of the store: a refused attempt may write claims."""
    isolated, inventory = copy(scenario), copy(scenario.inventory)
    isolated.store, isolated.inventory = deepcopy(scenario.store), inventory
    if inventory.store is scenario.store:  # else the caches are older than the claims
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
                    context,
                    claims=_claims(attack, isolated, csr),
                    sign=signed(scenario.now + scenario.policy.certificate.lifetime),
                )
    except AttestationError as error:
        return function, error
    return function, None


def _assert_refused_by_reconciler(
    attack: Attack, scenario: Scenario, csr: Csr, error: AttestationError
) -> None:
    before = _state(scenario)
    traces = reconcile_once(scenario, csr, claims=_claims(attack, scenario, csr))
    verdict = (traces.outcome, traces.reason, traces.check)
    outcome = OUTCOMES[attack.reason.consequence]
    if outcome == "denied" and "Approved" in csr.conditions:
        outcome = "failed"
    assert verdict == (outcome, attack.reason.__name__, attack.check)
    reported = outcome in {"denied", "failed", "waiting"} or attack.reason.alarm
    _assert_recorded_once(traces, csr, outcome, reported=reported)
    _assert_nothing_disclosed(scenario, traces)
    assert not error.detail or error.detail not in traces.public
    assert not any(further.reason in traces.public for further in error.further)
    after = _state(scenario)
    assert before.complete_claims() <= after.complete_claims()
    old_caches = scenario.inventory.store is not scenario.store
    may_write = attack.claims is not None or (old_caches and attack.check.startswith(("E3", "K")))
    assert may_write or after == before


def _claims(attack: Attack, scenario: Scenario, csr: Csr) -> FakeClaimStore:
    """Return the live claims; they are unavailable for an offer, which must not cause API calls."""
    if attack.claims is not None:
        return attack.claims(scenario)
    return FakeClaimStore(store=scenario.store, unavailable=csr.uid == OFFER_UID)


def _assert_recorded_once(traces: Outcome, csr: Csr, outcome: str, *, reported: bool) -> None:
    """Assert that CSR and Event have the reason once, and that an ignored CSR does not change."""
    after = traces.csr
    assert after.certificate == csr.certificate
    new = set(after.conditions) - set(csr.conditions)
    assert new == {"denied": {"Denied"}, "failed": {"Failed"}}.get(outcome, set())
    for kind in new:
        assert after.conditions[kind].reason == traces.reason
    if reported and not new:
        assert after.annotations[PENDING_REASON_ANNOTATION].startswith(f"{traces.reason}: ")
    assert traces.events == ([(csr.name, traces.reason)] if reported else [])
    if not reported:
        assert replace(after, resource_version=csr.resource_version) == csr


def _assert_nothing_disclosed(scenario: Scenario, traces: Outcome) -> None:
    """Assert that no secret, expected value or other Cluster is named (Keylime CVE-2023-38201)."""
    challenge_keys = [
        key
        for key in (scenario.challenge_keys.current, scenario.challenge_keys.previous)
        if key is not None
    ]
    secrets = [*challenge_keys, scenario.extra_data(traces.csr.name)]
    quoted = [value for bank in scenario.pcrs.values() for value in bank.values()]
    quoted.append(scenario.attest().pcr_digest)
    for values, text in ((secrets, traces.public + traces.logged), (quoted, traces.public)):
        for value in values:
            assert value.hex() not in text
            assert base64.b64encode(value).decode() not in text
    assert ABROAD.name not in traces.public
