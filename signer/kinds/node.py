"""A Node of a workload cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A Node of the workload cluster; its provider ID is the node's own claim."""

    name: str
    provider_id: str
    uid: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The labels that the signer writes, see `signer.inventory.node_labels`; no others."""
    created: datetime | None = None
    """As the API server of the workload cluster set it; no client can choose it."""
    is_control_plane: bool = False
    """By its label, which NodeRestriction keeps from kubelets."""
    tainted: bool = False
    """Whether it has the taint that the signer writes, see `signer.inventory.node_taints`."""
