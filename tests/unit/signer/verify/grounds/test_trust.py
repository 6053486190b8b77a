"""E2: which endorsement keys a policy trusts for a Machine, and when a first claim is safe."""

from collections.abc import Callable
from typing import Any

import pytest

from signer.errors import EndorsementCertificateMissing, EndorsementKeyNotRegistered
from signer.kinds.endorsement_key import Registration, TrustBasis
from signer.kinds.machine import RegisteredKey
from signer.kinds.node import Node
from signer.policy.policy import TrustMode
from signer.verify.requests.request import ENTRY_USER
from tests.builders.scenario import HOME, NODE, PROVIDER_ID, Scenario, key_name, record_of
from tests.builders.software_tpm import endorsement_key
from tests.fakes.inventory import AllRegistrations
from tests.fakes.platforms import RULES

OTHER = endorsement_key()
Change = Callable[[Scenario], object]


def scenario_of(trust: TrustMode, *records: RegisteredKey) -> Scenario:
    """Make a scenario under a policy, with exactly these records."""
    scenario = Scenario()
    scenario.change_policy("endorsement_key", trust=trust)
    scenario.change_machine(registered_keys=records)
    return scenario


def own(scenario: Scenario) -> RegisteredKey:
    return record_of(scenario.ek)


def registered(**changes: Any) -> Registration:  # noqa: ANN401 - its fields
    registration = Registration.of(HOME, provider_id=None, machine_name=None, node_name=None)
    return registration.replace(**changes)


def by_operator(**entry: Any) -> Change:  # noqa: ANN401 - fields of a registration
    """Let the registration of an operator be the only record."""

    def change(scenario: Scenario) -> None:
        scenario.change_machine(registered_keys=())
        scenario.put_key(key_name(scenario.ek), registered_for=(registered(**entry),))

    return change


def other_key(*, holds: bool = False, **entry: Any) -> Change:  # noqa: ANN401 - of a registration
    """Register another key, also where the index of the inventory returns all registrations."""

    def change(scenario: Scenario) -> None:
        if holds:
            scenario.put_claim()
        scenario.inventory = AllRegistrations(of=scenario.cluster, store=scenario.store)
        scenario.put_key(key_name(OTHER), registered_for=(registered(**entry),))

    return change


def both_keys(scenario: Scenario) -> None:
    for key in (OTHER, scenario.ek):
        scenario.put_key(key_name(key), registered_for=(registered(node_name=NODE),))


ALL_NAMES = {"provider_id": PROVIDER_ID, "machine_name": "machine-1", "node_name": NODE}
RECORDED: dict[str, Change] = {
    "one of several records": lambda s: s.change_machine(
        registered_keys=(record_of(OTHER), own(s))
    ),
    "a record beside one that is unreadable": lambda s: s.change_machine(
        registered_keys_error="infrastructure object: no PEM"
    ),
    **{f"registered by {name}": by_operator(**{name: ALL_NAMES[name]}) for name in ALL_NAMES},
    "registered by all names": by_operator(**ALL_NAMES),
    # The holder of a name keeps it: the next TPM is registered ahead.
    "its name, registered for another Machine": other_key(
        holds=True, machine_name="machine-2", node_name=NODE
    ),
    "its name, registered for another provider ID": other_key(
        holds=True, provider_id="metal://rack-9", node_name=NODE
    ),
    "its name, registered alone": other_key(holds=True, node_name=NODE),
    "another name, registered": other_key(node_name="node-2.example"),
    "a Machine that is called as its node": other_key(machine_name=NODE),
    # Machine and operator name two TPMs: any record will do.
    "its name and Machine, registered": other_key(machine_name="machine-1", node_name=NODE),
    "its name and provider ID, registered": other_key(provider_id=PROVIDER_ID, node_name=NODE),
    "its name, registered for two keys": both_keys,
    # What stops a first use stops no registered key.
    "a node requests": lambda s: s.as_node(),
    "the Machine has a nodeRef": lambda s: s.change_machine(node_ref=NODE),
    "the Machine has another nodeRef": lambda s: s.change_machine(node_ref="other"),
    "the Node exists": lambda s: s.inventory.nodes.append(Node(name=NODE, provider_id=PROVIDER_ID)),
    "another Node has the provider ID": lambda s: s.inventory.nodes.append(
        Node(name="other", provider_id=PROVIDER_ID)
    ),
    "another token": lambda s: setattr(s, "username", "system:bootstrap:zzzzzz"),
    "no token": lambda s: setattr(s, "username", "alice"),
}


@pytest.mark.parametrize("trust", [TrustMode.REGISTERED, TrustMode.FIRST_USE])
@pytest.mark.parametrize("change", RECORDED.values(), ids=RECORDED)
def test_e2_record_of_the_key_is_the_basis(change: Change, trust: TrustMode) -> None:
    scenario = scenario_of(trust)
    scenario.change_machine(registered_keys=(own(scenario),))
    change(scenario)
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


def test_e2_after_the_first_claim_the_claim_binds() -> None:
    """A renewal, with Node and nodeRef there."""
    scenario = scenario_of(TrustMode.FIRST_USE)
    scenario.put_claim(basis=TrustBasis.FIRST_USE)
    scenario.as_node()
    scenario.change_machine(node_ref=NODE)
    scenario.inventory.nodes.append(Node(name=NODE, provider_id=PROVIDER_ID))
    assert scenario.verify_answer().holder.basis is TrustBasis.FIRST_USE


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


@pytest.mark.parametrize("trust", [TrustMode.REGISTERED, TrustMode.REGISTERED_AND_CERTIFIED])
def test_e2_a_claim_is_no_record(trust: TrustMode) -> None:
    """Who removes a record ends the trust in the key, also where its node has joined."""
    scenario = scenario_of(trust)
    scenario.put_claim()
    with pytest.raises(EndorsementKeyNotRegistered):
        scenario.verify_answer()


def test_e2_a_certificate_that_is_missing_is_said_before_an_unsafe_first_claim() -> None:
    scenario = scenario_of(TrustMode.CERTIFIED)
    scenario.change_machine(node_ref=NODE)
    with pytest.raises(EndorsementCertificateMissing):
        scenario.verify_answer()
