"""What is stored between two steps: claims, filed CSRs, and verdicts in progress."""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from tests.model.messages import Answer, Place


class Held(NamedTuple):
    """An EndorsementKey with its holder. One without a holder counts as absent."""

    key: str
    place: Place
    on_record: bool


class Named(NamedTuple):
    """An AttestedNode. `lapsed` is true once `notAfter` has passed."""

    place: Place
    key: str
    lapsed: bool


class Phase(StrEnum):
    """The progress of an honest node."""

    OFFERED = "offered"
    CHALLENGED = "challenged"
    ANSWERED = "answered"
    BURNT = "burnt"
    """Used only where a broken rule lets other nodes spend a challenge."""


class Exchange(NamedTuple):
    """An honest node's exchange: the answer that it has filed or will file."""

    phase: Phase
    answer: Answer


class Version(StrEnum):
    """Whether a resourceVersion that was read is current. Numbers would make states infinite."""

    UNREAD = "unread"
    ABSENT = "absent"
    CURRENT = "current"
    OLD = "old"


class At(StrEnum):
    """The next API call of a verdict."""

    K1_CACHED = "K1 takes the claim from its caches"
    K1_READ = "K1 reads the key"
    K1_HOLDER = "K1 reads the name of the key's holder"
    K1_WRITE = "K1 writes the key"
    K2_READ = "K2 reads the name"
    K2_HOLDER = "K2 reads the key that the name is held with"
    K2_WRITE = "K2 writes the name"
    K3_WRITE = "K3 writes the key once more"
    APPROVE = "approves"
    ISSUE = "issues"


class Verdict(NamedTuple):
    """One replica's work on one proved answer. A crash loses all of it."""

    answer: Answer
    at: At
    on_record: bool
    informed: bool
    """Whether the caches were up to date when it began."""
    banned: bool = False
    """Whether the key was banned when K1 read it and K1 did not check."""
    key: Version = Version.UNREAD
    name: Version = Version.UNREAD
    rival: Held | Named | None = None
    whole: bool = False


class Certificate(NamedTuple):
    """A valid certificate: its Machine, the key that attested it, and its private key's owner."""

    place: Place
    key: str
    made_by: str


class Sweep(NamedTuple):
    """The sweep has read a claim that is not live, and will delete it under its resourceVersion."""

    claim: Held | Named
    version: Version


class State(NamedTuple):
    """The state of the whole model."""

    acts: int = 0
    """How many of the operator's acts are done."""
    held: frozenset[Held] = frozenset()
    named: frozenset[Named] = frozenset()
    exchanges: frozenset[Exchange] = frozenset()
    filed: frozenset[Answer] = frozenset()
    """The attacker's undecided answers."""
    approved: frozenset[Answer] = frozenset()
    """Kept only where a broken rule reads it."""
    verdicts: tuple[Verdict, ...] = ()
    """One per busy replica. Replicas are alike, so the order has no meaning."""
    certificates: frozenset[Certificate] = frozenset()
    joined: frozenset[Place] = frozenset()
    """Machines whose Node exists."""
    sweep: Sweep | None = None


class Issued(NamedTuple):
    """A certificate was written into the answer's object."""

    verdict: Verdict


class Denied(NamedTuple):
    """An answer was denied."""

    answer: Answer
    informed: bool


class Step(NamedTuple):
    """One transition: the actor, the action, and the state after it."""

    actor: str
    text: str
    after: State
    event: Issued | Denied | None = None


def holder(state: State, key: str) -> Held | None:
    """Return an EndorsementKey's claim."""
    return next((it for it in state.held if it.key == key), None)


def claim(state: State, node: tuple[str, str]) -> Named | None:
    """Return a node name's AttestedNode."""
    return next((it for it in state.named if it.place.node == node), None)


def undecided(state: State) -> frozenset[Answer]:
    """Return the answers that have neither certificate nor denial."""
    known = (Phase.ANSWERED, Phase.BURNT)
    return state.filed | {e.answer for e in state.exchanges if e.phase in known}


def is_whole(held: Held | None, named: Named | None) -> bool:
    """Return whether the two claims name each other."""
    return bool(held and named and held.place.node == named.place.node and held.key == named.key)


def with_verdicts(state: State, verdicts: Iterable[Verdict]) -> State:
    """Replace the verdicts, sorted: replicas are alike."""
    return state._replace(verdicts=tuple(sorted(verdicts, key=hash)))


def touch_key(state: State, key: str) -> State:
    """Give an EndorsementKey a new resourceVersion: earlier readers now have an old one."""
    verdicts = (
        v._replace(key=Version.OLD) if v.answer.key == key and v.key == Version.CURRENT else v
        for v in state.verdicts
    )
    return with_verdicts(_sweep_touched(state, holder(state, key)), verdicts)


def touch_name(state: State, node: tuple[str, str]) -> State:
    """Give an AttestedNode a new resourceVersion."""
    verdicts = (
        v._replace(name=Version.OLD)
        if v.answer.place.node == node and v.name == Version.CURRENT
        else v
        for v in state.verdicts
    )
    return with_verdicts(_sweep_touched(state, claim(state, node)), verdicts)


def _sweep_touched(state: State, touched: Held | Named | None) -> State:
    if state.sweep and state.sweep.claim == touched:
        return state._replace(sweep=state.sweep._replace(version=Version.OLD))
    return state


def without_key(state: State, key: str) -> State:
    """Remove the holder of an EndorsementKey."""
    held = holder(state, key)
    return touch_key(state, key)._replace(held=state.held - {held})


def with_key(state: State, held: Held) -> State:
    """Write an EndorsementKey."""
    state = without_key(state, held.key)
    return state._replace(held=state.held | {held})


def without_name(state: State, node: tuple[str, str]) -> State:
    """Delete an AttestedNode."""
    named = claim(state, node)
    return touch_name(state, node)._replace(named=state.named - {named})


def with_name(state: State, named: Named) -> State:
    """Write an AttestedNode."""
    state = without_name(state, named.place.node)
    return state._replace(named=state.named | {named})
