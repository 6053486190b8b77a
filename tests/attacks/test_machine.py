"""Node names and provider IDs that belong to another Machine.

The attacker has its own Machine in the cluster, with its own registered TPM. Or it knows the names
of Machines that do not exist yet, were deleted, or are in another cluster. Only operators and
providers decide, in the management cluster, which node the attacker may be. Values that nodes write
(their provider ID, and so `nodeRef`) do not count, nor do similar names (M1 to M7).
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from signer.errors import (
    BootstrapNotReady,
    ClusterPaused,
    MachineAmbiguous,
    MachineDeleting,
    MachineNotFound,
    MachineNotNew,
    NodeNameMismatch,
    NodeNameUnknown,
    NodeOfAnotherMachine,
    NodeRefMismatch,
)
from signer.model import Address, Node, Registration, TrustBasis
from signer.policy import FirstJoinRules
from tests.attacks.runner import (
    Attack,
    Mutation,
    assert_issued,
    assert_refused,
    reconcile_once,
)
from tests.attacks.scenarios import OTHER_ID, OTHER_NODE, first_use, renewal
from tests.builders.scenario import (
    ABROAD,
    HOME,
    NODE,
    NOW,
    PROVIDER_ID,
    Scenario,
    key_name,
    machine,
    record_of,
)
from tests.builders.software_tpm import TpmKey, endorsement_key


def hostnames(*names: str) -> tuple[Address, ...]:
    """Give a Machine these names."""
    return tuple(Address(type="Hostname", address=name) for name in names)


def second_machine(scenario: Scenario, key: TpmKey | None = None) -> None:
    """Put a second Machine, with another node's name and TPM, into the cluster."""
    other = machine(
        endorsement_key() if key is None else key,
        name="machine-2",
        uid="machine-uid-2",
        provider_id=OTHER_ID,
        addresses=hostnames(OTHER_NODE),
        bootstrap_token_id="ghijkl",
    )
    scenario.store.machines[HOME].append(other)


def other_nodes_name(scenario: Scenario) -> None:
    """Request another node's name with one's own Machine and TPM."""
    second_machine(scenario)
    scenario.node_name, scenario.request_der = OTHER_NODE, b""


def other_nodes_provider_id(scenario: Scenario) -> None:
    """Request another node's Machine with one's own name; the TPM is on record for both."""
    second_machine(scenario, scenario.ek)
    scenario.provider_id, scenario.request_der = OTHER_ID, b""


def abroad(scenario: Scenario) -> None:
    """Request a Machine of another cluster, with equal names."""
    scenario.store.machines[ABROAD] = scenario.store.machines.pop(HOME)


def clone(scenario: Scenario) -> None:
    """Give a second Machine the same provider ID."""
    scenario.store.machines[HOME].append(
        replace(scenario.machine, name="machine-2", uid="machine-uid-2")
    )


def both_deleting(scenario: Scenario) -> None:
    """Delete both of two Machines with one provider ID."""
    scenario.change_machine(deleting=True)
    clone(scenario)


def change(**changes: object) -> Mutation:
    """Change the Machine."""
    return lambda scenario: scenario.change_machine(**changes)


def paused(scenario: Scenario) -> None:
    """Pause the Cluster."""
    scenario.change_cluster(paused=True)


def address(kind: str, text: str = NODE) -> Mutation:
    """Give the Machine one address."""
    return change(addresses=(Address(type=kind, address=text),))


def unnamed(scenario: Scenario) -> None:
    """Request the Machine's name as node name, which the policy does not allow."""
    scenario.change_machine(name=NODE, addresses=())


def pool_member(*registrations: Registration) -> Mutation:
    """Be a member of a pool: its nodes report their names themselves."""

    def mutate(scenario: Scenario) -> None:
        scenario.change_machine(is_pool_member=True)
        scenario.put_key(key_name(scenario.ek), registered_for=registrations)

    return mutate


def registration(provider_id: str | None, node_name: str | None) -> Registration:
    """Register for this Cluster."""
    return Registration(
        cluster=HOME, provider_id=provider_id, machine_name=None, node_name=node_name
    )


def claimed_name(basis: TrustBasis) -> Mutation:
    """Request another name of a Machine whose node has claimed one."""

    def mutate(scenario: Scenario) -> None:
        scenario.put_claim(node_name="internal.example", basis=basis)
        scenario.change_machine(addresses=hostnames(NODE, "internal.example"))

    return mutate


def nodes(*members: Node) -> Mutation:
    """Add these Nodes to the workload cluster."""

    def mutate(scenario: Scenario) -> None:
        scenario.inventory.nodes = list(members)

    return mutate


def new_machines() -> Scenario:
    """Join under a policy that allows only new Machines."""
    scenario = Scenario()
    rules = FirstJoinRules(within=timedelta(hours=2))
    scenario.policy = replace(scenario.policy, first_join=rules)
    internal = Address(type="InternalDNS", address=NODE)
    scenario.change_machine(addresses=(*scenario.machine.addresses, internal))
    return scenario


MACHINES = [
    Attack("M1", "a Machine that does not exist", MachineNotFound, change(provider_id=OTHER_ID)),
    Attack("M1", "a Machine without provider ID", MachineNotFound, change(provider_id="")),
    Attack("M1", "a Machine of another cluster", MachineNotFound, abroad),
    Attack("M1", "two Machines of one provider ID", MachineAmbiguous, clone),
    Attack(
        "M1", "two Machines of one provider ID, both being deleted", MachineAmbiguous, both_deleting
    ),
    Attack(
        "M2", "a Machine that is not bootstrapped", BootstrapNotReady, change(bootstrap_ready=False)
    ),
    Attack("M2", "a Machine that is being deleted", MachineDeleting, change(deleting=True)),
    Attack("M2", "a paused Cluster", ClusterPaused, paused),
]
NAMES = [
    Attack("M3", "another node's name", NodeNameMismatch, other_nodes_name),
    Attack("M3", "another node's provider ID", NodeNameMismatch, other_nodes_provider_id),
    Attack("M3", "another host name", NodeNameMismatch, change(addresses=hostnames("other"))),
    Attack(
        "M3",
        "a name that the Machine's begins with",
        NodeNameMismatch,
        change(addresses=hostnames("node-1.example.com")),
    ),
    Attack(
        "M3",
        "a name that begins with the Machine's",
        NodeNameMismatch,
        change(addresses=hostnames("node-1")),
    ),
    Attack(
        "M3",
        "a name with two trailing dots",
        NodeNameMismatch,
        change(addresses=hostnames(NODE + "..")),
    ),
    Attack("M3", "an external name", NodeNameUnknown, address("ExternalDNS")),
    Attack("M3", "an internal address", NodeNameUnknown, address("InternalIP")),
    Attack("M3", "an address of no known type", NodeNameUnknown, address("Whatever")),
    Attack("M3", "an address of a type in small letters", NodeNameUnknown, address("hostname")),
    Attack("M3", "a Machine without addresses", NodeNameUnknown, change(addresses=())),
    Attack("M3", "the Machine's own name", NodeNameUnknown, unnamed),
    Attack("M3", "a pool member without a registration", NodeNameUnknown, pool_member()),
    Attack(
        "M3",
        "a pool member registered without a name",
        NodeNameUnknown,
        pool_member(registration(PROVIDER_ID, None)),
    ),
    Attack(
        "M3",
        "a pool member named without a provider ID",
        NodeNameUnknown,
        pool_member(registration(None, NODE)),
    ),
    Attack(
        "M3",
        "a pool member named for another",
        NodeNameUnknown,
        pool_member(registration(OTHER_ID, NODE)),
    ),
    Attack(
        "M3",
        "a pool member of another name",
        NodeNameMismatch,
        pool_member(registration(PROVIDER_ID, "other")),
    ),
    Attack(
        "M3",
        "a second name after the claimed one",
        NodeNameMismatch,
        claimed_name(TrustBasis.RECORD),
    ),
    Attack(
        "M3",
        "a second name after one claimed at first use",
        NodeNameMismatch,
        claimed_name(TrustBasis.FIRST_USE),
    ),
]
NODES = [
    Attack(
        "M4",
        "the name of a Node of another Machine",
        NodeOfAnotherMachine,
        nodes(Node(name=NODE, provider_id=OTHER_ID)),
    ),
    Attack(
        "M4",
        "the name of a Node without provider ID",
        NodeOfAnotherMachine,
        nodes(Node(name=NODE, provider_id="")),
    ),
    Attack(
        "M4",
        "a Node that changed its provider ID",
        NodeOfAnotherMachine,
        nodes(Node(name=NODE, provider_id=OTHER_ID)),
        renewal,
    ),
    Attack(
        "M4",
        "a Node whose provider ID is in capitals",
        NodeOfAnotherMachine,
        nodes(Node(name=NODE, provider_id=PROVIDER_ID.upper())),
    ),
    Attack(
        "M6",
        "a first use, nodeRef to another Node",
        NodeRefMismatch,
        change(node_ref=OTHER_NODE),
        first_use,
    ),
    Attack(
        "M6",
        "a first use, another Node with the provider ID",
        NodeRefMismatch,
        nodes(Node(name=OTHER_NODE, provider_id=PROVIDER_ID)),
        first_use,
    ),
]
NEW_MACHINES = [
    Attack(reason.check, f"only new Machines: {name}", reason, mutate, new_machines)
    for name, reason, mutate in (
        ("a nodeRef to the node", MachineNotNew, change(node_ref=NODE)),
        ("its own Node", MachineNotNew, nodes(Node(name=NODE, provider_id=PROVIDER_ID))),
        ("an old Machine", MachineNotNew, change(created=NOW - timedelta(hours=2, seconds=1))),
        ("a Machine of the future", MachineNotNew, change(created=NOW + timedelta(seconds=61))),
        ("a Machine of unknown age", MachineNotNew, change(created=None)),
        ("a host name alone", NodeNameUnknown, change(addresses=hostnames(NODE))),
        (
            "a host name, and another internal name",
            NodeNameMismatch,
            change(
                addresses=(*hostnames(NODE), Address(type="InternalDNS", address="other.example"))
            ),
        ),
    )
]
ATTACKS = MACHINES + NAMES + NODES + NEW_MACHINES


def test_the_good_case_of_new_machines_passes() -> None:
    assert_issued(new_machines)


def test_only_new_machines_does_not_stop_renewals() -> None:
    scenario = new_machines()
    scenario.put_claim()
    scenario.as_node()
    scenario.change_machine(node_ref=NODE, created=NOW - timedelta(days=30))
    scenario.inventory.nodes.append(Node(name=NODE, provider_id=PROVIDER_ID))
    assert reconcile_once(scenario, scenario.answer_csr()).outcome == "issued"


@pytest.mark.parametrize("scenario", [Scenario, renewal, first_use])
def test_the_good_case_passes(scenario: Callable[[], Scenario]) -> None:
    assert_issued(scenario)


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_attack_is_refused(attack: Attack) -> None:
    assert_refused(attack)


def test_node_ref_does_not_decide_the_node_name() -> None:
    """A node wrote the victim's provider ID into its own Node, and Cluster API set `nodeRef`.

    The Machine's own TPM still gets the name of its Machine. The other TPM is refused.
    """
    scenario = Scenario()
    scenario.change_machine(node_ref=OTHER_NODE)
    scenario.inventory.nodes = [Node(name=OTHER_NODE, provider_id=PROVIDER_ID)]
    assert reconcile_once(scenario, scenario.answer_csr()).outcome == "issued"
    stranger = Scenario(ek=endorsement_key(), node_name=OTHER_NODE)
    assert reconcile_once(scenario, stranger.answer_csr()).reason == "NodeNameMismatch"


def test_second_machine_gets_its_own_certificate() -> None:
    """The attacks above are refused for the names that they request."""
    scenario = Scenario()
    other = Scenario(ek=endorsement_key(), node_name=OTHER_NODE, provider_id=OTHER_ID)
    second_machine(scenario, other.ek)
    assert record_of(other.ek) in scenario.store.machines[HOME][1].registered_keys
    assert reconcile_once(scenario, other.answer_csr()).outcome == "issued"
