"""M1 to M7: the Machine, its node name, and conflicts with existing Nodes."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from common.errors import ApiServerUnavailable, AttestationError
from signer.errors import (
    NodeNameMismatch,
)
from signer.model import Address, Node, Registration, TrustBasis
from signer.policy import FirstJoinRules
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

Change = Callable[[Scenario], None]


def addresses(*pairs: tuple[str, str]) -> tuple[Address, ...]:
    """Make addresses."""
    return tuple(Address(type=kind, address=text) for kind, text in pairs)


def add_machine(scenario: Scenario, *, deleting: bool = False) -> None:
    """Add a second Machine."""
    scenario.store.machines[HOME].append(machine(name="machine-2", uid="uid-2", deleting=deleting))


def check(scenario: Scenario, error: type[AttestationError]) -> None:
    """Expect the reason on the offer and on the answer."""
    for verify in (scenario.verify_offer, scenario.verify_answer):
        with pytest.raises(error):
            verify()


def passes(scenario: Scenario) -> None:
    """Expect that offer and answer pass."""
    scenario.verify_offer()
    scenario.verify_answer()


def test_m1_machine_under_deletion_does_not_count_next_to_a_live_one() -> None:
    """Replacing a Machine on the same host."""
    scenario = Scenario()
    add_machine(scenario, deleting=True)
    passes(scenario)


def test_caches_that_have_not_synced_decide_nothing() -> None:
    scenario = Scenario()
    scenario.inventory.filled = False
    check(scenario, ApiServerUnavailable)


M2: dict[str, Change] = {
    "bootstrap is not ready": lambda s: s.change_machine(bootstrap_ready=False),
    "the Machine is being deleted": lambda s: s.change_machine(deleting=True),
    "the Cluster is paused": lambda s: s.change_cluster(paused=True),
}


@pytest.mark.parametrize("change", M2.values(), ids=M2)
def test_m2_conditions_of_a_first_join_do_not_stop_a_renewal(change: Change) -> None:
    """A node keeps its certificate in a paused Cluster and while its Machine is drained."""
    scenario = Scenario()
    scenario.as_node()
    change(scenario)
    passes(scenario)


@pytest.mark.parametrize(
    ("kind", "name"),
    [("Hostname", NODE), ("InternalDNS", NODE), ("Hostname", NODE.upper())],
)
def test_m3_hostname_and_internal_dns_of_the_machine_are_node_names(kind: str, name: str) -> None:
    """In any case, if the Machine has no claim."""
    scenario = Scenario()
    scenario.change_machine(addresses=addresses((kind, name)))
    passes(scenario)


def test_m3_policy_can_accept_the_name_of_the_machine() -> None:
    scenario = Scenario()
    scenario.change_machine(name=NODE, addresses=())
    scenario.policy = replace(
        scenario.policy, node_names=replace(scenario.policy.node_names, machine_name=True)
    )
    passes(scenario)


def test_m3_claimed_name_outranks_the_addresses() -> None:
    """A node keeps its name when the addresses change."""
    scenario = Scenario()
    scenario.put_claim()
    scenario.change_machine(addresses=addresses(("Hostname", "renamed")))
    passes(scenario)
    scenario.node_name = "renamed"
    scenario.request_der = b""
    check(scenario, NodeNameMismatch)


def test_m3_claim_without_a_record_does_not_stop_the_registered_key() -> None:
    """Else another TPM with the first claim could exclude the Machine's own TPM."""
    scenario = Scenario()
    stranger = endorsement_key()
    scenario.put_claim(stranger, node_name="internal", basis=TrustBasis.FIRST_USE)
    passes(scenario)


def test_m3_incomplete_claim_does_not_fix_the_node_name() -> None:
    """An AttestedNode whose key does not name it back."""
    scenario = Scenario()
    scenario.put_node(key_name(endorsement_key()), scenario.holder(node_name="internal"))
    passes(scenario)


def test_m3_claim_whose_key_has_another_holder_does_not_fix_the_node_name() -> None:
    """The key is held by another node by now, or banned."""
    scenario = Scenario()
    moved = key_name(endorsement_key())
    scenario.put_node(moved, scenario.holder(node_name="internal"))
    for changes in ({"node_name": "elsewhere"}, {"cluster": ABROAD, "node_name": "internal"}):
        scenario.put_key(moved, held_by=scenario.holder(basis=TrustBasis.REGISTERED, **changes))
        passes(scenario)
    scenario.put_claim(
        endorsement_key(), banned=True, node_name="internal", basis=TrustBasis.REGISTERED
    )
    passes(scenario)


def pool_member(scenario: Scenario, *registrations: Registration) -> None:
    """Make the Machine a member of a pool, with what operators registered."""
    scenario.change_machine(
        is_pool_member=True, addresses=(), registered_keys=(record_of(scenario.ek),)
    )
    scenario.put_key(key_name(scenario.ek), registered_for=registrations)


def registration(*, provider_id: str | None = None, node_name: str | None = None) -> Registration:
    """Register for this Cluster."""
    return Registration(
        cluster=HOME, provider_id=provider_id, machine_name=None, node_name=node_name
    )


def test_m3_an_operator_names_pool_members() -> None:
    """By provider ID."""
    scenario = Scenario()
    pool_member(scenario, registration(provider_id=PROVIDER_ID, node_name=NODE))
    passes(scenario)


M4: dict[str, tuple[str, bool]] = {
    "same provider ID, first join": (PROVIDER_ID, False),
    "same provider ID, renewal": (PROVIDER_ID, True),
    "no provider ID, renewal": ("", True),
}


@pytest.mark.parametrize(("provider_id", "renewal"), M4.values(), ids=M4)
def test_m4_node_of_this_machine_does_not_stop_its_request(
    provider_id: str, *, renewal: bool
) -> None:
    scenario = Scenario()
    if renewal:
        scenario.as_node()
    scenario.inventory.nodes = [Node(name=NODE, provider_id=provider_id)]
    passes(scenario)


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


@pytest.mark.parametrize("age", [timedelta(seconds=-10), timedelta(hours=2)])
def test_m7_new_machine_may_join(age: timedelta) -> None:
    """The ends of the time window; every way to fail is in tests/attacks/test_machine.py."""
    scenario = Scenario()
    scenario.policy = replace(scenario.policy, first_join=FirstJoinRules(within=timedelta(hours=2)))
    internal = Address(type="InternalDNS", address=NODE.upper())
    scenario.change_machine(addresses=(internal,), created=scenario.now - age)
    assert scenario.verify_offer().endorsement_key == scenario.verify_answer().endorsement_key


# A provider ID that names hardware: the Machines on it follow one another


def replaced(scenario: Scenario, *, name: str = "machine-0", uid: str = "machine-uid-0") -> None:
    """Add a claim of the TPM under an older node name, for a Machine that had this name."""
    scenario.put_claim(node_name="old-name", machine=(name, uid))


def test_m3_claim_of_a_machine_that_is_gone_does_not_fix_the_node_name() -> None:
    """The new Machine on the same hardware gets a new node name (metal3, MAAS, Tinkerbell)."""
    scenario = Scenario()
    replaced(scenario)
    passes(scenario)


def test_m3_old_name_is_not_the_new_machines() -> None:
    scenario = Scenario()
    replaced(scenario)
    scenario.node_name = "old-name"
    check(scenario, NodeNameMismatch)


def test_m3_claim_of_a_machine_that_was_made_again_does_not_fix_the_node_name() -> None:
    """A Cluster made again may give its Machines the old names."""
    scenario = Scenario()
    replaced(scenario, name="machine-1")
    passes(scenario)


def node_exists(scenario: Scenario) -> None:
    """Leave the Node of the claim in the workload cluster."""
    scenario.inventory.nodes.append(Node(name="old-name", provider_id=PROVIDER_ID))


def node_ref_exists(scenario: Scenario) -> None:
    """Set nodeRef to the Node of the claim."""
    scenario.change_machine(node_ref="old-name")


@pytest.mark.parametrize("evidence", [node_exists, node_ref_exists])
def test_m3_claim_of_a_machine_that_was_moved_fixes_the_node_name(evidence: Change) -> None:
    """`clusterctl move` gives a Machine a new UID, and its node keeps running."""
    scenario = Scenario()
    replaced(scenario, name="machine-1")
    evidence(scenario)
    check(scenario, NodeNameMismatch)
    scenario.node_name = "old-name"
    scenario.request_der = b""
    passes(scenario)


@pytest.mark.parametrize("uid", ["machine-uid-1", ""])
def test_m3_claim_of_this_machine_fixes_the_node_name(uid: str) -> None:
    """A claim without the UID of its Machine is for any Machine of the name."""
    scenario = Scenario()
    replaced(scenario, name="machine-1", uid=uid)
    check(scenario, NodeNameMismatch)


def test_m3_trailing_dot_in_an_address_does_not_keep_a_node_out() -> None:
    """S2 folded the dot already; the node could never join."""
    scenario = Scenario()
    scenario.change_machine(addresses=addresses(("Hostname", "Node-1.Example.")))
    passes(scenario)
