"""The credential list names the certificate that a node has, and none of a banned key."""

import pytest

from tests.model import listing
from tests.model.document import table
from tests.model.listing import MUTATIONS, Loss, Setting
from tests.model.listing_rules import Rule

WALKS = 6
STEPS = 300


@pytest.mark.parametrize("setting", Setting)
def test_nothing_is_lost(setting: Setting) -> None:
    assert listing.explore(setting).lost == {}


@pytest.mark.parametrize("setting", Setting)
def test_random_walks_lose_nothing(setting: Setting) -> None:
    """They go deeper, with more replicas, requests and certificates."""
    for seed in range(WALKS):
        walked = listing.walk(setting, seed, STEPS)
        assert (walked.states, walked.lost) == (STEPS, {}), f"seed {seed}"


@pytest.mark.parametrize(("rule", "setting", "loss"), MUTATIONS, ids=lambda value: value.name)
def test_a_broken_rule_of_the_list_has_its_cost(rule: Rule, setting: Setting, loss: Loss) -> None:
    explored = listing.explore(setting, frozenset({rule}), until=loss)
    assert loss in explored.lost


def test_every_rule_of_the_list_is_broken_once() -> None:
    assert [rule for rule, _, _ in MUTATIONS] == list(Rule)


def test_the_document_lists_the_rules_of_the_list() -> None:
    rows = [f"| {rule} | {setting} | {loss} |" for rule, setting, loss in MUTATIONS]
    assert table("rule of the list that is broken") == rows
