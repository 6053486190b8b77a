"""K1 to K3 of section 5: reads and writes, one API call per step.

A verdict begins at `K1_CACHED`, where it may take both objects from a cache that is too old. After
a conflict it starts over at `K1_READ`, with reads from the API server.

Each function makes the next API call of a verdict and returns the state after it. In that state the
verdict is at its following call, or is gone because it has to wait. Otherwise the function returns
the reason to deny.
"""

from collections.abc import Callable, Iterator, Mapping

from tests.model.rules import Rule
from tests.model.state import (
    At,
    Held,
    Named,
    State,
    Verdict,
    Version,
    claim,
    holder,
    is_whole,
    undecided,
    with_key,
    with_name,
    with_verdicts,
)
from tests.model.world import Model


def is_live(model: Model, state: State, held: Held | None, named: Named | None) -> bool:
    """Return whether a claim is complete and its Machine exists."""
    if not (held and named and is_whole(held, named)):
        return False
    world = model.world(state)
    if held.key in world.banned and model.keeps(Rule.BANNED_IS_DEAD):
        return outlives_machine(model, named)
    if world.is_released(held.key, held.place) and model.keeps(Rule.RELEASED_IS_DEAD):
        return False
    places = {held.place, named.place}
    if not model.keeps(Rule.GONE_MACHINE_FREES_CLAIM):
        hardware = {(place.cluster, place.provider_id) for place in places}
        places = {m for m in world.machines if (m.cluster, m.provider_id) in hardware}
    return bool(places & world.machines) or outlives_machine(model, named)


def outlives_machine(model: Model, named: Named) -> bool:
    """Return whether the policy keeps a claim without its Machine until `notAfter` has passed."""
    return model.scenario.hold and not named.lapsed


def move(state: State, verdict: Verdict, at: At) -> State:
    """Move a verdict to its next call."""
    return with_verdicts(state, (*state.verdicts, verdict._replace(at=at, rival=None)))


def check_rival(state: State, verdict: Verdict, at: At, rival: Held | Named) -> State:
    """Move a verdict to the call that checks whether a rival's claim is live."""
    return with_verdicts(state, (*state.verdicts, verdict._replace(at=at, rival=rival)))


def may_write(model: Model, version: Version, *, exists: bool) -> bool:
    """Return whether a write succeeds: the object is absent, or unchanged since it was read."""
    if not model.keeps(Rule.RESOURCE_VERSIONS):
        return True
    return not exists if version is Version.ABSENT else version is Version.CURRENT


def restart(state: State, verdict: Verdict) -> State:
    """Start again from K1: the object changed after it was read."""
    fresh = verdict._replace(key=Version.UNREAD, name=Version.UNREAD, whole=False)
    return move(state, fresh, At.K1_READ)


def blocks(model: Model, *, live: bool, rule: Rule) -> bool:
    """Return whether a rival's claim blocks this one: a live claim does, a stale one does not."""
    return model.keeps(rule) and (live or not model.keeps(Rule.DEAD_CLAIMS_FREED))


def k1_cached(model: Model, state: State, verdict: Verdict) -> Iterator[State]:
    """Take both objects from the caches, or read them where the caches show another node's.

    A cache that is current, and a contest, have the outcome of the live reads. A cache that lacks
    the objects has that of a read in a moment when they were absent: K1 creates the key, which
    conflicts. What is new is a cache that shows an earlier state of the node's own claim of the
    key: K1 confirms it without a write, K2 writes the name if that is current, and K3 conflicts.
    """
    yield move(state, verdict, At.K1_READ)
    named = claim(state, verdict.answer.place.node)
    if named is None:
        name = Version.ABSENT
    elif named.key == verdict.answer.key:
        name = Version.CURRENT
    else:
        return
    banned = model.world(state).refuses(verdict.answer.key, verdict.answer.place)
    stale = verdict._replace(key=Version.OLD, name=name, banned=banned)
    yield move(state, stale, At.K2_WRITE)


def k1_read(model: Model, state: State, verdict: Verdict) -> State | str:
    """Read the EndorsementKey, and whether it is banned now."""
    key = verdict.answer.key
    refused = model.world(state).refuses(key, verdict.answer.place)
    verdict = verdict._replace(banned=refused)
    if refused and model.keeps(Rule.BAN_READ_LIVE):
        return "E3: banned or released"
    held = holder(state, key)
    if held is None:
        return move(state, verdict._replace(key=Version.ABSENT), At.K1_WRITE)
    return check_rival(state, verdict._replace(key=Version.CURRENT), At.K1_HOLDER, held)


def k1_holder(model: Model, state: State, verdict: Verdict) -> State | str:
    """Confirm the node's existing claim, take over a stale one, or yield to a live one."""
    rival = verdict.rival
    assert isinstance(rival, Held)
    named = claim(state, rival.place.node)
    if rival.place == verdict.answer.place:
        if not model.keeps(Rule.SECOND_WRITE_ALWAYS):
            verdict = verdict._replace(whole=is_whole(rival, named))
        newly_on_record = verdict.on_record and not rival.on_record
        return move(state, verdict, At.K1_WRITE if newly_on_record else At.K2_READ)
    live = is_live(model, state, rival, named)
    beaten = verdict.on_record and not rival.on_record
    if beaten or not blocks(model, live=live, rule=Rule.LIVING_KEY_KEPT):
        return move(state, verdict, At.K1_WRITE)
    both_on_record = verdict.on_record and rival.on_record
    machine_gone = rival.place not in model.world(state).machines
    return state if both_on_record or machine_gone else "K1: another live node holds the key"


def k1_write(model: Model, state: State, verdict: Verdict) -> State:
    """Create the EndorsementKey, or take it over under its resourceVersion."""
    it = verdict.answer
    if not may_write(model, verdict.key, exists=holder(state, it.key) is not None):
        return restart(state, verdict)
    state = with_key(state, Held(it.key, it.place, verdict.on_record))
    return move(state, verdict._replace(key=Version.CURRENT), At.K2_READ)


def k2_read(_model: Model, state: State, verdict: Verdict) -> State:
    """Read the AttestedNode."""
    named = claim(state, verdict.answer.place.node)
    if named is None:
        return move(state, verdict._replace(name=Version.ABSENT), At.K2_WRITE)
    verdict = verdict._replace(name=Version.CURRENT)
    if named.key == verdict.answer.key:
        return move(state, verdict, At.K2_WRITE)
    return check_rival(state, verdict, At.K2_HOLDER, named)


def k2_holder(model: Model, state: State, verdict: Verdict) -> State | str:
    """Take over a stale name, or yield to a live claim."""
    rival = verdict.rival
    assert isinstance(rival, Named)
    held = holder(state, rival.key)
    live = is_live(model, state, held, rival) or outlives_machine(model, rival)
    beaten = verdict.on_record and held is not None and not held.on_record
    if beaten and model.keeps(Rule.RECORD_BEATS_NAME):
        return move(state, verdict, At.K2_WRITE)
    if not blocks(model, live=live, rule=Rule.LIVING_NAME_KEPT):
        return move(state, verdict, At.K2_WRITE)
    machine_gone = rival.place not in model.world(state).machines
    return state if machine_gone else "K2: the name belongs to another key"


def k2_write(model: Model, state: State, verdict: Verdict) -> State:
    """Create, confirm or take over the AttestedNode, with `notAfter` of the next certificate."""
    it = verdict.answer
    named = claim(state, it.place.node)
    if not may_write(model, verdict.name, exists=named is not None):
        return restart(state, verdict)
    desired = Named(it.place, it.key, lapsed=False)
    if model.keeps(Rule.CONFIRMING_WRITES) or named != desired:
        state = with_name(state, desired)
    if model.keeps(Rule.SECOND_WRITE) and not verdict.whole:
        return move(state, verdict, At.K3_WRITE)
    return claimed(model, state, verdict)


def k3_write(model: Model, state: State, verdict: Verdict) -> State:
    """Write the EndorsementKey again, so that a replica that read an incomplete claim conflicts."""
    it = verdict.answer
    if may_write(model, verdict.key, exists=holder(state, it.key) is not None):
        state = with_key(state, Held(it.key, it.place, verdict.on_record))
    elif model.keeps(Rule.RESTART_ON_CONFLICT):
        return restart(state, verdict)
    return claimed(model, state, verdict)


def claimed(model: Model, state: State, verdict: Verdict) -> State:
    """Continue with I. Approved is a separate step only where a broken rule reads it."""
    unread = model.keeps(Rule.APPROVED_UNREAD)
    return move(state, verdict, At.ISSUE if unread else At.APPROVE)


def approve(_model: Model, state: State, verdict: Verdict) -> State:
    """Set Approved, one write before the certificate is written."""
    if verdict.answer in undecided(state):
        state = state._replace(approved=state.approved | {verdict.answer})
    return move(state, verdict, At.ISSUE)


CALLS: Mapping[At, Callable[[Model, State, Verdict], State | str]] = {
    At.K1_READ: k1_read,
    At.K1_HOLDER: k1_holder,
    At.K1_WRITE: k1_write,
    At.K2_READ: k2_read,
    At.K2_HOLDER: k2_holder,
    At.K2_WRITE: k2_write,
    At.K3_WRITE: k3_write,
    At.APPROVE: approve,
}
