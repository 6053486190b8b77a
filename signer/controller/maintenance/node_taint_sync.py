"""Keeps the taint of Nodes up to date with the claims, where the policy says so.

As the labels, the taint follows from the claim and the time alone, and all inputs are caches.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from signer.model import Inventory, Node
from signer.node_problem import find_problem
from signer.verify.machines.claims import is_complete_claim


@dataclass(frozen=True, slots=True, kw_only=True)
class TaintChange:
    """A Node whose taint is wrong."""

    node: Node
    tainted: bool
    """Whether it must have the taint."""


def plan_taint_changes(
    nodes: Sequence[Node], inventory: Inventory, *, enabled: bool, now: datetime
) -> Sequence[TaintChange]:
    """Return the changes that the Nodes of a Cluster need.

    Unless the taint is enabled, no Node has it. Nothing changes while the Cluster is paused, as
    for labels. Raises `ApiServerUnavailable` while caches are incomplete.
    """
    if not enabled and not any(node.tainted for node in nodes):
        return ()
    if inventory.cluster().paused:
        return ()
    changes = []
    for node in nodes:
        wanted = _is_unattested(node, inventory, now) if enabled else False
        if wanted is not None and wanted != node.tainted:
            changes.append(TaintChange(node=node, tainted=wanted))
    return changes


def _is_unattested(node: Node, inventory: Inventory, now: datetime) -> bool | None:
    """Return whether a node that has attested no longer does; `None` without a claim that says it.

    Without a complete claim, the Node keeps what it has: a node that has never attested may be one
    from before the opt-in.
    """
    claim = inventory.attested_node(node.name)
    key = None if claim is None else inventory.endorsement_key(claim.endorsement_key)
    if claim is None or key is None:
        return None
    if key.banned:
        return True
    return find_problem(claim, now) is not None if is_complete_claim(key, claim) else None
