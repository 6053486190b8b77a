"""Every actor except the signer: honest nodes, the attacker, the operator, crashes and time."""

from collections.abc import Iterable, Iterator

from tests.model.messages import Answer
from tests.model.model import Model, Refusal
from tests.model.objects import LAPSED, judged, key_name, place_of, unclaimed_key
from tests.model.rules import Rule
from tests.model.signer import SIGNER, deny, picks, sweeps, touch, works
from tests.model.state import At, Exchange, Phase, State, Step, without_verdict
from tests.model.world import Host, Made

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
        world = model.world(state)
        if state.acts >= host.since and is_running(host, world.machines | world.away):
            it = model.answer_of(host, renewal=has_certificate(state, host))
            offered = others | {Exchange(Phase.OFFERED, it)}
            yield Step(NODE, f"offers {it.label}", state._replace(exchanges=offered))
    elif mine.phase is Phase.OFFERED:
        yield from challenge(model, state, mine)
    elif mine.phase is Phase.CHALLENGED:
        answered = others | {mine._replace(phase=Phase.ANSWERED)}
        yield Step(NODE, f"answers {mine.answer.label}", state._replace(exchanges=answered))


def is_running(host: Host, machines: Iterable[Made]) -> bool:
    """Return whether the machine of a host is one of these."""
    return any(
        host.place.name in machine.node_names
        and (machine.cluster, machine.provider_id) == (host.place.cluster, host.place.provider_id)
        for machine in machines
    )


def challenge(model: Model, state: State, offered: Exchange) -> Iterator[Step]:
    """Apply M and E to an offer: the signer writes nothing except the offer's annotation."""
    decision = model.admit(state, offered.answer, state.acts)
    if isinstance(decision, Refusal):
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
    burning = []
    if model.scenario.writes_csrs:
        burning.append((Phase.OFFERED, "writes another challenge into"))
    if not model.keeps(Rule.WRONG_ANSWERS_ARE_FREE):
        burning += [(phase, "wrongly answers") for phase in (Phase.CHALLENGED, Phase.ANSWERED)]
    for phase, act in burning:
        for mine in state.exchanges:
            if mine.phase is phase:
                burnt = state.exchanges - {mine} | {mine._replace(phase=Phase.BURNT)}
                text = f"{act} the exchange of {mine.answer.label}"
                yield Step(ATTACKER, text, state._replace(exchanges=burnt))


def describe(it: Answer) -> str:
    """Return what an attacker's answer asks for."""
    return f"{it.label} as {it.requester} with {it.key}, over the key pair of {it.made_by}"


def operator(model: Model, state: State) -> Iterator[Step]:
    """Do the next act. Cluster API deletes the Node of a Machine that is gone."""
    if state.acts + 1 == len(model.scenario.worlds):
        return
    world = model.scenario.worlds[state.acts + 1]
    after = state._replace(
        acts=state.acts + 1,
        joined=frozenset(each for each in state.joined if each[1] in world.bodies),
    )
    if world.restores:
        after = restored(model, after)
    yield Step(OPERATOR, world.done, write_keys(model, after))


def restored(model: Model, state: State) -> State:
    """Restore the claims of the start from a backup; every earlier reader conflicts."""
    for number in state.keys:
        state = touch(model, state, (model.keys.get(number).name,))
    for number in state.nodes:
        place = place_of(model.nodes.get(number))
        state = touch(model, state, place.node)
    return state._replace(keys=model.start.keys, nodes=model.start.nodes)


def write_keys(model: Model, state: State) -> State:
    """Write bans and releases into EndorsementKeys; an absent one is created."""
    world = model.world(state)
    keys = {model.keys.get(number).name: model.keys.get(number) for number in state.keys}
    for refused in world.banned | {key for key, _ in world.released}:
        keys.setdefault(key_name(refused), unclaimed_key(refused, model.scenario))
    changed = [judged(key, world) for key in keys.values()]
    for key in changed:
        if model.keys.of(key) not in state.keys:
            state = touch(model, state, (key.name,))
    return state._replace(keys=frozenset(map(model.keys.of, changed)))


def crashes(state: State) -> Iterator[Step]:
    """Let a replica lose its verdict between any two API calls."""
    for verdict in set(state.verdicts):
        text = f"the replica that next {verdict.at} of {verdict.answer.label}"
        yield Step(CRASH, text, without_verdict(state, verdict))


def time(model: Model, state: State) -> Iterator[Step]:
    """Let certificates expire, with what depends on them, and let `notAfter` of claims pass."""
    for it in state.certificates:
        after = state._replace(certificates=state.certificates - {it})
        text = f"a certificate for {'/'.join(it.place)} with {it.key} expires"
        yield Step(TIME, text, after)
    for place, body in state.joined:
        gone = body not in model.world(state).bodies
        if gone and not any(it.place == place for it in state.certificates):
            after = state._replace(joined=state.joined - {(place, body)})
            yield Step(TIME, f"the Node of {'/'.join(place)}, long gone, is removed", after)
    for number in state.nodes if model.scenario.hold else ():
        claim = model.nodes.get(number)
        place = place_of(claim)
        if claim.not_after != LAPSED and not covers(state, place.node):
            lapsed = model.nodes.of(claim.replace(not_after=LAPSED))
            text = f"notAfter of {'/'.join(place)} passes"
            yield Step(TIME, text, state._replace(nodes=state.nodes - {number} | {lapsed}))


def covers(state: State, node: tuple[str, str]) -> bool:
    """Return whether `notAfter` of a name is in the future: a certificate exists or may be issued.

    An answer is valid for 15 minutes and a certificate for at least one hour. So `notAfter` does
    not pass between K2 and the certificate.
    """
    return any(it.place.node == node for it in state.certificates) or any(
        verdict.answer.place.node == node
        and (
            verdict.at in (At.APPROVE, At.ISSUE)
            or any(seen.method.endswith("e_attested_node") for seen in verdict.seen)
        )
        for verdict in state.verdicts
    )
