"""E2: which endorsement keys a policy trusts for a Machine, and when a first claim is safe."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from signer.model import Node, RegisteredKey, Registration, TrustBasis
from signer.policy.policy import TrustMode
from signer.verify.requests.request import ENTRY_USER
from tests.builders.scenario import HOME, NODE, PROVIDER_ID, Scenario, key_name, record_of
from tests.builders.software_tpm import endorsement_key
from tests.fakes.inventory import AllRegistrations
from tests.fakes.platforms import RULES

OTHER = endorsement_key()
Change = Callable[[Scenario], None]


def scenario_of(trust: TrustMode, *records: RegisteredKey) -> Scenario:
    """Make a scenario under a policy, with exactly these records."""
    scenario = Scenario()
    scenario.change_policy("endorsement_key", trust=trust)
    scenario.change_machine(registered_keys=records)
    return scenario


def own(scenario: Scenario) -> RegisteredKey:
    """Record the node's own key."""
    return record_of(scenario.ek)


@pytest.mark.parametrize("trust", [TrustMode.REGISTERED, TrustMode.FIRST_USE])
def test_e2_a_registered_key_is_trusted(trust: TrustMode) -> None:
    """One of several records is enough, and the basis is the record."""
    scenario = scenario_of(trust)
    scenario.change_machine(registered_keys=(record_of(OTHER), own(scenario)))
    scenario.verify_offer()
    assert scenario.verify_answer().holder.basis is TrustBasis.REGISTERED


def test_e2_a_record_that_names_the_key_is_enough_if_another_is_unreadable() -> None:
    """One record that names the key is sufficient."""
    scenario = scenario_of(TrustMode.REGISTERED)
    scenario.change_machine(
        registered_keys=(own(scenario),), registered_keys_error="infrastructure object: no PEM"
    )
    assert scenario.verify_answer().holder.basis is TrustBasis.REGISTERED


def registered(**changes: Any) -> Registration:  # noqa: ANN401 - its fields
    """Register for this Cluster."""
    registration = Registration(cluster=HOME, provider_id=None, machine_name=None, node_name=None)
    return replace(registration, **changes)


FITTING: dict[str, Registration] = {
    "by provider ID": registered(provider_id=PROVIDER_ID),
    "by Machine": registered(machine_name="machine-1"),
    "by node name": registered(node_name=NODE),
    "by all": registered(provider_id=PROVIDER_ID, machine_name="machine-1", node_name=NODE),
}


@pytest.mark.parametrize("entry", FITTING.values(), ids=FITTING)
def test_e2_an_operators_registration_is_a_record(entry: Registration) -> None:
    """Whatever names the Machine."""
    scenario = scenario_of(TrustMode.REGISTERED)
    scenario.put_key(key_name(scenario.ek), registered_for=(entry,))
    scenario.verify_offer()
    assert scenario.verify_answer().holder.basis is TrustBasis.REGISTERED


def test_e2_a_first_use_claims_where_nothing_speaks_against_it() -> None:
    """Bootstrapper with the Machine's own token, no nodeRef, no Node."""
    scenario = scenario_of(TrustMode.FIRST_USE)
    scenario.verify_offer()
    assert scenario.verify_answer().holder.basis is TrustBasis.FIRST_USE


def test_e2_where_the_machine_owns_no_token_any_bootstrapper_will_do() -> None:
    """There is nothing to compare with."""
    scenario = scenario_of(TrustMode.FIRST_USE)
    scenario.change_machine(bootstrap_token_id=None)
    scenario.username = "system:bootstrap:zzzzzz"
    scenario.verify_answer()


def test_e2_node_with_a_claim_comes_back_with_the_entry_credential() -> None:
    scenario = scenario_of(TrustMode.FIRST_USE)
    scenario.change_machine(bootstrap_token_id=None)
    scenario.username = ENTRY_USER
    scenario.put_claim(basis=TrustBasis.FIRST_USE)
    assert scenario.verify_answer().holder.basis is TrustBasis.FIRST_USE


UNSAFE: dict[str, Change] = {
    "the requester is a node": lambda s: s.as_node(),
    "the Machine has a nodeRef": lambda s: s.change_machine(node_ref=NODE),
    "the Machine has another nodeRef": lambda s: s.change_machine(node_ref="other"),
    "the Node exists": lambda s: s.inventory.nodes.append(Node(name=NODE, provider_id=PROVIDER_ID)),
    "another Node has the provider ID": lambda s: s.inventory.nodes.append(
        Node(name="other", provider_id=PROVIDER_ID)
    ),
    "another token": lambda s: setattr(s, "username", "system:bootstrap:zzzzzz"),
    "no token": lambda s: setattr(s, "username", "alice"),
}


@pytest.mark.parametrize("change", UNSAFE.values(), ids=UNSAFE)
def test_e2_conditions_of_a_first_use_do_not_stop_a_registered_key(change: Change) -> None:
    scenario = scenario_of(TrustMode.FIRST_USE)
    scenario.change_machine(registered_keys=(own(scenario),))
    change(scenario)
    assert scenario.verify_answer().holder.basis is TrustBasis.REGISTERED


def test_e2_after_the_first_claim_the_claim_binds() -> None:
    """A renewal, with Node and nodeRef there."""
    scenario = scenario_of(TrustMode.FIRST_USE)
    scenario.put_claim(basis=TrustBasis.FIRST_USE)
    scenario.as_node()
    scenario.change_machine(node_ref=NODE)
    scenario.inventory.nodes.append(Node(name=NODE, provider_id=PROVIDER_ID))
    assert scenario.verify_answer().holder.basis is TrustBasis.FIRST_USE


NAMED: dict[str, Registration] = {
    "for another Machine": registered(machine_name="machine-2", node_name=NODE),
    "for another provider ID": registered(provider_id="metal://rack-9", node_name=NODE),
    "by node name alone": registered(node_name=NODE),
}


@pytest.mark.parametrize("entry", NAMED.values(), ids=NAMED)
def test_e2_holder_of_a_name_keeps_it(entry: Registration) -> None:
    """Registering the next TPM ahead does not stop the one that still serves."""
    scenario = Scenario()
    scenario.put_claim()
    scenario.put_key(key_name(OTHER), registered_for=(entry,))
    scenario.verify_offer()
    assert scenario.verify_answer().holder.basis is TrustBasis.REGISTERED


def test_e2_a_registration_of_another_name_concerns_no_other_node() -> None:
    scenario = Scenario()
    scenario.inventory = AllRegistrations(of=scenario.cluster, store=scenario.store)
    scenario.put_key(key_name(OTHER), registered_for=(registered(node_name="node-2.example"),))
    assert scenario.verify_answer().holder.basis is TrustBasis.REGISTERED


def test_e2_a_machine_may_be_called_as_another_ones_node() -> None:
    """Whose key is registered for the Machine of that name, and not for the node name."""
    scenario = Scenario()
    scenario.put_key(key_name(OTHER), registered_for=(registered(machine_name=NODE),))
    assert scenario.verify_answer().holder.basis is TrustBasis.REGISTERED


@pytest.mark.parametrize(
    "entry",
    [
        registered(machine_name="machine-1", node_name=NODE),
        registered(provider_id=PROVIDER_ID, node_name=NODE),
    ],
)
def test_e2_a_name_that_was_given_to_this_machine_is_claimed_by_any_registered_key(
    entry: Registration,
) -> None:
    """The Machine's annotation and an operator name two TPMs: any record will do, as ever."""
    scenario = Scenario()
    scenario.put_key(key_name(OTHER), registered_for=(entry,))
    assert scenario.verify_answer().holder.basis is TrustBasis.REGISTERED


def test_e2_of_several_keys_for_a_name_any_claims_it() -> None:
    scenario = Scenario()
    for key in (OTHER, scenario.ek):
        scenario.put_key(key_name(key), registered_for=(registered(node_name=NODE),))
    assert scenario.verify_answer().holder.basis is TrustBasis.REGISTERED


def platform_scenario(*names: str, trust: TrustMode = TrustMode.REGISTERED) -> Scenario:
    """Make a scenario without records, whose platform gives these keys for the Machine."""
    scenario = scenario_of(trust)
    scenario.change_policy("endorsement_key", platform=RULES)
    scenario.platforms.names[PROVIDER_ID] = names
    return scenario


def test_e2_a_key_of_the_platform_counts_as_a_record() -> None:
    scenario = platform_scenario(key_name(OTHER), key_name(Scenario().ek))
    assert scenario.verify_answer().holder.basis is TrustBasis.REGISTERED
    assert scenario.platforms.asked == [(HOME.namespace, PROVIDER_ID, RULES, key_name(scenario.ek))]


def test_e2_a_registered_key_needs_no_platform() -> None:
    """During an outage of the platform an operator can register keys."""
    scenario = platform_scenario(key_name(OTHER))
    scenario.change_machine(registered_keys=(record_of(scenario.ek),))
    scenario.verify_answer()
    assert scenario.platforms.asked == []
