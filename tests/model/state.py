"""What is stored between two steps: claims, filed CSRs, and verdicts in progress."""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from signer.kinds.machine import MachineState
from tests.model.messages import Answer, Place

Subject = tuple[str, ...]
"""An object that may change: the name of an EndorsementKey, or cluster and name of a node."""


class Phase(StrEnum):
    """The progress of an honest node."""

    OFFERED = "offered"
    CHALLENGED = "challenged"
    ANSWERED = "answered"
    BURNT = "burnt"
    """The answer is to a challenge that the attacker wrote, or has spent where a rule is broken."""


class Exchange(NamedTuple):
    """An honest node's exchange: the answer that it has filed or will file."""

    phase: Phase
    answer: Answer


class At(StrEnum):
    """The part of a verdict that comes next."""

    CACHES = "reads its caches"
    CALLS = "writes the claims"
    APPROVE = "approves"
    ISSUE = "issues"


class Seen(NamedTuple):
    """The answer that a call of a verdict got."""

    method: str
    subject: Subject
    value: int | MachineState | tuple[int, ...] | None
    """The number of an object."""
    is_current: bool = True
    """Whether the object has still this resourceVersion."""


class Verdict(NamedTuple):
    """One replica's work on one proved answer. A crash loses all of it."""

    answer: Answer
    work: int
    """The number of what M and E returned."""
    at: At
    informed: bool
    """Whether the caches were up to date when it began."""
    banned: bool = False
    """Whether the key was banned when K1 read it."""
    cached: bool = False
    """Whether K1 began with the node's own claim from an old cache; `seen` begins with its node."""
    seen: tuple[Seen, ...] = ()


class Certificate(NamedTuple):
    """A valid certificate: its node and machine, the key that attested it, and whose key pair."""

    place: Place
    key: str
    made_by: str
    body: str


class Sweep(NamedTuple):
    """The sweep has read that nothing needs an object, and will delete it."""

    method: str
    subject: Subject
    number: int
    is_current: bool = True


class State(NamedTuple):
    """The state of the whole model."""

    acts: int = 0
    """How many of the operator's acts are done."""
    keys: frozenset[int] = frozenset()
    """The numbers of the EndorsementKeys."""
    nodes: frozenset[int] = frozenset()
    """The numbers of the AttestedNodes."""
    exchanges: frozenset[Exchange] = frozenset()
    filed: frozenset[Answer] = frozenset()
    """The attacker's undecided answers."""
    approved: frozenset[Answer] = frozenset()
    """Kept only where a broken rule reads it."""
    verdicts: tuple[Verdict, ...] = ()
    """One per busy replica. Replicas are alike, so the order has no meaning."""
    certificates: frozenset[Certificate] = frozenset()
    joined: frozenset[tuple[Place, str]] = frozenset()
    """Nodes that exist, with the machine of each."""
    sweep: Sweep | None = None


class Issued(NamedTuple):
    """A certificate was written into the answer's object."""

    verdict: Verdict
    certificate: Certificate


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


def undecided(state: State) -> frozenset[Answer]:
    """Return the answers that have neither certificate nor denial."""
    known = (Phase.ANSWERED, Phase.BURNT)
    return state.filed | {e.answer for e in state.exchanges if e.phase in known}


def with_verdicts(state: State, verdicts: Iterable[Verdict]) -> State:
    """Replace the verdicts, sorted: replicas are alike."""
    return state._replace(verdicts=tuple(sorted(verdicts, key=hash)))


def with_verdict(state: State, verdict: Verdict) -> State:
    """Make a replica busy."""
    return with_verdicts(state, (*state.verdicts, verdict))


def without_verdict(state: State, verdict: Verdict) -> State:
    """Make one replica idle."""
    rest = list(state.verdicts)
    rest.remove(verdict)
    return state._replace(verdicts=tuple(rest))


def outdated(seen: tuple[Seen, ...], subject: Subject) -> tuple[Seen, ...]:
    """Return what a verdict saw, after an object got a new resourceVersion."""
    return tuple(
        each._replace(is_current=False) if each.subject == subject else each for each in seen
    )
