"""What must hold, whatever any actor does."""

from collections.abc import Iterator
from enum import StrEnum

from tests.model.actors import has_certificate
from tests.model.messages import Answer, tpm_of
from tests.model.state import Certificate, Denied, Issued, State, Step
from tests.model.world import Host, Model


class Invariant(StrEnum):
    """The promises, in the words of docs/model.md."""

    AGREEMENT = "an honest TPM's certificate is only issued for an answer that its own node filed"
    ON_RECORD = "a certificate for a node is only for the TPM on record, or first claimed, for it"
    OWN_TPM = "a certificate in an honest node's name is only for its own TPM and key pair"
    ONE_KEY = "one endorsement key never serves two existing nodes"
    ONE_TPM = "one TPM never serves two existing nodes, whatever its keys"
    EXCLUSIVE = "while a certificate is valid its key serves no other node, its node no other key"
    BANNED = "a verdict that reaches K1 after a ban or a release gives the key nothing there"
    NO_DENIAL = "an honest node's answer is not denied by a signer whose caches are up to date"
    LIVENESS = "an honest node gets its certificate once the attacker stops"

    @property
    def label(self) -> str:
        """Return the name that tables show."""
        return self.name.lower().replace("_", "-")


def lost_by(model: Model, step: Step) -> Iterator[Invariant]:
    """Return the invariants that a step breaks. LIVENESS needs the whole graph, see `explore`."""
    match step.event:
        case Issued(verdict=verdict):
            it = verdict.answer
            certificate = Certificate(it.place, it.key, it.made_by)
            if not agrees(model, it):
                yield Invariant.AGREEMENT
            if not is_on_record_or_first(model, step.after, certificate):
                yield Invariant.ON_RECORD
            if not is_own(model, certificate):
                yield Invariant.OWN_TPM
            if verdict.banned:
                yield Invariant.BANNED
            yield from lost_by_two(model, step.after)
        case Denied(answer=it, informed=True):
            for host in model.scenario.hosts:
                is_host = (it.key, it.place) == (host.key, host.place)
                own = is_host and it in model.honest_answers
                if own and is_entitled(model, step.after, host):
                    yield Invariant.NO_DENIAL
        case _:
            pass


def agrees(model: Model, it: Answer) -> bool:
    """Return whether an answer in the name of an honest TPM was made by that TPM's node."""
    keys = {honest.key for honest in model.honest_answers}
    return it.key not in keys or it in model.honest_answers


def is_on_record_or_first(model: Model, state: State, it: Certificate) -> bool:
    """Return whether the key was on record or unclaimed when some cache was up to date."""
    known = [
        {key for key, place in world.records if place == it.place}
        for world in model.scenario.worlds[: state.acts + 1]
    ]
    ever: set[str] = set().union(*known)
    others = {c.key for c in state.certificates if c.place == it.place} - ever - {it.key}
    was_free = not model.mode.needs_record and not all(known) and not others
    return it.key in ever or was_free


def is_own(model: Model, it: Certificate) -> bool:
    """Return whether an honest node's name belongs to its own TPM and key pair."""
    owners = {a.key: a.made_by for a in model.honest_answers if a.place == it.place}
    return not owners or it.key in model.scenario.former_keys or owners.get(it.key) == it.made_by


def lost_by_two(model: Model, state: State) -> Iterator[Invariant]:
    """Compare valid certificates in pairs. Those of deleted nodes remain valid (section 7)."""
    world = model.world(state)
    for one in state.certificates:
        for two in state.certificates - {one}:
            two_nodes = one.place.node != two.place.node
            live = {
                it.place
                for it in (one, two)
                if it.place in world.machines and not world.is_released(it.key, it.place)
            }
            if two_nodes and len(live) == 2:
                if one.key == two.key:
                    yield Invariant.ONE_KEY
                if tpm_of(one.key) == tpm_of(two.key):
                    yield Invariant.ONE_TPM
            if two_nodes == (one.key == two.key):
                yield Invariant.EXCLUSIVE


def is_entitled(model: Model, state: State, host: Host) -> bool:
    """Return whether operators want this host to have a certificate now."""
    world = model.world(state)
    on_record = {key for key, place in world.records if place == host.place}
    has_record = host.key in on_record if model.mode.needs_record else on_record <= {host.key}
    there = state.acts >= host.since and host.place in world.machines
    return has_record and there and not world.refuses(host.key, host.place)


def is_served(model: Model, state: State, host: Host) -> bool:
    """Return whether a host has the certificate that it is entitled to."""
    return has_certificate(state, host) or not is_entitled(model, state, host)
