"""Each broken rule costs an invariant: the model can fail, and the rule is needed."""

import pytest

from signer.errors import ClaimConflict
from tests.model.broken import running
from tests.model.document import table
from tests.model.expected import LOSSES, MUTATIONS, Mutation
from tests.model.explore import explore
from tests.model.invariants import Invariant
from tests.model.messages import Answer
from tests.model.model import Model
from tests.model.modes import Mode
from tests.model.replay import Call, next_call
from tests.model.results import mutation_rows, story
from tests.model.rules import Rule
from tests.model.scenarios import SCENARIOS
from tests.model.state import At, Verdict


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_broken_rule_costs_an_invariant(mutation: Mutation) -> None:
    scenario = SCENARIOS[mutation.scenario](mutation.mode)
    assert mutation.lost not in LOSSES[mutation.scenario][mutation.mode]
    model = Model(scenario, mutation.mode, mutation.broken)
    found = explore(model, until=mutation.lost)
    assert mutation.lost in found.lost, story(found)


def test_every_rule_is_broken_once() -> None:
    assert set().union(*(mutation.broken for mutation in MUTATIONS)) == set(Rule)


def effects(name: str, mode: Mode, *broken: Rule) -> set[tuple[object, ...]]:
    """Return what the attacker can prove."""
    forgeries: list[Answer] = Model(SCENARIOS[name](mode), mode, frozenset(broken)).forgeries
    return {(it.place, it.requester, it.key, it.made_by) for it in forgeries}


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_request_is_bound_twice(name: str) -> None:
    """If the quote names the PKCS#10, the attacker gains nothing from a secret that does not.

    The secret alone is enough for an attacker who cannot write what a node reads.
    """
    for mode in Mode:
        bound = effects(name, mode)
        assert effects(name, mode, Rule.BOUND_REQUEST) == bound
        only_in_secret = effects(name, mode, Rule.BOUND_ANSWER_REQUEST)
        assert (only_in_secret == bound) is not SCENARIOS[name](mode).writes_csrs


def test_k3_is_needed_even_if_the_claim_is_whole() -> None:
    """A verdict may find the claim whole under a resourceVersion that other replicas have read.

    A replica that crashed before K3 has completed it, or one whose K3 conflicted since its caches
    were old. Without K3 the next verdict issues a certificate while the others can still take the
    key.
    """
    mode = Mode.CERTIFIED
    model = Model(SCENARIOS["one key"](mode), mode, frozenset({Rule.SECOND_WRITE_ALWAYS}))
    trace = explore(model, until=Invariant.ONE_KEY).lost[Invariant.ONE_KEY]
    written = [n for n, line in enumerate(trace) if "e_attested_node" in line]
    issued = [n for n, line in enumerate(trace) if line.startswith("signer: issues ")]
    assert len(issued) == 2, "\n".join(trace)
    # The claim was whole before the verdict that issued first wrote the name. Of the shortest
    # traces, the hash seed chooses one: in some of them, a third verdict wrote the name, too.
    assert len([n for n in written if n < issued[0]]) >= 2, "\n".join(trace)


def test_signer_begins_again_with_live_reads_after_a_conflict() -> None:
    """The model forgets what a verdict read before a conflict, and the signer must do the same."""
    mode = Mode.CERTIFIED
    model = Model(SCENARIOS["one key"](mode), mode)
    with running(model.broken):
        work = model.admit(model.start, model.forgeries[0], 0)
        assert isinstance(work, int)
        verdict = Verdict(model.forgeries[0], work, At.CALLS, informed=True)
        beginning = model.next_call(verdict)
        answers: list[object] = [None, None, []]
        write = next_call(lambda api: model.claim(verdict, api), answers)
        assert isinstance(write, Call)
        assert write.method == "create_endorsement_key"
        answers.append(ClaimConflict("exists"))
        assert next_call(lambda api: model.claim(verdict, api), answers) == beginning


def test_the_document_lists_the_broken_rules() -> None:
    assert table("rule that is broken") == mutation_rows()
