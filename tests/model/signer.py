"""The signer's replicas: how they pick answers, verify them step by step, issue, and sweep.

R, P, C, A and Q are in `messages.proves`. An answer that proves nothing is denied and changes
nothing, so the model does not file it.
"""

from collections.abc import Iterator

from tests.model import claims
from tests.model.checks import admit
from tests.model.messages import OFFER, Answer
from tests.model.rules import Rule
from tests.model.state import (
    At,
    Certificate,
    Denied,
    Held,
    Issued,
    Named,
    Phase,
    State,
    Step,
    Sweep,
    Verdict,
    Version,
    claim,
    holder,
    undecided,
    with_verdicts,
    without_key,
    without_name,
)
from tests.model.world import Model

SIGNER, STALE = "signer", "signer with a stale cache"


def picks(model: Model, state: State) -> Iterator[Step]:
    """Let an idle replica pick an undecided answer, also one that another replica is verifying."""
    if len(state.verdicts) == model.scenario.replicas:
        return
    for it in undecided(state):
        for view in range(state.acts + 1):
            actor = SIGNER if view == state.acts else STALE
            informed = actor == SIGNER or it in state.filed
            decision = admit(model, state, it, model.scenario.worlds[view])
            if Phase.BURNT in {e.phase for e in state.exchanges if e.answer == it}:
                decision = "C1: the challenge was spent"
            if isinstance(decision, str):
                yield deny(state, it, decision, informed=informed)
            elif decision is not None:
                verdict = Verdict(it, At.K1_CACHED, on_record=decision, informed=informed)
                if it in state.approved:
                    banned = model.world(state).refuses(it.key, it.place)
                    verdict = verdict._replace(at=At.ISSUE, banned=banned)
                after = with_verdicts(state, (*state.verdicts, verdict))
                yield Step(actor, f"takes up {it.label}", after)


def deny(state: State, it: Answer, reason: str, *, informed: bool) -> Step:
    """Deny this CSR. Its node may start over."""
    event = Denied(it, informed=informed)
    return Step(SIGNER, f"denies {it.label}: {reason}", decided(state, it), event)


def decided(state: State, it: Answer) -> State:
    """Remove an answer from the undecided ones."""
    return state._replace(
        filed=state.filed - {it},
        approved=state.approved - {it},
        exchanges=frozenset(e for e in state.exchanges if e.answer != it),
    )


def works(model: Model, state: State) -> Iterator[Step]:
    """Let each busy replica make its next call."""
    for verdict in set(state.verdicts):
        idle = without_verdict(state, verdict)
        if verdict.at is At.ISSUE:
            yield issue(idle, verdict)
            continue
        if verdict.at is At.K1_CACHED:
            text = f"{verdict.at}, with {verdict.answer.label}"
            yield from (Step(SIGNER, text, s) for s in claims.k1_cached(model, idle, verdict))
            continue
        after = claims.CALLS[verdict.at](model, idle, verdict)
        if isinstance(after, str):
            yield deny(idle, verdict.answer, after, informed=verdict.informed)
        else:
            waits = ", and waits" if after is idle else ""
            yield Step(SIGNER, f"{verdict.at}, with {verdict.answer.label}{waits}", after)


def without_verdict(state: State, verdict: Verdict) -> State:
    """Make one replica idle."""
    rest = list(state.verdicts)
    rest.remove(verdict)
    return state._replace(verdicts=tuple(rest))


def issue(state: State, verdict: Verdict) -> Step:
    """Write the certificate unless another replica has decided (I1)."""
    it = verdict.answer
    text = f"issues {it.label} with {it.key}"
    if it not in undecided(state):
        return Step(SIGNER, f"{text}, too late", state)
    if it.name == OFFER:
        return Step(SIGNER, "has claimed for an offer", decided(state, it))
    certificate = Certificate(it.place, it.key, it.request.made_by)
    after = decided(state, it)._replace(
        certificates=state.certificates | {certificate}, joined=state.joined | {it.place}
    )
    return Step(SIGNER, text, after, Issued(verdict))


def sweeps(model: Model, state: State) -> Iterator[Step]:
    """Remove claims that are not live (section 2): read, then delete under the resourceVersion."""
    if not model.scenario.sweeper:
        return
    if state.sweep is None:
        for claim in claims_not_live(model, state):
            text = f"reads that this claim is not live: {claim.key} of {'/'.join(claim.place)}"
            yield Step(SIGNER, text, state._replace(sweep=Sweep(claim, Version.CURRENT)))
        return
    seen, after = state.sweep.claim, state._replace(sweep=None)
    if state.sweep.version is Version.CURRENT or not model.keeps(Rule.SWEEP_VERSIONS):
        match seen:
            case Held():
                after = without_key(after, seen.key)
            case Named():
                after = without_name(after, seen.place.node)
    yield Step(SIGNER, "deletes the claim that is not live, if it is unchanged", after)


def claims_not_live(model: Model, state: State) -> Iterator[Held | Named]:
    """Return the claims of both kinds that are not live."""
    for held in state.held:
        if not claims.is_live(model, state, held, claim(state, held.place.node)):
            yield held
    for named in state.named:
        live = claims.is_live(model, state, holder(state, named.key), named)
        if not live and not claims.outlives_machine(model, named):
            yield named
