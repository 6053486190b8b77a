"""Each broken rule costs an invariant: the model can fail, and the rule is needed."""

from dataclasses import replace

import pytest

from tests.model.document import table
from tests.model.expected import LOSSES, MUTATIONS, Mutation
from tests.model.explore import explore
from tests.model.invariants import Invariant
from tests.model.results import mutation_rows, story
from tests.model.rules import Mode, Rule
from tests.model.scenarios import SCENARIOS
from tests.model.world import Model


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_broken_rule_costs_an_invariant(mutation: Mutation) -> None:
    scenario = SCENARIOS[mutation.scenario](mutation.mode)
    assert mutation.lost not in LOSSES[mutation.scenario][mutation.mode]
    model = Model(scenario=scenario, mode=mutation.mode, broken=mutation.broken)
    found = explore(model, until=mutation.lost)
    assert mutation.lost in found.lost, story(found)


def test_every_rule_is_broken_once() -> None:
    assert set().union(*(mutation.broken for mutation in MUTATIONS)) == set(Rule)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_request_is_bound_twice(name: str) -> None:
    """If the object's name is bound, the attacker gains nothing from an unbound PKCS#10."""
    for mode in Mode:
        model = Model(scenario=SCENARIOS[name](mode), mode=mode)
        unbound = replace(model, broken=frozenset({Rule.BOUND_REQUEST}))
        unbound_effects, effects = (
            {(it.place, it.requester, it.key, it.made_by) for it in each.forgeries}
            for each in (unbound, model)
        )
        assert unbound_effects == effects


def test_k3_is_needed_even_if_the_claim_is_whole() -> None:
    """A verdict may find the claim whole under a resourceVersion that other replicas have read.

    A replica that crashed before K3 has completed it, or one whose K3 conflicted since its caches
    were old. Without K3 the next verdict issues a certificate while the others can still take the
    key.
    """
    model = Model(
        scenario=SCENARIOS["one key"](Mode.CERTIFIED),
        mode=Mode.CERTIFIED,
        broken=frozenset({Rule.SECOND_WRITE_ALWAYS}),
    )
    trace = explore(model, until=Invariant.ONE_KEY).lost[Invariant.ONE_KEY]
    written = [n for n, line in enumerate(trace) if line.startswith("signer: K2 writes the name")]
    issued = [n for n, line in enumerate(trace) if line.startswith("signer: issues ")]
    assert len(issued) == 2, "\n".join(trace)
    # The claim was whole before the verdict that issued first wrote the name. Of the shortest
    # traces, the hash seed chooses one: in some of them, a third verdict wrote the name, too.
    assert len([n for n in written if n < issued[0]]) >= 2


def test_the_document_lists_the_broken_rules() -> None:
    assert table("rule that is broken") == mutation_rows()
