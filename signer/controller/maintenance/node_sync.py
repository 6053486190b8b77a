"""Keeps the labels and the taint of Nodes up to date with the claims, where the policy says so.

Both follow from the claim of a Node and the time alone. So a signer that starts again, or that
takes over from another replica, computes the same. All inputs are caches: what an old cache left
wrong is corrected in the first round after the cache has the change.

Nothing changes while the Cluster is paused: `clusterctl move` pauses it, and then deletes its
claims here. Each function raises `ApiServerUnavailable` while caches are incomplete.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from signer.claims.node_problem import ProblemKind, find_problem
from signer.inventory.node_labels import build_labels
from signer.kinds.node import Node
from signer.seams import Inventory
from signer.verify.machines.claims import is_complete_claim


def plan_label_changes(
    nodes: Sequence[Node], inventory: Inventory, *, enabled: bool, now: datetime
) -> Sequence[tuple[Node, Mapping[str, str | None]]]:
    """Return the Nodes whose labels are wrong, with what to change; `None` removes a label.

    Unless labels are enabled, no Node has any.
    """
    if not (enabled or any(node.labels for node in nodes)) or inventory.cluster().paused:
        return ()
    changes = []
    for node in nodes:
        labels = _labels(node, inventory, now) if enabled else {}
        if labels != node.labels:
            removed: dict[str, str | None] = dict.fromkeys(node.labels.keys() - labels.keys())
            changes.append((node, {**removed, **labels}))
    return changes


def plan_taint_changes(
    nodes: Sequence[Node], inventory: Inventory, *, enabled: bool, now: datetime
) -> Sequence[tuple[Node, bool]]:
    """Return the Nodes whose taint is wrong, and whether each must have it.

    Unless the taint is enabled, no Node has it.
    """
    if not (enabled or any(node.tainted for node in nodes)) or inventory.cluster().paused:
        return ()
    wanted = ((n, _is_unattested(n, inventory, now) if enabled else False) for n in nodes)
    return [(n, tainted) for n, tainted in wanted if tainted not in {None, n.tainted}]


def _labels(node: Node, inventory: Inventory, now: datetime) -> Mapping[str, str]:
    """Return the labels that a Node must have.

    It has none if its claim is not complete, if its last certificate has expired, or if the
    provider ID of the Node is not that of the claim.
    """
    claim = inventory.attested_node(node.name)
    if claim is None or now > claim.not_after:
        return {}
    key = inventory.endorsement_key(claim.endorsement_key)
    if key is None or key.held_by is None or not is_complete_claim(key, claim):
        return {}
    if node.provider_id not in {"", claim.provider_id}:
        return {}
    return build_labels(claim, key.held_by.basis)


def _is_unattested(node: Node, inventory: Inventory, now: datetime) -> bool | None:
    """Return whether a node that has attested no longer does; `None` without a claim that says it.

    Without a complete claim, the Node keeps what it has: a node that has never attested may be one
    from before the opt-in. So it does after a loss of claims.
    """
    claim = inventory.attested_node(node.name)
    key = None if claim is None else inventory.endorsement_key(claim.endorsement_key)
    if claim is None or key is None:
        return None
    if key.banned:
        return True
    if not is_complete_claim(key, claim):
        return None
    problem = find_problem(claim, now, inventory.went_back)
    return None if problem is not None and problem.kind is ProblemKind.UNKNOWN else bool(problem)
