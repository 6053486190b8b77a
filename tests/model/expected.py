"""The invariants that each mode is known to lose, and the one that each broken rule costs.

The tests compare both exactly: a loss too many fails, and so does one too few. docs/model.md says
the same in words.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tests.model.invariants import Invariant
from tests.model.modes import Mode
from tests.model.rules import Rule

Losses = Mapping[Mode, frozenset[Invariant]]

_NAME_LOST = frozenset({Invariant.OWN_TPM, Invariant.NO_DENIAL, Invariant.LIVENESS})
"""The first node to claim the name has it. Its rightful node is refused from then on."""

_TWO_NODES = frozenset({Invariant.ONE_TPM})

_OLD_CERTIFICATE = frozenset({Invariant.EXCLUSIVE})
"""The certificate of a node that was deleted or replaced is valid until it expires (section 7)."""

_STUCK = frozenset({Invariant.NO_DENIAL, Invariant.LIVENESS})
"""The claim of a registered key outlives its registration: the new key never gets the name."""


def _losses(
    *modes: Mode, lost: frozenset[Invariant], always: frozenset[Invariant] = frozenset()
) -> Losses:
    return {mode: always | (lost if mode in modes else frozenset()) for mode in Mode}


_NOWHERE = _losses(lost=frozenset())
_EVERYWHERE_OLD = _losses(lost=frozenset(), always=_OLD_CERTIFICATE)
_WITHOUT_RECORDS = (Mode.CERTIFIED, Mode.FIRST_USE)

LOSSES: Mapping[str, Losses] = {
    "stolen token": _losses(*_WITHOUT_RECORDS, lost=_NAME_LOST),
    "stolen token, no name": {
        **_losses(*_WITHOUT_RECORDS, lost=_NAME_LOST),
        Mode.CERTIFICATE_NAMES: frozenset({Invariant.OWN_TPM, Invariant.EXCLUSIVE}),
    },
    "stolen token, no TPM": _losses(Mode.FIRST_USE, lost=_NAME_LOST),
    "annotations written": _losses(lost=frozenset(), always=frozenset({Invariant.NO_DENIAL})),
    "own tokens": _NOWHERE,
    "two clusters": _losses(*_WITHOUT_RECORDS, lost=_NAME_LOST),
    "one key": _EVERYWHERE_OLD,
    "one key, claims held": _NOWHERE,
    "one key, claims swept": _EVERYWHERE_OLD,
    "two keys": _losses(*_WITHOUT_RECORDS, lost=_TWO_NODES),
    "two keys, no TPM": _losses(Mode.REGISTERED, Mode.FIRST_USE, lost=_TWO_NODES),
    "new Machine": _EVERYWHERE_OLD,
    "new Machine, claims held": _NOWHERE,
    "new Machine, claims swept": _EVERYWHERE_OLD,
    "same hardware": _EVERYWHERE_OLD,
    "same hardware, claims held": _NOWHERE,
    "hardware passed on": _EVERYWHERE_OLD,
    "TPM replaced": _EVERYWHERE_OLD,
    "TPM replaced, no ban": {
        mode: _OLD_CERTIFICATE if mode in _WITHOUT_RECORDS else _STUCK for mode in Mode
    },
    "name won back": _losses(
        *(*_WITHOUT_RECORDS, Mode.CERTIFICATE_NAMES, Mode.ATTESTATION_KEYS), lost=_OLD_CERTIFICATE
    ),
    "moved": _EVERYWHERE_OLD,
    "moved node": _NOWHERE,
    "pool": _NOWHERE,
    "claims restored": _losses(*_WITHOUT_RECORDS, lost=frozenset({Invariant.LIVENESS})),
}


class Mutation(NamedTuple):
    """Broken rules, and the invariant that they cost in a scenario which otherwise keeps it."""

    broken: frozenset[Rule]
    scenario: str
    mode: Mode
    lost: Invariant

    def __str__(self) -> str:
        """Return the name that its test has."""
        return "+".join(sorted(rule.name for rule in self.broken))


def _mutations() -> Iterator[Mutation]:
    """Read the table of broken rules."""
    for rules, scenario, mode, lost in (
        ("BOUND_OBJECT", "stolen token", "Registered", "AGREEMENT"),
        (
            "BOUND_OBJECT BOUND_REQUEST BOUND_ANSWER_REQUEST",
            "stolen token",
            "Registered",
            "OWN_TPM",
        ),
        ("BOUND_ANSWER_REQUEST", "annotations written", "Registered", "OWN_TPM"),
        ("BOUND_CLUSTER", "two clusters", "Certified", "AGREEMENT"),
        ("BOUND_KEY", "stolen token", "Registered", "OWN_TPM"),
        ("ONLY_ANSWERS_CLAIM", "own tokens", "Certified", "NO_DENIAL"),
        ("ANNOTATIONS_UNREAD", "stolen token", "Registered", "REGISTERED_OR_FIRST"),
        ("APPROVED_UNREAD", "TPM replaced", "Registered", "BANNED"),
        ("WRONG_ANSWERS_ARE_FREE", "stolen token", "Registered", "NO_DENIAL"),
        ("FIRST_CLAIM_GUARDED", "own tokens", "Certified", "OWN_TPM"),
        ("OTHER_NAME_DENIED", "stolen token", "certificateNames", "OWN_TPM"),
        ("NAME_IS_A_RECORD", "stolen token, no name", "certificateNames", "LIVENESS"),
        ("KEY_CERTIFIED", "stolen token, no TPM", "attestationKey", "OWN_TPM"),
        ("QUOTE_NAMES_MACHINE", "stolen token", "attestationKey", "OWN_TPM"),
        ("BAN_READ_LIVE", "TPM replaced", "Registered", "BANNED"),
        ("BANNED_IS_DEAD", "TPM replaced", "Registered", "LIVENESS"),
        ("RELEASED_IS_DEAD", "hardware passed on", "Registered", "LIVENESS"),
        ("GONE_MACHINE_FREES_NAME", "same hardware", "Registered", "NO_DENIAL"),
        ("GONE_MACHINE_FREES_CLAIM", "same hardware", "Registered", "LIVENESS"),
        ("DELETED_MACHINE_KEEPS_CLAIM", "one key", "Registered", "ONE_KEY"),
        ("PAUSED_MACHINE_MAY_COME", "moved", "Registered", "ONE_KEY"),
        ("UID_FREES_NO_OTHER_MACHINE", "moved", "Registered", "ONE_KEY"),
        ("OTHER_NODES_KEEP_KEY", "moved", "Registered", "ONE_KEY"),
        ("POOL_MEMBER_NAMES_NO_MACHINE", "pool", "Registered", "ONE_KEY"),
        ("LIVING_KEY_KEPT", "one key", "Registered", "ONE_KEY"),
        ("LIVING_NAME_KEPT", "stolen token", "Certified", "REGISTERED_OR_FIRST"),
        ("RECORD_BEATS_NAME", "name won back", "Certified", "LIVENESS"),
        ("DEAD_CLAIMS_FREED", "new Machine", "Registered", "LIVENESS"),
        ("RESOURCE_VERSIONS", "one key", "Certified", "ONE_KEY"),
        ("SECOND_WRITE", "one key", "Certified", "ONE_KEY"),
        ("SECOND_WRITE_ALWAYS", "one key", "Certified", "ONE_KEY"),
        ("RESTART_ON_CONFLICT", "one key", "Certified", "ONE_KEY"),
        ("SWEEP_VERSIONS", "new Machine, claims swept", "Certified", "LIVENESS"),
    ):
        broken = frozenset(Rule[rule] for rule in rules.split())
        yield Mutation(broken, scenario, Mode(mode), Invariant[lost])


MUTATIONS = tuple(_mutations())
