"""The taint of Nodes follows the claims: a Node has it while its node no longer attests."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from signer.controller.maintenance.node_sync import plan_taint_changes
from signer.kinds.attested_node import Refusal
from signer.kinds.node import Node
from signer.seams import WentBack
from tests.builders.endorsement_keys import BAN
from tests.builders.scenario import NODE, NOW, PROVIDER_ID, Scenario

REFUSAL = Refusal(reason="PcrPolicyMismatch", message="m", time=NOW, request="r")


def claimed(*, tainted: bool = False) -> Scenario:
    """Return a scenario with a claim whose node attests, and its Node."""
    scenario = Scenario()
    scenario.put_claim()
    scenario.change_claim(credential_ids=("X509SHA256=1",), last_refusal=None)
    scenario.inventory.nodes = [
        Node(name=NODE, provider_id=PROVIDER_ID, uid="uid-1", tainted=tainted)
    ]
    return scenario


def plan(scenario: Scenario, *, enabled: bool = True) -> list[bool]:
    """Return for each Node that must change whether it must have the taint."""
    changes = plan_taint_changes(
        scenario.inventory.nodes, scenario.inventory, enabled=enabled, now=scenario.now
    )
    return [tainted for _, tainted in changes]


PROBLEMS: dict[str, Callable[[Scenario], None]] = {
    "refused": lambda s: s.change_claim(last_refusal=REFUSAL),
    "overdue": lambda s: s.change_claim(renewal_deadline=NOW - timedelta(seconds=1)),
    "banned": lambda s: s.change_key(banned=BAN),
}


@pytest.mark.parametrize("break_node", PROBLEMS.values(), ids=PROBLEMS)
def test_node_that_no_longer_attests_is_tainted_once(
    break_node: Callable[[Scenario], None],
) -> None:
    for tainted, expected in ((False, [True]), (True, [])):
        scenario = claimed(tainted=tainted)
        break_node(scenario)
        assert plan(scenario) == expected


@pytest.mark.parametrize("problem", ["refused", "overdue"])
def test_node_whose_claim_may_be_lost_keeps_what_it_has(problem: str) -> None:
    for tainted in (False, True):
        scenario = claimed(tainted=tainted)
        PROBLEMS[problem](scenario)
        scenario.inventory.lost = WentBack(at=NOW, until=NOW + timedelta(days=1))
        assert plan(scenario) == []


def test_taint_is_removed_when_the_node_attests_again() -> None:
    assert plan(claimed(tainted=True)) == [False]
    assert plan(claimed()) == []


def test_taint_is_removed_when_the_policy_no_longer_has_it() -> None:
    scenario = claimed(tainted=True)
    scenario.change_claim(last_refusal=REFUSAL)
    assert plan(scenario, enabled=False) == [False]


@pytest.mark.parametrize("tainted", [False, True])
def test_node_without_a_complete_claim_keeps_what_it_has(
    tainted: bool,  # noqa: FBT001 - a parameter of the case
) -> None:
    """It may be one from before the opt-in, or another TPM has taken its key."""
    scenario = claimed(tainted=tainted)
    scenario.change_claim(last_refusal=REFUSAL)
    scenario.change_key(held_by=None)
    assert plan(scenario) == []
    scenario.store.nodes.clear()
    assert plan(scenario) == []


def test_nothing_changes_while_the_cluster_is_paused() -> None:
    """`clusterctl move` deletes the claims here."""
    scenario = claimed()
    scenario.change_claim(last_refusal=REFUSAL)
    assert plan(scenario) == [True]
    scenario.inventory.of = replace(scenario.inventory.of, paused=True)
    assert plan(scenario) == []
