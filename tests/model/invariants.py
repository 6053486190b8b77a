"""What must hold, whatever any actor does."""

from collections.abc import Iterator
from enum import StrEnum

from tests.model.actors import has_certificate, is_running
from tests.model.messages import Answer, tpm_of
from tests.model.model import Model
from tests.model.state import Certificate, Denied, Issued, State, Step
from tests.model.world import Host, World


class Invariant(StrEnum):
    """The promises, in the words of docs/model.md."""

    AGREEMENT = (
        "an honest TPM's certificate is only for the key pair and object that its node chose"
    )
    REGISTERED_OR_FIRST = (
        "a certificate for a node is only for the TPM registered, or first claimed, for it"
    )
    OWN_TPM = "a certificate in an honest node's name is only for its own TPM and key pair"
    ONE_KEY = "one endorsement key never serves two existing Machines"
    ONE_TPM = "one TPM never serves two existing Machines, whatever its keys"
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
        case Issued(verdict=verdict, certificate=certificate):
            if not agrees(model, verdict.answer):
                yield Invariant.AGREEMENT
            if not is_registered_or_first(model, step.after, certificate):
                yield Invariant.REGISTERED_OR_FIRST
            if not is_own(model, certificate):
                yield Invariant.OWN_TPM
            if verdict.banned:
                yield Invariant.BANNED
            yield from lost_by_two(model.world(step.after), step.after.certificates)
        case Denied(answer=it, informed=True):
            for host in model.scenario.hosts:
                is_host = (it.key, it.place) == (host.key, host.place)
                own = is_host and it in model.honest_answers
                if own and is_entitled(model, step.after, host):
                    yield Invariant.NO_DENIAL
        case _:
            pass


def agrees(model: Model, it: Answer) -> bool:
    """Return whether the node of an honest TPM chose what an answer in its name binds."""
    keys = {honest.key for honest in model.honest_answers}
    return it.key not in keys or it.choices in {honest.choices for honest in model.honest_answers}


def is_registered_or_first(model: Model, state: State, it: Certificate) -> bool:
    """Return whether the key was registered or unclaimed when some cache was up to date."""
    registered = {key for key, place in model.scenario.registered if place == it.place}
    known = [
        {key for key, place in world.records if place == it.place} | registered
        for world in model.scenario.worlds[: state.acts + 1]
    ]
    named = {
        key for key, place in model.scenario.names if place.provider_id == it.place.provider_id
    }
    ever: set[str] = set().union(named, *known)
    others = {c.key for c in state.certificates if c.place == it.place} - ever - {it.key}
    was_free = not model.mode.rules.trust.needs_record and not all(known) and not others
    return it.key in ever or was_free


def is_own(model: Model, it: Certificate) -> bool:
    """Return whether an honest node's name belongs to its own TPM and key pair."""
    owners = {a.key: a.made_by for a in model.honest_answers if a.place == it.place}
    return not owners or it.key in model.scenario.former_keys or owners.get(it.key) == it.made_by


def lost_by_two(world: World, certificates: frozenset[Certificate]) -> Iterator[Invariant]:
    """Compare valid certificates in pairs. Those of deleted nodes remain valid (section 7)."""
    for one in certificates:
        for two in certificates - {one}:
            existing = {
                it.body
                for it in (one, two)
                if it.body in world.bodies and (it.key, it.place.cluster) not in world.released
            }
            if len(existing) == 2:
                if one.key == two.key:
                    yield Invariant.ONE_KEY
                if tpm_of(one.key) == tpm_of(two.key):
                    yield Invariant.ONE_TPM
            if (one.place.node != two.place.node) == (one.key == two.key):
                yield Invariant.EXCLUSIVE


def is_entitled(model: Model, state: State, host: Host) -> bool:
    """Return whether operators want this host to have a certificate now."""
    world = model.world(state)
    registrations = (*world.records, *model.scenario.registered)
    registered = {key for key, place in registrations if place == host.place}
    has_record = host.key in registered if model.mode.needs_record else registered <= {host.key}
    there = state.acts >= host.since and is_running(host, world.machines)
    return has_record and there and not world.refuses(host.key, host.place.cluster)


def is_served(model: Model, state: State, host: Host) -> bool:
    """Return whether a host has the certificate that it is entitled to."""
    return has_certificate(state, host) or not is_entitled(model, state, host)
