"""The record of certificates never locks out its node, and ends old copies."""

import pytest

from tests.model import credentials
from tests.model.credential_rules import Rule
from tests.model.credentials import LOSSES, MUTATIONS, Loss, Setting
from tests.model.document import table


@pytest.mark.parametrize("setting", Setting)
def test_losses_are_as_expected(setting: Setting) -> None:
    explored = credentials.explore(setting)
    assert explored.lost.keys() == LOSSES[setting], explored.lost


@pytest.mark.parametrize(("rule", "setting", "loss"), MUTATIONS, ids=lambda value: value.name)
def test_a_broken_rule_of_the_record_has_its_cost(rule: Rule, setting: Setting, loss: Loss) -> None:
    assert loss not in LOSSES[setting]
    explored = credentials.explore(setting, frozenset({rule}), until=loss)
    assert loss in explored.lost


def test_every_rule_of_the_record_is_broken_once() -> None:
    assert [rule for rule, _, _ in MUTATIONS] == list(Rule)


def test_the_document_lists_the_rules_of_the_record() -> None:
    rows = [f"| {rule} | {setting} | {loss} |" for rule, setting, loss in MUTATIONS]
    assert table("rule of the record that is broken") == rows


def test_the_document_lists_the_losses() -> None:
    rows = []
    for loss in Loss:
        found = ("yes" if loss in LOSSES[setting] else "never" for setting in Setting)
        rows.append(f"| {loss} | {' | '.join(found)} |")
    assert table("loss") == rows
