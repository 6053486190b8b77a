"""The invariants that each mode is known to lose, and the one that each broken rule costs.

The tests compare both exactly: a loss too many fails, and so does one too few. docs/model.md says
the same in words.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tests.model.invariants import Invariant
from tests.model.rules import Mode, Rule

Losses = Mapping[Mode, frozenset[Invariant]]

_NAME_LOST = frozenset({Invariant.OWN_TPM, Invariant.NO_DENIAL, Invariant.LIVENESS})
"""The first node to claim the name has it. Its rightful node is refused from then on."""

_TWO_NODES = frozenset({Invariant.ONE_TPM})

_OLD_CERTIFICATE = frozenset({Invariant.EXCLUSIVE})
"""The certificate of a node that was deleted or replaced is valid until it expires (section 7)."""

_STUCK = frozenset({Invariant.NO_DENIAL, Invariant.LIVENESS})
"""A claim that was made on record outlives its record: the new key never gets the name."""


def _losses(
    *modes: Mode, lost: frozenset[Invariant], always: frozenset[Invariant] = frozenset()
) -> Losses:
    return {mode: always | (lost if mode in modes else frozenset()) for mode in Mode}


_NOWHERE = _losses(lost=frozenset())
_EVERYWHERE_OLD = _losses(lost=frozenset(), always=_OLD_CERTIFICATE)

LOSSES: Mapping[str, Losses] = {
    "stolen token": _losses(Mode.CERTIFIED, Mode.FIRST_USE, lost=_NAME_LOST),
    "stolen token, no TPM": _losses(Mode.FIRST_USE, lost=_NAME_LOST),
    "own tokens": _NOWHERE,
    "two clusters": _losses(Mode.CERTIFIED, Mode.FIRST_USE, lost=_NAME_LOST),
    "one key": _EVERYWHERE_OLD,
    "one key, claims held": _NOWHERE,
    "one key, claims swept": _EVERYWHERE_OLD,
    "two keys": _losses(Mode.CERTIFIED, Mode.FIRST_USE, lost=_TWO_NODES),
    "two keys, no TPM": _losses(Mode.REGISTERED, Mode.FIRST_USE, lost=_TWO_NODES),
    "new Machine": _EVERYWHERE_OLD,
    "new Machine, claims held": _NOWHERE,
    "same hardware": _EVERYWHERE_OLD,
    "same hardware, claims held": _NOWHERE,
    "hardware passed on": _EVERYWHERE_OLD,
    "TPM replaced": _EVERYWHERE_OLD,
    "TPM replaced, no ban": {
        mode: _STUCK if mode.needs_record else _OLD_CERTIFICATE for mode in Mode
    },
    "name won back": _losses(Mode.CERTIFIED, Mode.FIRST_USE, lost=_OLD_CERTIFICATE),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """Broken rules, and the invariant that they cost in a scenario which otherwise keeps it."""

    broken: frozenset[Rule]
    scenario: str
    mode: Mode
    lost: Invariant

    def __str__(self) -> str:
        """Return the name that its test has."""
        return "+".join(sorted(rule.name for rule in self.broken))


def _mutation(*broken: Rule, scenario: str, mode: Mode, lost: Invariant) -> Mutation:
    return Mutation(broken=frozenset(broken), scenario=scenario, mode=mode, lost=lost)


MUTATIONS = (
    _mutation(
        Rule.BOUND_OBJECT,
        scenario="stolen token",
        mode=Mode.REGISTERED,
        lost=Invariant.AGREEMENT,
    ),
    _mutation(
        Rule.BOUND_OBJECT,
        Rule.BOUND_REQUEST,
        scenario="stolen token",
        mode=Mode.REGISTERED,
        lost=Invariant.OWN_TPM,
    ),
    _mutation(
        Rule.BOUND_CLUSTER,
        scenario="two clusters",
        mode=Mode.CERTIFIED,
        lost=Invariant.AGREEMENT,
    ),
    _mutation(
        Rule.BOUND_KEY, scenario="stolen token", mode=Mode.REGISTERED, lost=Invariant.OWN_TPM
    ),
    _mutation(
        Rule.ONLY_ANSWERS_CLAIM,
        scenario="own tokens",
        mode=Mode.CERTIFIED,
        lost=Invariant.NO_DENIAL,
    ),
    _mutation(
        Rule.ANNOTATIONS_UNREAD,
        scenario="stolen token",
        mode=Mode.REGISTERED,
        lost=Invariant.ON_RECORD,
    ),
    _mutation(
        Rule.APPROVED_UNREAD,
        scenario="TPM replaced",
        mode=Mode.REGISTERED,
        lost=Invariant.BANNED,
    ),
    _mutation(
        Rule.WRONG_ANSWERS_ARE_FREE,
        scenario="stolen token",
        mode=Mode.REGISTERED,
        lost=Invariant.NO_DENIAL,
    ),
    _mutation(
        Rule.FIRST_CLAIM_GUARDED,
        scenario="own tokens",
        mode=Mode.CERTIFIED,
        lost=Invariant.OWN_TPM,
    ),
    _mutation(
        Rule.BAN_READ_LIVE,
        scenario="TPM replaced",
        mode=Mode.REGISTERED,
        lost=Invariant.BANNED,
    ),
    _mutation(
        Rule.BANNED_IS_DEAD,
        scenario="TPM replaced",
        mode=Mode.REGISTERED,
        lost=Invariant.LIVENESS,
    ),
    _mutation(
        Rule.RELEASED_IS_DEAD,
        scenario="hardware passed on",
        mode=Mode.REGISTERED,
        lost=Invariant.LIVENESS,
    ),
    _mutation(
        Rule.GONE_MACHINE_FREES_NAME,
        scenario="same hardware",
        mode=Mode.REGISTERED,
        lost=Invariant.NO_DENIAL,
    ),
    _mutation(
        Rule.GONE_MACHINE_FREES_CLAIM,
        scenario="same hardware",
        mode=Mode.REGISTERED,
        lost=Invariant.LIVENESS,
    ),
    _mutation(
        Rule.LIVING_KEY_KEPT, scenario="one key", mode=Mode.REGISTERED, lost=Invariant.ONE_KEY
    ),
    _mutation(
        Rule.LIVING_NAME_KEPT,
        scenario="stolen token",
        mode=Mode.CERTIFIED,
        lost=Invariant.ON_RECORD,
    ),
    _mutation(
        Rule.RECORD_BEATS_NAME,
        scenario="name won back",
        mode=Mode.CERTIFIED,
        lost=Invariant.LIVENESS,
    ),
    _mutation(
        Rule.DEAD_CLAIMS_FREED,
        scenario="new Machine",
        mode=Mode.REGISTERED,
        lost=Invariant.LIVENESS,
    ),
    _mutation(
        Rule.RESOURCE_VERSIONS,
        scenario="one key",
        mode=Mode.CERTIFIED,
        lost=Invariant.ONE_KEY,
    ),
    _mutation(
        Rule.CONFIRMING_WRITES,
        scenario="one key, claims swept",
        mode=Mode.REGISTERED,
        lost=Invariant.ONE_KEY,
    ),
    _mutation(Rule.SECOND_WRITE, scenario="one key", mode=Mode.CERTIFIED, lost=Invariant.ONE_KEY),
    _mutation(
        Rule.SECOND_WRITE_ALWAYS,
        scenario="one key",
        mode=Mode.CERTIFIED,
        lost=Invariant.ONE_KEY,
    ),
    _mutation(
        Rule.RESTART_ON_CONFLICT,
        scenario="one key",
        mode=Mode.CERTIFIED,
        lost=Invariant.ONE_KEY,
    ),
    _mutation(
        Rule.SWEEP_VERSIONS,
        scenario="one key, claims swept",
        mode=Mode.REGISTERED,
        lost=Invariant.ONE_KEY,
    ),
)
