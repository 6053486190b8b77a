"""Derives the condition KubeletAttested of Machines from the claims of their nodes.

The claims are on the API server. So no condition depends on what a worker noted, which is lost when
the process ends. Each replica does this when it starts and every ten seconds, and for bans every
second.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from common.errors import ApiServerUnavailable
from common.formats.strict_json import format_time
from signer.claims.node_problem import NodeProblem, ProblemKind, find_problem
from signer.controller.reports.machine_reports import ATTESTED, ATTESTED_MESSAGE
from signer.errors import EndorsementKeyBanned
from signer.inventory.caches import ManagementCaches
from signer.inventory.cluster_api.machine_object import MAX_MESSAGE, MachineObject
from signer.inventory.cluster_api.machine_status import MachineCondition
from signer.kinds.attested_node import AttestedNodeObject, attested_node_name
from signer.kinds.cluster import ClusterKey
from signer.verify.machines.claims import is_complete_claim

_BANNED: Final = "the endorsement key is banned"


@dataclass(slots=True)
class NodeCounts:
    """The nodes of one Cluster that have attested."""

    problems: Counter[tuple[ProblemKind, str]] = field(default_factory=Counter)
    """How many have a problem, by its kind and reason."""
    earliest_ends: dict[ProblemKind | None, datetime] = field(default_factory=dict)
    """When the next certificate expires, by the kind of its node's problem; `None` is no problem.
    A certificate that has expired does not count."""

    def add(self, node: AttestedNodeObject, problem: NodeProblem | None, now: datetime) -> None:
        """Count a node."""
        kind = None
        if problem is not None:
            kind = problem.kind
            self.problems[kind, problem.reason] += 1
        if node.not_after > now:
            self.earliest_ends[kind] = min(
                node.not_after, self.earliest_ends.get(kind, node.not_after)
            )


CountsByCluster = Mapping[ClusterKey, NodeCounts]


def enqueue_conditions(
    caches: ManagementCaches,
    note: Callable[[MachineCondition], None],
    serves: Callable[[ClusterKey], bool],
    now: datetime,
) -> CountsByCluster:
    """Note each Machine whose condition is not what the claim of its node says; count the nodes.

    A claim is of a Machine with the same UID: another Machine of this name has not attested. The
    condition that a ban has ended stays until the node attests again. A Machine that is being
    deleted must lose its certificate, so that is no problem. A node that is overdue is left out
    until it is known whether claims were lost. Notes nothing for the Clusters of other replicas
    (`serves`). Raises `ApiServerUnavailable` until the caches are filled.
    """
    counts: dict[ClusterKey, NodeCounts] = {}
    for node in caches.nodes.all():
        if not serves(node.cluster) or not is_complete_claim(
            caches.keys.get(node.endorsement_key), node
        ):
            continue
        machine = caches.machines.get(f"{node.cluster.namespace}/{node.machine_name}")
        is_of_machine = machine is not None and (
            (machine.cluster, machine.uid) == (node.cluster, node.machine_uid)
        )
        if not is_of_machine and not caches.has_machine(node):
            continue
        if machine is not None and machine.deleting:
            continue
        try:
            problem = find_problem(node, now, caches.went_back)
        except ApiServerUnavailable:
            continue
        counts.setdefault(node.cluster, NodeCounts()).add(node, problem, now)
        if machine is not None and is_of_machine:
            _enqueue_condition(machine, node, problem, note)
    return counts


def _enqueue_condition(
    machine: MachineObject,
    node: AttestedNodeObject,
    problem: NodeProblem | None,
    note: Callable[[MachineCondition], None],
) -> None:
    if problem is not None:
        attested = None if problem.kind is ProblemKind.UNKNOWN else False
        condition = _condition(machine, problem.reason, problem.message, attested=attested)
    elif node.credential_ids and not _is_ended_by_ban(machine, node):
        condition = _condition(machine, ATTESTED, ATTESTED_MESSAGE, attested=True)
    else:
        return
    if not _is_shown(machine, condition):
        note(condition)


def _condition(
    machine: MachineObject, reason: str, message: str, *, attested: bool | None
) -> MachineCondition:
    return MachineCondition(
        namespace=machine.cluster.namespace,
        name=machine.name,
        uid=machine.uid,
        attested=attested,
        reason=reason,
        message=message,
        proved=True,
    )


def _is_shown(machine: MachineObject, condition: MachineCondition) -> bool:
    """Return whether the Machine has this condition, about its present generation."""
    shown = machine.attested
    return (
        shown is not None
        and (shown.status, shown.reason) == (condition.status, condition.reason)
        and shown.message == condition.message[:MAX_MESSAGE]
        and shown.generation == machine.generation
    )


def _is_ended_by_ban(machine: MachineObject, node: AttestedNodeObject) -> bool:
    """Return whether a ban has ended the condition after the last attestation."""
    shown = machine.attested
    return (
        shown is not None
        and (shown.status, shown.reason) == ("False", EndorsementKeyBanned.reason)
        and shown.since > format_time(node.last_attested)
    )


def enqueue_bans(
    caches: ManagementCaches,
    note: Callable[[MachineCondition], None],
    serves: Callable[[ClusterKey], bool],
) -> None:
    """Note the ban of every key that still has the claim to a node, for the node's Machine.

    Notes nothing for the Clusters of other replicas (`serves`). Raises `ApiServerUnavailable`
    until the caches are filled.
    """
    for key in caches.keys.by_index("banned", True):  # noqa: FBT003 - the only key of the index
        holder = key.held_by
        if holder is None or not serves(holder.cluster):
            continue
        name = attested_node_name(holder.cluster, holder.node_name)
        node = caches.nodes.get(f"{holder.cluster.namespace}/{name}")
        if node is None or node.endorsement_key != key.name:
            # Another TPM has claimed the node name, for example after `replace`.
            continue
        for machine in caches.machines.by_index("provider ID", (node.cluster, node.provider_id)):
            condition = _condition(machine, EndorsementKeyBanned.reason, _BANNED, attested=False)
            if machine.name == node.machine_name and not _is_shown(machine, condition):
                note(condition)
