"""The signer's replicas: how they take up answers, make calls, issue, and sweep."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any, Final

from signer.controller.maintenance.management_rounds import (
    delete_if_stale,
    delete_if_unclaimed,
    is_disposable,
)
from signer.kinds.attested_node import AttestedNodeObject
from signer.kinds.endorsement_key import EndorsementKeyObject
from tests.model.messages import OFFER, Answer
from tests.model.model import DONE, WAIT, Effect, Model, Refusal, subject_of
from tests.model.objects import NOT_AFTER, NOW, key_of
from tests.model.replay import Call, next_call
from tests.model.rules import Rule
from tests.model.state import (
    At,
    Certificate,
    Denied,
    Issued,
    Phase,
    Seen,
    State,
    Step,
    Subject,
    Sweep,
    Verdict,
    outdated,
    undecided,
    with_verdict,
    with_verdicts,
    without_verdict,
)

SIGNER, STALE = "signer", "signer with a stale cache"
_LATER: Final = NOT_AFTER + timedelta(days=2)
_WITH_THE_NEXT: Final = ("machine_state", "attested_nodes_with_key")
"""Calls that read no claim; they are made in the step of the call before."""


def picks(model: Model, state: State) -> Iterator[Step]:
    """Let an idle replica pick an undecided answer, also one that another replica is verifying."""
    if len(state.verdicts) == model.scenario.replicas:
        return
    burnt = {e.answer for e in state.exchanges if e.phase is Phase.BURNT}
    for it in undecided(state):
        for view in range(state.acts + 1):
            actor = SIGNER if view == state.acts else STALE
            informed = actor == SIGNER or it in state.filed
            decision = model.admit(state, it, view)
            if it in burnt:
                decision = Refusal("Q2: the answer is to another challenge")
            if isinstance(decision, Refusal):
                yield deny(state, it, decision, informed=informed)
            elif decision is not None:
                verdict = Verdict(it, decision, At.CACHES, informed)
                if it in state.approved:
                    banned = model.world(state).refuses(it.key, it.cluster)
                    verdict = verdict._replace(at=At.ISSUE, banned=banned)
                yield Step(actor, f"takes up {it.label}", with_verdict(state, verdict))


def touch(model: Model, state: State, subject: Subject) -> State:
    """Give an object a new resourceVersion: earlier readers now have an old one."""
    if state.sweep and state.sweep.subject == subject:
        state = state._replace(sweep=state.sweep._replace(is_current=False))
    if not state.verdicts:
        return state
    verdicts = (
        model.canonical(verdict._replace(seen=outdated(verdict.seen, subject)))
        if verdict.seen
        else verdict
        for verdict in state.verdicts
    )
    return with_verdicts(state, verdicts)


def deny(state: State, it: Answer, refusal: Refusal, *, informed: bool) -> Step:
    """Deny this CSR. Its node may start over."""
    event = Denied(it, informed=informed)
    return Step(SIGNER, f"denies {it.label}: {refusal.reason}", decided(state, it), event)


def decided(state: State, it: Answer) -> State:
    """Remove an answer from the undecided ones."""
    return state._replace(
        filed=state.filed - {it},
        approved=state.approved - {it},
        exchanges=frozenset(e for e in state.exchanges if e.answer is not it),
    )


def works(model: Model, state: State) -> Iterator[Step]:
    """Let each busy replica make its next call."""
    for verdict in set(state.verdicts):
        idle = without_verdict(state, verdict)
        if verdict.at is At.ISSUE:
            yield issue(model, idle, verdict)
        elif verdict.at is At.APPROVE:
            yield approve(idle, verdict)
        else:
            if verdict.at is At.CACHES:
                yield from begin_with_caches(model, idle, verdict)
            yield claim(model, idle, verdict._replace(at=At.CALLS))


def begin_with_caches(model: Model, idle: State, verdict: Verdict) -> Iterator[Step]:
    """Take both objects of the claim from the caches, without a call.

    A cache that is current, and a contest, have the outcome of the live reads. A cache that lacks
    the objects has that of a read in a moment when they were absent: K1 creates the key, which
    conflicts. What is new is a cache that shows an earlier state of the node's own claim of the
    key: K1 confirms it without a write, K2 writes the name if that is current, and K3 conflicts.
    """
    it = verdict.answer
    node = next((number for number in idle.nodes if _is_node_of(model.nodes.get(number), it)), None)
    if node is not None and key_of(model.nodes.get(node).endorsement_key) != it.key:
        return
    seen = Seen("cached_node", (it.cluster, it.request.name), node)
    banned = model.world(idle).refuses(it.key, it.cluster)
    begun = verdict._replace(at=At.CALLS, banned=banned, cached=True, seen=(seen,))
    yield proceed(model, idle, begun, f"takes the claim of {it.label} from its caches")


def _is_node_of(node: AttestedNodeObject, it: Answer) -> bool:
    return (node.cluster.name, node.node_name) == (it.cluster, it.request.name)


def claim(model: Model, idle: State, verdict: Verdict) -> Step:
    """Make the next call of K1 to K4. After a conflict, start again with live reads."""
    call = model.next_call(verdict)
    assert isinstance(call, Call)
    text = f"{call.method} {'/'.join(_names(call))} for {verdict.answer.label}"
    effect = model.perform(idle, call)
    if effect is None:
        # It may also begin with its caches again: that is a crash, after which it is taken up.
        again = verdict._replace(at=At.CACHES, cached=False, seen=())
        return Step(SIGNER, f"{text}: conflict", with_verdict(idle, again))
    if call.method == "endorsement_key" and _is_refused(model, effect, verdict.answer):
        verdict = verdict._replace(banned=True)
    if effect.is_write:
        idle = touch(model, idle, effect.seen.subject)._replace(
            keys=effect.keys, nodes=effect.nodes
        )
        verdict = verdict._replace(seen=outdated(verdict.seen, effect.seen.subject))
    return proceed(model, idle, verdict._replace(seen=(*verdict.seen, effect.seen)), text)


def proceed(model: Model, idle: State, verdict: Verdict, text: str) -> Step:
    """Return the step that leads to the next call of a verdict, or to its end."""
    outcome = model.next_call(verdict)
    while isinstance(outcome, Call) and outcome.method in _WITH_THE_NEXT:
        effect = model.perform(idle, outcome)
        assert effect is not None
        verdict = verdict._replace(seen=(*verdict.seen, effect.seen))
        outcome = model.next_call(verdict)
    if isinstance(outcome, Refusal):
        step = deny(idle, verdict.answer, outcome, informed=verdict.informed)
        return step._replace(text=f"{text}, and {step.text}")
    if outcome == WAIT:
        return Step(SIGNER, f"{text}, and waits", idle)
    if outcome == DONE:
        at = At.ISSUE if model.keeps(Rule.APPROVED_UNREAD) else At.APPROVE
        verdict = verdict._replace(at=at, cached=False, seen=())
    return Step(SIGNER, text, with_verdict(idle, model.canonical(verdict)))


def _names(call: Call) -> tuple[str, ...]:
    """Return what a trace names of a call."""
    first = call.arguments[0]
    if isinstance(first, EndorsementKeyObject):
        return (key_of(first.name),)
    if isinstance(first, AttestedNodeObject):
        return first.cluster.name, first.node_name
    if isinstance(first, str):
        return (key_of(first),)
    return first.name, call.arguments[1]


def _is_refused(model: Model, effect: Effect, it: Answer) -> bool:
    """Return whether the key that was read is the one of the answer, and refused for it."""
    if not isinstance(effect.seen.value, int):
        return False
    key = model.keys.get(effect.seen.value)
    refused = key.banned is not None or any(
        each.cluster.name == it.cluster for each in key.released_from
    )
    return key_of(key.name) == it.key and refused


def approve(idle: State, verdict: Verdict) -> Step:
    """Set Approved. It is a step of its own only where a broken rule reads it."""
    if verdict.answer in undecided(idle):
        idle = idle._replace(approved=idle.approved | {verdict.answer})
    after = with_verdict(idle, verdict._replace(at=At.ISSUE))
    return Step(SIGNER, f"approves {verdict.answer.label}", after)


def issue(model: Model, idle: State, verdict: Verdict) -> Step:
    """Write the certificate unless another replica has decided (I1)."""
    it = verdict.answer
    text = f"issues {it.label} with {it.key}"
    if it not in undecided(idle):
        return Step(SIGNER, f"{text}, too late", idle)
    if it.name == OFFER:
        return Step(SIGNER, "has claimed for an offer", decided(idle, it))
    body = model.works[verdict.work].body
    certificate = Certificate(it.place, it.key, it.made_by, body)
    after = decided(idle, it)._replace(certificates=idle.certificates | {certificate})
    if model.scenario.attacker_joins or it in model.honest_answers:
        after = after._replace(joined=after.joined | {(it.place, body)})
    return Step(SIGNER, text, after, Issued(verdict, certificate))


def sweeps(model: Model, state: State) -> Iterator[Step]:
    """Remove what nothing needs (section 2): read, then delete under the resourceVersion."""
    if not model.scenario.sweeper:
        return
    if state.sweep is not None:
        yield _delete(model, state, state.sweep)
        return
    for number in state.keys:
        key = model.keys.get(number).replace(creation_timestamp=NOW)
        if key.held_by is None or not is_disposable(key, _LATER):
            continue
        sweep = partial(delete_if_unclaimed, key=key, holder=key.held_by)
        yield from _sweep_of(model, state, sweep, number)
    for number in state.nodes:
        sweep = partial(delete_if_stale, node=model.nodes.get(number))
        yield from _sweep_of(model, state, sweep, number)


def _sweep_of(
    model: Model, state: State, sweep: Callable[[Any], None], number: int
) -> Iterator[Step]:
    """Read what the deletion of an object depends on."""
    answers: list[object] = []
    while isinstance(call := next_call(sweep, answers), Call):
        if call.method.startswith("delete"):
            found = Sweep(call.method, subject_of(call), number)
            text = f"reads that nothing needs {'/'.join(_names(call))}"
            yield Step(SIGNER, text, state._replace(sweep=found))
            return
        effect = model.perform(state, call)
        assert effect is not None
        answers.append(model.revive(effect.seen))


def _delete(model: Model, state: State, sweep: Sweep) -> Step:
    after = state._replace(sweep=None)
    if sweep.is_current or not model.keeps(Rule.SWEEP_VERSIONS):
        after = touch(model, after, sweep.subject)
        after = after._replace(
            keys=after.keys if len(sweep.subject) > 1 else after.keys - {sweep.number},
            nodes=after.nodes if len(sweep.subject) == 1 else after.nodes - {sweep.number},
        )
    return Step(SIGNER, f"{sweep.method} {'/'.join(sweep.subject)}, if it is unchanged", after)
