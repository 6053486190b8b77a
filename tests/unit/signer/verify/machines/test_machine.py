"""M1 to M7: what stops no node. tests/attacks/test_machine.py has what stops one."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from signer.kinds.endorsement_key import Registration, TrustBasis
from signer.kinds.machine import Address
from signer.kinds.node import Node
from signer.policy.policy import FirstJoinRules
from tests.builders.scenario import (
    ABROAD,
    HOME,
    NODE,
    PROVIDER_ID,
    Scenario,
    key_name,
    machine,
    record_of,
)
from tests.builders.software_tpm import endorsement_key

Change = Callable[[Scenario], object]


def deleted_twin(scenario: Scenario) -> None:
    twin = machine(name="machine-2", uid="uid-2", deleting=True)
    scenario.store.machines[HOME].append(twin)


def addresses(*pairs: tuple[str, str]) -> Change:
    made = tuple(Address(type=kind, address=text) for kind, text in pairs)
    return lambda scenario: scenario.change_machine(addresses=made)


def renewing(change: Change) -> Change:
    def changed(scenario: Scenario) -> None:
        scenario.as_node()
        change(scenario)

    return changed


def named_as_the_machine(scenario: Scenario) -> None:
    scenario.change_machine(name=NODE, addresses=())
    scenario.change_policy("node_names", machine_name=True)


def renamed(scenario: Scenario) -> None:
    """Change the addresses of a Machine whose node has claimed its name."""
    scenario.put_claim()
    addresses(("Hostname", "renamed"))(scenario)


def first_use_of_a_stranger(scenario: Scenario) -> None:
    """Let another TPM have the first claim, which must not exclude the Machine's own TPM."""
    scenario.put_claim(endorsement_key(), node_name="internal", basis=TrustBasis.FIRST_USE)


def half_claim(**holder: object) -> Change:
    """Claim another name with a key that has no holder, or this one."""

    def change(scenario: Scenario) -> None:
        name = key_name(endorsement_key())
        scenario.put_node(name, scenario.holder(node_name="internal"))
        if holder:
            changed = scenario.holder(basis=TrustBasis.REGISTERED, **holder)
            scenario.put_key(name, held_by=changed)

    return change


def banned_claim(scenario: Scenario) -> None:
    scenario.put_claim(
        endorsement_key(), banned=True, node_name="internal", basis=TrustBasis.REGISTERED
    )


def named_pool_member(scenario: Scenario) -> None:
    """Let an operator name the member of a pool by its provider ID."""
    scenario.change_machine(
        is_pool_member=True, addresses=(), registered_keys=(record_of(scenario.ek),)
    )
    entry = Registration.of(HOME, provider_id=PROVIDER_ID, machine_name=None, node_name=NODE)
    scenario.put_key(key_name(scenario.ek), registered_for=(entry,))


def node(provider_id: str, name: str = NODE) -> Change:
    made = Node(name=name, provider_id=provider_id)
    return lambda scenario: scenario.inventory.nodes.append(made)


def old_claim(name: str, uid: str = "machine-uid-0") -> Change:
    """Claim the TPM under an older node name, for a Machine of a name."""
    return lambda scenario: scenario.put_claim(node_name="old-name", machine=(name, uid))


def moved(evidence: Change) -> Change:
    """Move a Machine with `clusterctl move`, which gives it a new UID; its node keeps running."""

    def change(scenario: Scenario) -> None:
        old_claim("machine-1")(scenario)
        evidence(scenario)
        scenario.node_name, scenario.request_der = "old-name", b""

    return change


def new_machine(age: timedelta) -> Change:
    """Allow Machines of two hours only, and give the Machine an age."""

    def change(scenario: Scenario) -> None:
        rules = FirstJoinRules(within=timedelta(hours=2))
        scenario.policy = replace(scenario.policy, first_join=rules)
        addresses(("InternalDNS", NODE.upper()))(scenario)
        scenario.change_machine(created=scenario.now - age)

    return change


PASSES: dict[str, Change] = {
    "M1: an older Machine that is being deleted": deleted_twin,
    "M2: a renewal while bootstrap is not ready": renewing(
        lambda s: s.change_machine(bootstrap_ready=False)
    ),
    "M2: a renewal while the Machine is drained": renewing(
        lambda s: s.change_machine(deleting=True)
    ),
    "M2: a renewal in a paused Cluster": renewing(lambda s: s.change_cluster(paused=True)),
    "M3: a host name": addresses(("Hostname", NODE)),
    "M3: an internal name": addresses(("InternalDNS", NODE)),
    "M3: a host name in capitals": addresses(("Hostname", NODE.upper())),
    "M3: a host name with a trailing dot": addresses(("Hostname", "Node-1.Example.")),
    "M3: the name of the Machine, by policy": named_as_the_machine,
    "M3: a claimed name, when the addresses change": renamed,
    "M3: a claim of another TPM without a record": first_use_of_a_stranger,
    "M3: a claim whose key is unknown": half_claim(),
    "M3: a claim whose key another node holds": half_claim(node_name="elsewhere"),
    "M3: a claim whose key a node abroad holds": half_claim(node_name="internal", cluster=ABROAD),
    "M3: a claim whose key is banned": banned_claim,
    "M3: a pool member that an operator named": named_pool_member,
    "M3: the claim of a Machine that is gone": old_claim("machine-0"),
    "M3: the claim of a Machine that was made again": old_claim("machine-1"),
    "M3: the old name of a moved Machine whose Node exists": moved(node(PROVIDER_ID, "old-name")),
    "M3: the old name of a moved Machine with its nodeRef": moved(
        lambda s: s.change_machine(node_ref="old-name")
    ),
    "M4: the Machine's own Node": node(PROVIDER_ID),
    "M4: a renewal with its own Node": renewing(node(PROVIDER_ID)),
    "M4: a renewal with a Node without provider ID": renewing(node("")),
    "M7: a Machine of ten seconds ahead": new_machine(timedelta(seconds=-10)),
    "M7: a Machine of two hours": new_machine(timedelta(hours=2)),
}


@pytest.mark.parametrize("change", PASSES.values(), ids=PASSES)
def test_offer_and_answer_pass(change: Change) -> None:
    scenario = Scenario()
    change(scenario)
    assert scenario.verify_offer().endorsement_key == scenario.verify_answer().ground.key


M6: dict[str, tuple[str | None, tuple[Node, ...], int]] = {
    "nothing": (None, (), 0),
    "own nodeRef": (NODE, (), 0),
    "nodeRef to another Node": ("other", (), 1),
    "another Node with the provider ID": (NODE, (Node(name="other", provider_id=PROVIDER_ID),), 1),
    "both": ("other", (Node(name="other", provider_id=PROVIDER_ID),), 2),
}


@pytest.mark.parametrize(("node_ref", "nodes", "alarms"), M6.values(), ids=M6)
def test_m6_signs_raise_the_alarm_and_do_not_stop_a_registered_key(
    node_ref: str | None, nodes: tuple[Node, ...], alarms: int
) -> None:
    """Nodes can write their own provider ID: a sign, not a proof."""
    scenario = Scenario()
    scenario.change_machine(node_ref=node_ref)
    scenario.inventory.nodes.extend(nodes)
    assert len(scenario.verify_answer().alarms) == alarms
