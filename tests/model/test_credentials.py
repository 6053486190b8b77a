"""The record of certificates never locks out its node, and ends old copies."""

import pytest

from tests.model import credentials
from tests.model.credentials import MUTATIONS, Loss, Rule
from tests.model.document import table


def test_node_is_never_locked_out_and_a_copy_ends_with_the_next_renewal() -> None:
    assert credentials.explore().lost == {}


@pytest.mark.parametrize("rule", Rule)
def test_a_broken_rule_of_the_record_has_its_cost(rule: Rule) -> None:
    explored = credentials.explore(frozenset({rule}), until=MUTATIONS[rule])
    assert MUTATIONS[rule] in explored.lost


def test_the_document_lists_the_rules_of_the_record() -> None:
    rows = [f"| {rule} | {loss} |" for rule, loss in MUTATIONS.items()]
    assert table("rule of the record that is broken") == rows


def test_the_document_has_the_number_of_states() -> None:
    states = credentials.explore().states
    assert table("loss") == [f"| {loss} | never ({states}) |" for loss in Loss]
