"""Explore what the tables need, each world once, and write results as docs/model.md shows them."""

from collections.abc import Iterator
from functools import cache

from tests.model.expected import MUTATIONS
from tests.model.explore import Result, explore
from tests.model.invariants import Invariant
from tests.model.model import Model
from tests.model.modes import Mode
from tests.model.rules import Rule
from tests.model.scenarios import SCENARIOS
from tests.model.world import Scenario


def result(name: str, mode: Mode) -> Result:
    """Explore a scenario under a mode, with every rule kept."""
    scenario = SCENARIOS[name](mode)
    return _explored(scenario, without_software_keys(scenario, mode))


@cache
def _explored(scenario: Scenario, mode: Mode) -> Result:
    return explore(Model(scenario, mode))


def without_software_keys(scenario: Scenario, mode: Mode) -> Mode:
    """Merge the modes that differ only for keys without a certificate, where every key has one."""
    if any(key.startswith(("soft", "plain")) for key in scenario.attacker_keys):
        return mode
    if mode is Mode.ATTESTATION_KEYS and any(m.is_pool_member for m in scenario.worlds[0].machines):
        return mode  # a member has no VM ID
    if mode.has_names:
        return Mode.CERTIFICATE_NAMES
    return Mode.REGISTERED if mode.needs_record else Mode.FIRST_USE


def story(explored: Result) -> str:
    """Return the shortest traces as text."""
    parts = []
    for invariant, trace in explored.lost.items():
        lines = (f"{number:4}. {line}" for number, line in enumerate(trace, 1))
        parts.append("\n".join([f"{invariant.label}: lost is that {invariant}", *lines]))
    return "\n\n".join(parts)


def cell(explored: Result) -> str:
    """Return what a mode loses in a scenario."""
    return ", ".join(i.label for i in Invariant if i in explored.lost) or "nothing"


def row(name: str) -> str:
    """Return a scenario's row of the table of losses."""
    cells = (cell(result(name, mode)) for mode in Mode)
    return f"| {' | '.join([name, *cells])} |"


def promise_rows() -> list[str]:
    """Return the table of invariants."""
    return [f"| {invariant.label} | {invariant} |" for invariant in Invariant]


def mutation_rows() -> list[str]:
    """Return the table of broken rules."""
    rows = []
    for it in MUTATIONS:
        rules = "; ".join(rule for rule in Rule if rule in it.broken)
        rows.append(f"| {rules} | {it.scenario}, {it.mode.value} | {it.lost.label} |")
    return rows


def tables() -> Iterator[str]:
    """Return the lines of every table that docs/model.md must contain."""
    yield from promise_rows()
    yield from map(row, SCENARIOS)
    yield from mutation_rows()
