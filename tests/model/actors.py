"""Every actor except the signer: honest nodes, the attacker, the operator, crashes and time."""

from collections.abc import Iterator

from tests.model.checks import admit
from tests.model.messages import Answer
from tests.model.rules import Rule
from tests.model.signer import SIGNER, deny, picks, sweeps, without_verdict, works
from tests.model.state import At, Exchange, Phase, State, Step, touch_key
from tests.model.world import Host, Model

NODE, TIME, OPERATOR, ATTACKER, CRASH = "node", "time", "operator", "attacker", "crash"
HONEST = frozenset({NODE, SIGNER, TIME})
"""Actors that continue when the attacker has stopped, nothing crashes and caches are up to date."""


def steps(model: Model, state: State) -> Iterator[Step]:
    """Return every step that is possible next."""
    for host in model.scenario.hosts:
        yield from node(model, state, host)
    yield from picks(model, state)
    yield from works(model, state)
    yield from sweeps(model, state)
    yield from attacker(model, state)
    yield from operator(model, state)
    yield from crashes(state)
    yield from time(model, state)


def node(model: Model, state: State, host: Host) -> Iterator[Step]:
    """Let an honest node offer, answer its challenge, renew, and start over when denied."""
    own = (host.key, host.place)
    mine = next((e for e in state.exchanges if (e.answer.key, e.answer.place) == own), None)
    others = state.exchanges - {mine}
    if mine is None:
        if state.acts >= host.since and host.place in model.world(state).machines:
            it = host.answer(renewal=has_certificate(state, host))
            offered = others | {Exchange(Phase.OFFERED, it)}
            yield Step(NODE, f"offers {it.label}", state._replace(exchanges=offered))
    elif mine.phase is Phase.OFFERED:
        yield from challenge(model, state, mine)
    elif mine.phase is Phase.CHALLENGED:
        answered = others | {mine._replace(phase=Phase.ANSWERED)}
        yield Step(NODE, f"answers {mine.answer.label}", state._replace(exchanges=answered))


def challenge(model: Model, state: State, offered: Exchange) -> Iterator[Step]:
    """Apply M and E to an offer: the signer writes nothing except the offer's annotation."""
    decision = admit(model, state, offered.answer, model.world(state))
    if isinstance(decision, str):
        yield deny(state, offered.answer, decision, informed=True)
    elif decision is not None:
        challenged = state.exchanges - {offered} | {offered._replace(phase=Phase.CHALLENGED)}
        text = f"challenges {offered.answer.label}"
        yield Step(SIGNER, text, state._replace(exchanges=challenged))


def has_certificate(state: State, host: Host) -> bool:
    """Return whether an honest node holds a valid certificate."""
    return any((it.place, it.key) == (host.place, host.key) for it in state.certificates)


def attacker(model: Model, state: State) -> Iterator[Step]:
    """File every answer that proves itself. Other answers change nothing, so they are not filed."""
    if len(state.filed) < model.scenario.filed_at_once:
        for it in model.forgeries:
            if it not in state.filed:
                after = state._replace(filed=state.filed | {it})
                yield Step(ATTACKER, f"files {describe(it)}", after)
    if not model.keeps(Rule.WRONG_ANSWERS_ARE_FREE):
        for mine in state.exchanges:
            if mine.phase in (Phase.CHALLENGED, Phase.ANSWERED):
                burnt = state.exchanges - {mine} | {mine._replace(phase=Phase.BURNT)}
                text = f"answers the challenge of {mine.answer.label} wrongly"
                yield Step(ATTACKER, text, state._replace(exchanges=burnt))


def describe(it: Answer) -> str:
    """Return what an attacker's answer asks for."""
    return f"{it.label} as {it.requester} with {it.key}, over the key pair of {it.made_by}"


def operator(model: Model, state: State) -> Iterator[Step]:
    """Do the next act. Cluster API deletes the Node of a Machine that is deleted."""
    if state.acts + 1 == len(model.scenario.worlds):
        return
    before, world = model.world(state), model.scenario.worlds[state.acts + 1]
    after = state._replace(
        acts=state.acts + 1, joined=state.joined - (before.machines - world.machines)
    )
    released = {key for key, _ in world.released - before.released}
    for key in (world.banned - before.banned) | released:
        after = touch_key(after, key)
    yield Step(OPERATOR, world.done, after)


def crashes(state: State) -> Iterator[Step]:
    """Let a replica lose its verdict between any two API calls."""
    for verdict in set(state.verdicts):
        text = f"the replica that next {verdict.at}, with {verdict.answer.label}"
        yield Step(CRASH, text, without_verdict(state, verdict))


def time(model: Model, state: State) -> Iterator[Step]:
    """Let certificates expire, with what depends on them, and let `notAfter` of claims pass."""
    for it in state.certificates:
        after = state._replace(certificates=state.certificates - {it})
        text = f"a certificate for {'/'.join(it.place)} with {it.key} expires"
        yield Step(TIME, text, after)
    for place in state.joined - model.world(state).machines:
        if not any(it.place == place for it in state.certificates):
            after = state._replace(joined=state.joined - {place})
            yield Step(TIME, f"the Node of {'/'.join(place)}, long gone, is removed", after)
    for named in state.named if model.scenario.hold else ():
        if not named.lapsed and not covers(state, named.place.node):
            lapsed = state.named - {named} | {named._replace(lapsed=True)}
            text = f"notAfter of {'/'.join(named.place)} passes"
            yield Step(TIME, text, state._replace(named=lapsed))


def covers(state: State, node: tuple[str, str]) -> bool:
    """Return whether `notAfter` of a name is in the future: a certificate exists or may be issued.

    An answer is valid for 15 minutes and a certificate for at least one hour. So `notAfter` does
    not pass between K2 and the certificate.
    """
    coming = (At.K3_WRITE, At.APPROVE, At.ISSUE)
    return any(it.place.node == node for it in state.certificates) or any(
        v.answer.place.node == node and v.at in coming for v in state.verdicts
    )
