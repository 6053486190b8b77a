"""Finds the Machine of a request and verifies its node name (M1 to M7).

Trusts what Cluster API wrote in the management cluster. Nodes can write a Node's provider ID
themselves, and Cluster API derives nodeRef from it: both can only be a reason to refuse a request.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

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
from signer.host_names import fold_case
from signer.kinds.attested_node import AttestedNodeObject
from signer.kinds.cluster import Cluster
from signer.kinds.endorsement_key import TrustBasis
from signer.kinds.machine import Machine
from signer.policy.policy import Policy
from signer.seams import Inventory
from signer.verify.context import VerificationContext
from signer.verify.machines.claims import is_claim_of, is_claim_of_former, is_complete_claim
from signer.verify.machines.registered_keys import registered_keys
from signer.verify.refusals import proved
from signer.verify.requests.request import (
    BootstrapRequester,
    NodeRequester,
    Requester,
    verify_requester_name,
)

_CLOCK_SKEW: Final = timedelta(seconds=10)
"""How far in the future the creation of a Machine may be, as machine-approver's
`maxMachineClockSkew`: the clocks of two servers differ."""
_NAME_ADDRESSES: Final = frozenset({"Hostname", "InternalDNS"})
"""Address types of a Machine that can be its node name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedMachine:
    """A Machine that may have this node name, unless a refusal by M is kept."""

    machine: Machine
    node_name: str
    requester: Requester
    alarms: tuple[NodeRefMismatch, ...]
    """Contradictions that M6 found: an operator should check them, and a first use waits."""


def find_machine(inventory: Inventory, provider_id: str) -> Machine:
    """M1: return the one Machine with the provider ID.

    A Machine that is being deleted counts only if no other Machine has the provider ID.

    Raises:
        MachineNotFound: no Machine has the provider ID.
        MachineAmbiguous: several Machines have it.

    """
    return require_one_machine(inventory.machines(provider_id), "the provider ID")


def require_one_machine(machines: Sequence[Machine], what: str) -> Machine:
    """M1: return the one Machine of those that have `what`, a provider ID or a name.

    Raises as `find_machine` does.
    """
    candidates = [machine for machine in machines if not machine.deleting] or machines
    if not candidates:
        raise MachineNotFound(f"no Machine of this Cluster has {what}")
    if len(candidates) > 1:
        raise MachineAmbiguous(f"several Machines of this Cluster have {what}")
    return candidates[0]


def verify_machine(
    provider_id: str, node_name: str, requester: Requester, context: VerificationContext
) -> VerifiedMachine:
    """Verify M5 first, since it needs no inventory, then M1 to M4, M6 and M7.

    Raises `Denied`, `Waiting` with the reason, unless `context.refusals` keeps it.
    """
    inventory, attempt = context.inventory, context.attempt
    attempt(("M5",), verify_requester_name, requester, node_name)
    machine = proved(attempt(("M1",), find_machine, inventory, provider_id))
    attempt(("M2",), _require_ready_at_first_join, machine, requester, inventory)
    attempt(("M3",), _require_node_name, machine, node_name, inventory, context.policy)
    attempt(("M4",), _require_node, machine, node_name, requester, inventory)
    alarms = _node_ref_alarms(machine, node_name, inventory)
    verified = VerifiedMachine(
        machine=machine, node_name=node_name, requester=requester, alarms=alarms
    )
    context.trace(("M6",), verified)
    attempt(("M7",), _require_new_machine, verified, context)
    return verified


def verify_unattested_machine(
    node_name: str, requester: Requester, context: VerificationContext
) -> VerifiedMachine:
    """Verify that nodeRef and an address of one Machine name a node that has not attested.

    nodeRef alone is not enough. Cluster API follows the provider ID that the node wrote, so a node
    could choose any Machine that has no Node yet.

    Raises:
        NodeNameUnknown: no Machine, or several, have a nodeRef to the node, or no address of the
            Machine is a node name.
        NodeNameMismatch: the addresses of the Machine name another node.
        NodeOfAnotherMachine: the Node has another provider ID, or has none and did not ask.
        NodeRefMismatch: another Node has the Machine's provider ID.

    """
    inventory = context.inventory
    machines = inventory.machines_with_node_ref(node_name)
    if len(machines) != 1:
        raise NodeNameUnknown("not exactly one Machine has a nodeRef to the node")
    machine = machines[0]
    _require_node_name(machine, node_name, inventory, context.policy)  # (M3)
    _require_node(machine, node_name, requester, inventory)  # (M4)
    for alarm in _node_ref_alarms(machine, node_name, inventory):  # (M6)
        raise alarm
    return VerifiedMachine(machine=machine, node_name=node_name, requester=requester, alarms=())


def _require_ready_at_first_join(
    machine: Machine, requester: Requester, inventory: Inventory
) -> None:
    if isinstance(requester, BootstrapRequester):
        require_ready(machine, inventory.cluster())


def require_ready(machine: Machine, cluster: Cluster) -> None:
    """M2: require that a first join may happen. Raises `Denied` or `Waiting`.

    Renewals skip this check: a node that is drained, or whose Cluster is paused, keeps its
    certificate.
    """
    if machine.deleting:
        raise MachineDeleting("the Machine is being deleted")
    if not machine.bootstrap_ready:
        raise BootstrapNotReady("the Machine's bootstrap data is not ready")
    if cluster.paused:
        raise ClusterPaused("the Cluster is paused")


def _require_node_name(
    machine: Machine, node_name: str, inventory: Inventory, policy: Policy
) -> str:
    """M3: require the claimed name where there is a claim, else a name from the inventory."""
    names = _claimed_names(machine, inventory) or _inventory_names(machine, inventory, policy)
    if not names:
        raise NodeNameUnknown("no address of the Machine gives its node name yet")
    if node_name not in names:
        raise NodeNameMismatch("the node name is not this Machine's")
    return node_name


def _claimed_names(machine: Machine, inventory: Inventory) -> frozenset[str]:
    """Return the node names that a TPM has claimed for this Machine.

    A claim without a record does not count when only other keys are registered. So a stranger who
    claimed first cannot keep the Machine's own TPM out.
    """
    names: set[str] = set()
    for node in inventory.attested_nodes_with_provider_id(machine.provider_id):
        key = inventory.endorsement_key(node.endorsement_key)
        if key is None or key.held_by is None or not is_complete_claim(key, node):
            continue
        if not _fixes_name(node, machine, inventory):
            continue
        registered = registered_keys(machine, node.node_name, inventory)
        if key.held_by.basis is TrustBasis.REGISTERED or not registered or key.name in registered:
            names.add(node.node_name)
    return frozenset(names)


def _fixes_name(node: AttestedNodeObject, machine: Machine, inventory: Inventory) -> bool:
    """Return whether the claim was made for this Machine, and not for a former one.

    A Machine with another UID was made again, or moved by `clusterctl move`. Where the workload
    cluster still has the Node, or nodeRef names it, it was moved.
    """
    if not is_claim_of_former(node, machine.name, machine.uid):
        return is_claim_of(node, machine)
    return machine.node_ref == node.node_name or inventory.node(node.node_name) is not None


def _inventory_names(machine: Machine, inventory: Inventory, policy: Policy) -> frozenset[str]:
    """Return the node names that addresses, policy or registrations give to the Machine."""
    if machine.is_pool_member:
        # The nodes wrote what a MachinePool knows of its members: only registrations count.
        return frozenset(
            registration.node_name
            for _, registration in inventory.registrations(machine.provider_id)
            if registration.provider_id == machine.provider_id
            and registration.node_name is not None
        )
    names = address_names(machine)
    return names | {machine.name} if policy.node_names.machine_name else names


def address_names(machine: Machine) -> frozenset[str]:
    """Return the node names that the addresses of a Machine give to it (M3)."""
    return frozenset(fold_case(a.address) for a in machine.addresses if a.type in _NAME_ADDRESSES)


def _require_node(
    machine: Machine, node_name: str, requester: Requester, inventory: Inventory
) -> None:
    """M4: require that the Node of that name is absent or belongs to this Machine."""
    node = inventory.node(node_name)
    if node is None or node.provider_id == machine.provider_id:
        return
    if node.provider_id:
        raise NodeOfAnotherMachine("a Node of that name exists with another provider ID")
    if not isinstance(requester, NodeRequester):
        raise NodeOfAnotherMachine(
            "a Node of that name exists without a provider ID, and only this node itself may ask"
        )


def _node_ref_alarms(
    machine: Machine, node_name: str, inventory: Inventory
) -> tuple[NodeRefMismatch, ...]:
    """M6: compare nodeRef and the other Nodes' provider IDs; nodes can forge both."""
    alarms: list[NodeRefMismatch] = []
    if machine.node_ref not in {None, node_name}:
        alarms.append(NodeRefMismatch("the Machine's nodeRef names another Node"))
    nodes = inventory.nodes_with_provider_id(machine.provider_id)
    if any(node.name != node_name for node in nodes):
        alarms.append(NodeRefMismatch("another Node has the Machine's provider ID"))
    return tuple(alarms)


def _require_new_machine(verified: VerifiedMachine, context: VerificationContext) -> None:
    """M7: if the policy asks, require what OpenShift's machine-approver requires of a first join.

    Source: github.com/openshift/cluster-machine-approver, pkg/controller/csr_check.go,
    authorizeNodeClientCSR. A bootstrap token is then worth nothing for a Machine that has joined.
    """
    rules, machine, node_name = context.policy.first_join, verified.machine, verified.node_name
    if rules is None or not isinstance(verified.requester, BootstrapRequester):
        return
    names = {fold_case(a.address) for a in machine.addresses if a.type == "InternalDNS"}
    if not names:
        raise NodeNameUnknown("no InternalDNS address of the Machine gives its node name yet")
    if node_name not in names:
        raise NodeNameMismatch("the node name is no InternalDNS address of this Machine")
    if machine.node_ref is not None:
        raise MachineNotNew("the Machine has a nodeRef")
    if context.inventory.node(node_name) is not None:
        raise MachineNotNew("a Node of that name exists")
    if machine.created is None or machine.created > context.now + _CLOCK_SKEW:
        raise MachineNotNew("the age of the Machine is unknown")
    if context.now - machine.created > rules.within:
        raise MachineNotNew("the Machine is older than firstJoin.within")
