"""Keeps the labels of Nodes up to date with the claims, where the policy says so.

The labels of a Node follow from its claim and the time alone. So a signer that starts again, or
that takes over from another replica, computes the same labels. All inputs are caches: a label that
an old cache left wrong is corrected in the first round after the cache has the change.
"""

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Final, Protocol

from common.errors import ApiServerUnavailable
from signer.inventory.node_labels import build_labels
from signer.model import ClusterKey, Inventory, Node
from signer.verify.claims import is_complete_claim

_logger = logging.getLogger(__name__)

_MAX_CHANGES_PER_ROUND: Final = 500
_MAX_SECONDS: Final = 30.0
"""Seconds after which a round changes no more Nodes: a hostile cluster may answer each late."""
_MAX_FAILURES_PER_ROUND: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelChange:
    """What to change in the labels of a Node; `None` removes a label."""

    node: Node
    labels: Mapping[str, str | None]


class LabelWriter(Protocol):
    """The part of `NodeLabelClient` that this module needs."""

    def change(self, node: Node, labels: Mapping[str, str | None]) -> None:
        """Write labels, and remove those whose value is `None`."""


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


def write_label_changes(
    cluster: ClusterKey,
    changes: Sequence[LabelChange],
    writer: LabelWriter,
    monotonic: Callable[[], float],
) -> None:
    """Write changes within the limits of a round; a Node that fails does not stop the others.

    Raises `ApiServerUnavailable` if the workload cluster forbids the change.
    """
    until = monotonic() + _MAX_SECONDS
    failures = 0
    # At random: in a fixed order, Nodes that always fail would starve the others.
    for change in random.sample(changes, min(len(changes), _MAX_CHANGES_PER_ROUND)):
        if failures == _MAX_FAILURES_PER_ROUND or monotonic() >= until:
            return
        try:
            writer.change(change.node, change.labels)
        except ApiServerUnavailable as e:
            if e.status == HTTPStatus.FORBIDDEN:
                raise
            failures += 1
            fields = cluster.log_fields() | {
                "node": change.node.name,
                "message": e.message,
                "detail": e.detail,
            }
            _logger.warning("node labels not written", extra={"fields": fields})


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
