"""Each scenario loses what is expected under each mode, and docs/model.md lists it."""

import pytest

from tests.model.document import table
from tests.model.expected import LOSSES
from tests.model.explore import explore
from tests.model.messages import ATTACKER, proves
from tests.model.model import Model
from tests.model.modes import Mode
from tests.model.results import cell, promise_rows, result, row, story
from tests.model.scenarios import SCENARIOS


@pytest.mark.parametrize("name", SCENARIOS)
def test_losses_are_as_expected(name: str) -> None:
    for mode in Mode:
        explored = result(name, mode)
        assert explored.lost.keys() == LOSSES[name][mode], f"{mode}\n{story(explored)}"


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_document_has_the_computed_tables(name: str) -> None:
    assert row(name) in table("scenario")


def test_the_document_has_exactly_these_scenarios_and_promises() -> None:
    assert [line.split(" | ")[0] for line in table("scenario")] == [f"| {n}" for n in SCENARIOS]
    assert table("promise") == promise_rows()


@pytest.mark.parametrize("name", SCENARIOS)
def test_honest_nodes_are_served_in_every_mode(name: str) -> None:
    """A model in which nothing happens would keep every other promise."""
    for mode in Mode:
        for host in SCENARIOS[name](mode).hosts:
            served = {(it.place, it.key) for it in result(name, mode).certificates}
            assert (host.place, host.key) in served, mode


@pytest.mark.parametrize(
    "name", ["one key", "one key, claims held", "one key, claims swept", "moved", "pool"]
)
def test_one_key_serves_two_nodes_in_turn(name: str) -> None:
    """So the invariant ONE_KEY does not hold only because no certificates are issued."""
    for mode in Mode:
        scenario = SCENARIOS[name](mode)
        assert {it.place for it in result(name, mode).certificates} == set(scenario.targets)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_attacker_proves_only_its_own_keys(name: str) -> None:
    """No other combination of what it has and reads passes Q2, except for copies."""
    for mode in Mode:
        model = Model(SCENARIOS[name](mode), mode)
        assert model.forgeries
        for it in model.forgeries:
            assert proves(it, frozenset())
            assert it.key in model.scenario.attacker_keys or it.made_by != ATTACKER


@pytest.mark.parametrize(
    ("mode", "same"),
    [
        (Mode.CERTIFIED, Mode.FIRST_USE),
        (Mode.REGISTERED_AND_CERTIFIED, Mode.REGISTERED),
        (Mode.ATTESTATION_KEYS, Mode.CERTIFICATE_NAMES),
    ],
)
def test_modes_that_are_explored_once_are_alike(mode: Mode, same: Mode) -> None:
    """`results` explores such modes once. This test explores one of them separately."""
    name = "one key, claims swept"
    alone = explore(Model(SCENARIOS[name](mode), mode))
    assert cell(alone) == cell(result(name, same))
