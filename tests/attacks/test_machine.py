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
from signer.kinds.endorsement_key import Registration, TrustBasis
from signer.kinds.machine import Address
from signer.kinds.node import Node
from signer.policy.policy import FirstJoinRules
from tests.attacks.runner import (
    Attack,
    Mutation,
    Table,
    assert_issued,
    assert_refused,
    attacks,
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
    """Request the name of another node, which has joined, with one's own Machine and TPM."""
    second_machine(scenario)
    scenario.inventory.nodes.append(Node(name=OTHER_NODE, provider_id=OTHER_ID))
    scenario.node_name, scenario.request_der = OTHER_NODE, b""


def other_nodes_provider_id(scenario: Scenario) -> None:
    """Request another node's Machine with one's own name; the TPM is registered for both."""
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
    return Registration.of(HOME, provider_id=provider_id, machine_name=None, node_name=node_name)


def claimed_name(basis: TrustBasis) -> Mutation:
    """Request another name of a Machine whose node has claimed one."""

    def mutate(scenario: Scenario) -> None:
        scenario.put_claim(node_name="internal.example", basis=basis)
        scenario.change_machine(addresses=hostnames(NODE, "internal.example"))

    return mutate


def renamed(scenario: Scenario) -> None:
    """Request the new host name of a Machine whose node has claimed its old one."""
    scenario.put_claim()
    scenario.change_machine(addresses=hostnames("renamed"))
    scenario.node_name, scenario.request_der = "renamed", b""


def old_claim(
    *, name: str = "machine-1", uid: str = "machine-uid-0", requested: str = NODE, **machine: object
) -> Mutation:
    """Have a claim of the TPM under an older node name, for a Machine with this name and UID."""

    def mutate(scenario: Scenario) -> None:
        scenario.put_claim(node_name="old-name", machine=(name, uid))
        scenario.change_machine(**machine)
        scenario.node_name, scenario.request_der = requested, b""

    return mutate


def moved_with_node(scenario: Scenario) -> None:
    """Request a new name for a Machine that was moved, whose Node exists under the old one."""
    old_claim()(scenario)
    scenario.inventory.nodes.append(Node(name="old-name", provider_id=PROVIDER_ID))


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


MACHINES: Table = {
    MachineNotFound: {
        "a Machine that does not exist": change(provider_id=OTHER_ID),
        "a Machine without provider ID": change(provider_id=""),
        "a Machine of another cluster": abroad,
    },
    MachineAmbiguous: {
        "two Machines of one provider ID": clone,
        "two Machines of one provider ID, both being deleted": both_deleting,
    },
    BootstrapNotReady: {"a Machine that is not bootstrapped": change(bootstrap_ready=False)},
    MachineDeleting: {"a Machine that is being deleted": change(deleting=True)},
    ClusterPaused: {"a paused Cluster": paused},
}
NAMES: Table = {
    NodeNameMismatch: {
        "another node's name": other_nodes_name,
        "another node's provider ID": other_nodes_provider_id,
        "another host name": change(addresses=hostnames("other")),
        "a name that the Machine's begins with": change(addresses=hostnames("node-1.example.com")),
        "a name that begins with the Machine's": change(addresses=hostnames("node-1")),
        "a name with two trailing dots": change(addresses=hostnames(NODE + "..")),
        "a pool member of another name": pool_member(registration(PROVIDER_ID, "other")),
        "a second name after the claimed one": claimed_name(TrustBasis.REGISTERED),
        "a second name after one claimed at first use": claimed_name(TrustBasis.FIRST_USE),
        "a new address after the claimed name": renamed,
        "the name of an older Machine on the hardware": old_claim(
            name="machine-0", requested="old-name"
        ),
        "a second name of this Machine": old_claim(uid="machine-uid-1"),
        "a second name of a Machine whose claim has no UID": old_claim(uid=""),
        "a second name of a moved Machine whose Node exists": moved_with_node,
        "a second name of a moved Machine with its nodeRef": old_claim(node_ref="old-name"),
    },
    NodeNameUnknown: {
        "an external name": address("ExternalDNS"),
        "an internal address": address("InternalIP"),
        "an address of no known type": address("Whatever"),
        "an address of a type in small letters": address("hostname"),
        "a Machine without addresses": change(addresses=()),
        "the Machine's own name": unnamed,
        "a pool member without a registration": pool_member(),
        "a pool member registered without a name": pool_member(registration(PROVIDER_ID, None)),
        "a pool member named without a provider ID": pool_member(registration(None, NODE)),
        "a pool member named for another": pool_member(registration(OTHER_ID, NODE)),
    },
}
NODES = [
    *attacks(
        {
            NodeOfAnotherMachine: {
                "the name of a Node of another Machine": nodes(
                    Node(name=NODE, provider_id=OTHER_ID)
                ),
                "the name of a Node without provider ID": nodes(Node(name=NODE, provider_id="")),
                "a Node whose provider ID is in capitals": nodes(
                    Node(name=NODE, provider_id=PROVIDER_ID.upper())
                ),
            },
        }
    ),
    Attack(
        "a Node that changed its provider ID",
        NodeOfAnotherMachine,
        nodes(Node(name=NODE, provider_id=OTHER_ID)),
        renewal,
    ),
    Attack(
        "a first use, nodeRef to another Node",
        NodeRefMismatch,
        change(node_ref=OTHER_NODE),
        first_use,
    ),
    Attack(
        "a first use, another Node with the provider ID",
        NodeRefMismatch,
        nodes(Node(name=OTHER_NODE, provider_id=PROVIDER_ID)),
        first_use,
    ),
]
NEW_MACHINES: Table = {
    MachineNotNew: {
        "only new Machines: a nodeRef to the node": change(node_ref=NODE),
        "only new Machines: its own Node": nodes(Node(name=NODE, provider_id=PROVIDER_ID)),
        "only new Machines: an old Machine": change(created=NOW - timedelta(hours=2, seconds=1)),
        "only new Machines: a Machine of the future": change(created=NOW + timedelta(seconds=11)),
        "only new Machines: a Machine of unknown age": change(created=None),
    },
    NodeNameUnknown: {"only new Machines: a host name alone": change(addresses=hostnames(NODE))},
    NodeNameMismatch: {
        "only new Machines: a host name, and another internal name": change(
            addresses=(*hostnames(NODE), Address(type="InternalDNS", address="other.example"))
        )
    },
}
ATTACKS = [*attacks(MACHINES, NAMES), *attacks(NEW_MACHINES, scenario=new_machines), *NODES]


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
