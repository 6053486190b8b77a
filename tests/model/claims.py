"""K1 to K3 of section 5: live, one call to the API server a step.

Each function makes the call that a verdict is at, and returns the state after it: with the
verdict at its next call, or without it when it has to wait; or the reason to deny.
"""

from collections.abc import Callable, Mapping

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


def is_living(model: Model, state: State, held: Held | None, named: Named | None) -> bool:
    """Return whether a claim is complete and its Machine exists."""
    if not (held and named and is_whole(held, named)):
        return False
    world = model.world(state)
    if held.key in world.banned and model.keeps(Rule.BANNED_IS_DEAD):
        return is_kept(model, named)
    if world.is_released(held.key, held.place) and model.keeps(Rule.RELEASED_IS_DEAD):
        return False
    places = {held.place, named.place}
    if not model.keeps(Rule.GONE_MACHINE_FREES_CLAIM):
        hardware = {(place.cluster, place.provider_id) for place in places}
        places = {m for m in world.machines if (m.cluster, m.provider_id) in hardware}
    return bool(places & world.machines) or is_kept(model, named)


def is_kept(model: Model, named: Named) -> bool:
    """Tell whether a claim outlives its Machine: by policy, until `notAfter` has passed."""
    return model.scenario.hold and not named.lapsed


def go(state: State, verdict: Verdict, at: At) -> State:
    """Put a verdict at its next call."""
    return with_verdicts(state, (*state.verdicts, verdict._replace(at=at, rival=None)))


def ask(state: State, verdict: Verdict, at: At, rival: Held | Named) -> State:
    """Put a verdict at the call that tells whether a rival's claim is living."""
    return with_verdicts(state, (*state.verdicts, verdict._replace(at=at, rival=rival)))


def may_write(model: Model, version: Version, *, exists: bool) -> bool:
    """Create what was absent, update what is as it was read; all else is a conflict."""
    if not model.keeps(Rule.RESOURCE_VERSIONS):
        return True
    return not exists if version is Version.ABSENT else version is Version.CURRENT


def again(state: State, verdict: Verdict) -> State:
    """Start again from K1: something was written since it was read."""
    fresh = verdict._replace(key=Version.UNREAD, name=Version.UNREAD, whole=False)
    return go(state, fresh, At.K1_READ)


def stands(model: Model, *, living: bool, kept: Rule) -> bool:
    """Tell whether a rival's claim stands: a living one does, a dead one does not."""
    return model.keeps(kept) and (living or not model.keeps(Rule.DEAD_CLAIMS_FREED))


def k1_read(model: Model, state: State, verdict: Verdict) -> State | str:
    """Read the EndorsementKey, and whether it is banned by now."""
    key = verdict.answer.key
    refused = model.world(state).refuses(key, verdict.answer.place)
    verdict = verdict._replace(banned=refused)
    if refused and model.keeps(Rule.BAN_READ_LIVE):
        return "E3: banned or released"
    held = holder(state, key)
    if held is None:
        return go(state, verdict._replace(key=Version.ABSENT), At.K1_WRITE)
    return ask(state, verdict._replace(key=Version.CURRENT), At.K1_HOLDER, held)


def k1_holder(model: Model, state: State, verdict: Verdict) -> State | str:
    """Confirm the own claim, take a dead one, or yield to a living one."""
    rival = verdict.rival
    assert isinstance(rival, Held)
    named = claim(state, rival.place.node)
    if rival.place == verdict.answer.place:
        if not model.keeps(Rule.SECOND_WRITE_ALWAYS):
            verdict = verdict._replace(whole=is_whole(rival, named))
        newly_on_record = verdict.on_record and not rival.on_record
        return go(state, verdict, At.K1_WRITE if newly_on_record else At.K2_READ)
    living = is_living(model, state, rival, named)
    beaten = verdict.on_record and not rival.on_record
    if beaten or not stands(model, living=living, kept=Rule.LIVING_KEY_KEPT):
        return go(state, verdict, At.K1_WRITE)
    both_on_record = verdict.on_record and rival.on_record
    machine_gone = rival.place not in model.world(state).machines
    return state if both_on_record or machine_gone else "K1: another living node holds the key"


def k1_write(model: Model, state: State, verdict: Verdict) -> State:
    """Create the EndorsementKey, or take it under its resourceVersion."""
    it = verdict.answer
    if not may_write(model, verdict.key, exists=holder(state, it.key) is not None):
        return again(state, verdict)
    state = with_key(state, Held(it.key, it.place, verdict.on_record))
    return go(state, verdict._replace(key=Version.CURRENT), At.K2_READ)


def k2_read(_model: Model, state: State, verdict: Verdict) -> State:
    """Read the AttestedNode."""
    named = claim(state, verdict.answer.place.node)
    if named is None:
        return go(state, verdict._replace(name=Version.ABSENT), At.K2_WRITE)
    verdict = verdict._replace(name=Version.CURRENT)
    if named.key == verdict.answer.key:
        return go(state, verdict, At.K2_WRITE)
    return ask(state, verdict, At.K2_HOLDER, named)


def k2_holder(model: Model, state: State, verdict: Verdict) -> State | str:
    """Take a dead name, or yield to a living one."""
    rival = verdict.rival
    assert isinstance(rival, Named)
    held = holder(state, rival.key)
    living = is_living(model, state, held, rival) or is_kept(model, rival)
    beaten = verdict.on_record and held is not None and not held.on_record
    if beaten and model.keeps(Rule.RECORD_BEATS_NAME):
        return go(state, verdict, At.K2_WRITE)
    if not stands(model, living=living, kept=Rule.LIVING_NAME_KEPT):
        return go(state, verdict, At.K2_WRITE)
    machine_gone = rival.place not in model.world(state).machines
    return state if machine_gone else "K2: the name lives with another key"


def k2_write(model: Model, state: State, verdict: Verdict) -> State:
    """Create, confirm or take the AttestedNode; `notAfter` of what is to come is in it."""
    it = verdict.answer
    named = claim(state, it.place.node)
    if not may_write(model, verdict.name, exists=named is not None):
        return again(state, verdict)
    wanted = Named(it.place, it.key, lapsed=False)
    if model.keeps(Rule.CONFIRMING_WRITES) or named != wanted:
        state = with_name(state, wanted)
    if model.keeps(Rule.SECOND_WRITE) and not verdict.whole:
        return go(state, verdict, At.K3_WRITE)
    return claimed(model, state, verdict)


def k3_write(model: Model, state: State, verdict: Verdict) -> State:
    """Write the EndorsementKey once more: whoever read it before the claim was whole conflicts."""
    it = verdict.answer
    if may_write(model, verdict.key, exists=holder(state, it.key) is not None):
        state = with_key(state, Held(it.key, it.place, verdict.on_record))
    elif model.keeps(Rule.RESTART_ON_CONFLICT):
        return again(state, verdict)
    return claimed(model, state, verdict)


def claimed(model: Model, state: State, verdict: Verdict) -> State:
    """Go on to I; Approved is a step only where a broken rule reads it."""
    unread = model.keeps(Rule.APPROVED_UNREAD)
    return go(state, verdict, At.ISSUE if unread else At.APPROVE)


def approve(_model: Model, state: State, verdict: Verdict) -> State:
    """Set Approved, one write before the certificate."""
    if verdict.answer in undecided(state):
        state = state._replace(approved=state.approved | {verdict.answer})
    return go(state, verdict, At.ISSUE)


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
