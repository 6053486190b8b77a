"""Machine and Node (M1 to M6): which Machine this is, and whether the node name is its own.

Trusts what Cluster API wrote in the management cluster. What nodes can write themselves (a Node's
provider ID and with it nodeRef) is a sign against a request, never one for it.
"""

from dataclasses import dataclass
from typing import Final

from signer.errors import (
    BootstrapNotReady,
    ClusterPaused,
    MachineAmbiguous,
    MachineDeleting,
    MachineNotFound,
    NodeNameMismatch,
    NodeNameUnknown,
    NodeOfAnotherMachine,
    NodeRefMismatch,
)
from signer.model import Cluster, Inventory, Machine, TrustBasis
from signer.policy import Policy
from signer.verify.claims import is_complete_claim
from signer.verify.registered_keys import registered_keys
from signer.verify.request import (
    BootstrapRequester,
    NodeRequester,
    Requester,
    verify_requester_name,
)

_NAME_ADDRESSES: Final = frozenset({"Hostname", "InternalDNS"})
"""Address types of a Machine that can be its node's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedMachine:
    """A Machine that may have this node name; `verify_machine` makes it."""

    machine: Machine
    node_name: str
    alarms: tuple[NodeRefMismatch, ...]
    """Signs that speak against it (M6): an operator should look, and a first use waits."""


def find_machine(records: Inventory, provider_id: str) -> Machine:
    """M1: the provider ID names exactly one Machine; deleted ones do not count beside a living one.

    Raises:
        MachineNotFound: none yet.
        MachineAmbiguous: several.

    """
    machines = records.machines(provider_id)
    candidates = [machine for machine in machines if not machine.deleting] or machines
    if not candidates:
        raise MachineNotFound("no Machine of this Cluster has the provider ID")
    if len(candidates) > 1:
        raise MachineAmbiguous("several Machines of this Cluster have the provider ID")
    return candidates[0]


def verify_machine(
    *,
    records: Inventory,
    provider_id: str,
    node_name: str,
    requester: Requester,
    policy: Policy,
) -> VerifiedMachine:
    """Check M1 to M6; M5 first, since it needs no records and tells the most.

    Raises:
        Denied, Waiting: with the reason.

    """
    verify_requester_name(requester, node_name)
    machine = find_machine(records, provider_id)
    if isinstance(requester, BootstrapRequester):
        _require_ready(machine, records.cluster())
    _require_name(machine, node_name, records, policy)
    _require_node(machine, node_name, requester, records)
    return VerifiedMachine(
        machine=machine, node_name=node_name, alarms=_signs_against(machine, node_name, records)
    )


def _require_ready(machine: Machine, cluster: Cluster) -> None:
    """M2, first join. A renewal is not held up: draining must not cost a node its certificate."""
    if machine.deleting:
        raise MachineDeleting("the Machine is being deleted")
    if not machine.bootstrap_ready:
        raise BootstrapNotReady("the Machine's bootstrap data is not ready")
    if cluster.paused:
        raise ClusterPaused("the Cluster is paused")


def _require_name(machine: Machine, node_name: str, records: Inventory, policy: Policy) -> None:
    """M3: the claimed name where there is a claim, else one that the Machine's records give."""
    names = _claimed_names(machine, records) or _recorded_names(machine, records, policy)
    if not names:
        raise NodeNameUnknown("nothing tells the Machine's node name yet")
    if node_name not in names:
        raise NodeNameMismatch("the node name is not this Machine's")


def _claimed_names(machine: Machine, records: Inventory) -> frozenset[str]:
    """Collect the names under which this Machine's TPM has a whole claim.

    One that was made without a record does not count once another key is on record, so that a
    stranger who came first cannot keep the Machine's own TPM out.
    """
    names: set[str] = set()
    for node in records.attested_nodes_with_provider_id(machine.provider_id):
        key = records.endorsement_key(node.endorsement_key)
        if key is None or key.held_by is None or not is_complete_claim(key, node):
            continue
        on_record = registered_keys(machine, node.node_name, records)
        if key.held_by.basis is TrustBasis.RECORD or not on_record or key.name in on_record:
            names.add(node.node_name)
    return frozenset(names)


def _recorded_names(machine: Machine, records: Inventory, policy: Policy) -> frozenset[str]:
    if machine.is_pool_member:
        # What a pool knows of its members comes from the nodes; only an operator's word counts.
        return frozenset(
            registration.node_name
            for _, registration in records.registrations(machine.provider_id)
            if registration.provider_id == machine.provider_id
            and registration.node_name is not None
        )
    names = {a.address.lower() for a in machine.addresses if a.type in _NAME_ADDRESSES}
    if policy.machine_name_is_node_name:
        names.add(machine.name)
    return frozenset(names)


def _require_node(
    machine: Machine, node_name: str, requester: Requester, records: Inventory
) -> None:
    """M4: the Node of that name is absent, or this Machine's."""
    node = records.node(node_name)
    if node is None or node.provider_id == machine.provider_id:
        return
    if node.provider_id or not isinstance(requester, NodeRequester):
        raise NodeOfAnotherMachine("a Node of that name exists with another provider ID")


def _signs_against(
    machine: Machine, node_name: str, records: Inventory
) -> tuple[NodeRefMismatch, ...]:
    """M6: nodeRef and the other Nodes' provider IDs; nodes can bring both about."""
    signs: list[NodeRefMismatch] = []
    if machine.node_ref not in {None, node_name}:
        signs.append(NodeRefMismatch("the Machine's nodeRef names another Node"))
    nodes = records.nodes_with_provider_id(machine.provider_id)
    if any(node.name != node_name for node in nodes):
        signs.append(NodeRefMismatch("another Node has the Machine's provider ID"))
    return tuple(signs)
