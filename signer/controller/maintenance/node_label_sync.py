"""Keeps the labels of Nodes up to date with the claims, where the policy says so.

The labels of a Node follow from its claim and the time alone. So a signer that starts again, or
that takes over from another replica, computes the same labels. All inputs are caches: a label that
an old cache left wrong is corrected in the first round after the cache has the change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from signer.inventory.node_labels import build_labels
from signer.model import Inventory, Node
from signer.verify.machines.claims import is_complete_claim


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelChange:
    """What to change in the labels of a Node; `None` removes a label."""

    node: Node
    labels: Mapping[str, str | None]


def plan_label_changes(
    nodes: Sequence[Node], inventory: Inventory, *, enabled: bool, now: datetime
) -> Sequence[LabelChange]:
    """Return the changes that the Nodes of a Cluster need.

    Unless labels are enabled, no Node has any. Nothing changes while the Cluster is paused:
    `clusterctl move` pauses it, and then deletes its claims here. Raises `ApiServerUnavailable`
    while caches are incomplete.
    """
    if not enabled and not any(node.labels for node in nodes):
        return ()
    if inventory.cluster().paused:
        return ()
    changes = []
    for node in nodes:
        labels = _labels(node, inventory, now) if enabled else {}
        if labels != node.labels:
            removed: dict[str, str | None] = dict.fromkeys(node.labels.keys() - labels.keys())
            changes.append(LabelChange(node=node, labels={**removed, **labels}))
    return changes


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
