"""M and E of section 5: they read caches, which may be old, before anything is written."""

from tests.model.messages import Answer, Place
from tests.model.rules import Rule
from tests.model.state import State, claim, holder, is_whole
from tests.model.world import Model, World


def admit(model: Model, state: State, it: Answer, seen: World) -> bool | str | None:
    """Check M, then E: True (on record), False (not), a reason to deny, or None (wait)."""
    there = it.place in seen.machines  # M1 to M3
    other_node = any(p.node == it.place.node and p != it.place for p in state.joined)  # M4
    if not there or other_node:
        return None
    if is_node(it.requester) and it.requester != f"node:{it.place.name}":
        return "M5: the requester is another node"
    if not has_free_name(model, state, it, seen):
        return "M3: the Machine has another node name"
    if seen.refuses(it.key, it.place):
        return "E3: banned or released"
    return trusted(model, state, it, seen)


def has_free_name(model: Model, state: State, it: Answer, seen: World) -> bool:
    """M3: a complete claim for this Machine fixes its node name."""
    hardware = (it.place.cluster, it.place.provider_id)
    return not any(
        is_whole(holder(state, named.key), named)
        and (named.place.cluster, named.place.provider_id) == hardware
        and named.place != it.place
        and (named.place in seen.machines or not model.keeps(Rule.GONE_MACHINE_FREES_NAME))
        for named in state.named
    )


def trusted(model: Model, state: State, it: Answer, seen: World) -> bool | str | None:
    """Check E2. The result has the same meaning as that of `admit`."""
    if it.key.startswith("soft") and model.mode.needs_certificate:
        return "E2: no certificate for this key"
    on_record = {key for key, place in seen.records if place == it.place}
    if not model.keeps(Rule.ANNOTATIONS_UNREAD) and it.annotation:
        on_record = {it.annotation}
    if on_record:
        return it.key in on_record or "E2: another key is on record"
    claimable = not model.mode.needs_record and may_claim(model, state, it)
    return False if claimable else None


def is_node(requester: str) -> bool:
    """Return whether the requester has a node's certificate and not a bootstrap token (R3)."""
    return requester.startswith("node:")


def may_claim(model: Model, state: State, it: Answer) -> bool:
    """Check E2 without a record: the claim exists already, or this may be the first claim."""
    named = claim(state, it.place.node)
    if named and (named.place, named.key) == (it.place, it.key):
        return True
    if not model.keeps(Rule.FIRST_CLAIM_GUARDED):
        return True
    if is_node(it.requester) or any(place.node == it.place.node for place in state.joined):
        return False
    return not model.scenario.own_tokens or it.requester == own_token(it.place)


def own_token(place: Place) -> str:
    """Return the token that a Machine's bootstrap configuration owns."""
    return f"token of {place.provider_id}"
