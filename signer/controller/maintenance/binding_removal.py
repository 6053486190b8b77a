"""Decides whether the bindings of a workload cluster that approve without attestation must stay.

A Cluster that had nodes before its opt-in was seen keeps them until these nodes have attested:
without the bindings they could not renew their certificates. What cannot be read is a reason to
keep the bindings, with the alarm. Source: docs/decisions/0061-opting-in-breaks-nothing.md.
"""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from common.errors import ApiServerUnavailable, Waiting
from signer.inventory.cached_inventory import CachedInventory
from signer.inventory.caches import ManagementCaches, WorkloadCaches
from signer.inventory.cluster_api.cluster import NODES_NOT_ATTESTED, ClusterCondition
from signer.inventory.cluster_api.cluster_status import ClusterStatusClient
from signer.inventory.replica_records.opt_in_leases import OptIns
from signer.kinds.cluster import ClusterKey
from signer.kinds.node import Node
from signer.logs import run_logged
from signer.policy.policy import Approval, AutoApproveBindings, Policy, PolicyMode
from signer.seams import Inventory

_MAX_NAMES: Final = 5
"""Nodes that a message names."""
_MAX_NAME: Final = 100
"""Characters of each name: the workload cluster chose it."""
_MOVE_NODE: Final = (
    "kubelet-authenticator-tpm join --replace && systemctl daemon-reload"
    " && systemctl restart kubelet"
)
_REMOVED: Final = ClusterCondition(
    removed=True,
    reason="NotNeeded",
    message="no Node from before the opt-in needs a binding that approves without attestation",
)


class BindingRemoval:
    """What each workload cluster's bindings wait for; each cluster is for one thread at a time."""

    def __init__(  # noqa: PLR0913 - all that the decision reads and writes
        self,
        management: ManagementCaches,
        opt_ins: OptIns,
        conditions: ClusterStatusClient,
        policy_of: Callable[[ClusterKey], Policy],
        *,
        changed: Callable[[ClusterKey], None],
        now: Callable[[], datetime],
    ) -> None:
        """Call `changed` when requests that wait for the bindings can be decided (R0)."""
        self._management = management
        self._opt_ins = opt_ins
        self._conditions = conditions
        self._policy_of = policy_of
        self._changed = changed
        self._now = now

    def note_opt_in(self, cluster: ClusterKey) -> None:
        """Write down when the opt-in was first seen, if the signer may issue certificates by now.

        Before that, the Cluster's nodes can only join by its bindings. A failure is left to
        `reason_to_keep`, which needs the same Lease.
        """
        with contextlib.suppress(Waiting, ApiServerUnavailable):
            if _issues_certificates(self._policy_of(cluster)):
                self._opt_ins.note(cluster, self._now())

    def reason_to_keep(self, workload: WorkloadCaches, policy: Policy) -> str:
        """Return why the bindings must stay, with the next step; empty if the policy decides.

        The condition of the Cluster says the same.
        """
        is_conditional = (
            bool(workload.bindings.all())
            and _issues_certificates(policy)
            and policy.auto_approve_bindings is AutoApproveBindings.REMOVE_WHEN_ATTESTED
        )
        reason = self._find_reason(workload, policy) if is_conditional else None
        keeps = reason is not None and reason.reason == NODES_NOT_ATTESTED
        if workload.keeps_bindings != keeps:
            workload.keeps_bindings = keeps
            self._changed(workload.key)
        self._report(workload, reason)
        return "" if reason is None else reason.message

    def _find_reason(self, workload: WorkloadCaches, policy: Policy) -> ClusterCondition | None:
        """Return the condition of a Cluster whose bindings must stay, `None` if they need not."""
        key = workload.key
        try:
            seen = self._opt_ins.note(key, self._now())
            if seen is None:
                return None
            workload.nodes.require_complete(key.namespace)
            workload.nodes.require_readable()
            self._management.require_complete(key.namespace)
            inventory = CachedInventory(self._management, workload)
            names = find_unattested(workload.nodes.all(), inventory, seen, self._now())
            if not names:
                self._opt_ins.complete(key)
                return None
        except ApiServerUnavailable as error:
            message = f"they stay while it cannot be decided which Nodes need them: {error.message}"
            return ClusterCondition(removed=False, reason="NodesUnknown", message=message)
        return ClusterCondition(
            removed=False, reason=NODES_NOT_ATTESTED, message=_explain(names, policy)
        )

    def _report(self, workload: WorkloadCaches, reason: ClusterCondition | None) -> None:
        """Write the condition; a Cluster whose bindings never stayed has none."""
        cluster = self._management.clusters.get(str(workload.key))
        if cluster is None or cluster.uid != workload.uid:
            return
        if reason is not None or (cluster.bindings is not None and not cluster.bindings.removed):
            write = partial(self._conditions.write, cluster, reason or _REMOVED, self._now())
            run_logged(write, "condition about bindings", workload.key)


def _issues_certificates(policy: Policy) -> bool:
    return policy.mode is PolicyMode.ATTESTATION and policy.approval is Approval.ENABLED


def find_unattested(
    nodes: Iterable[Node], inventory: Inventory, seen: datetime, now: datetime
) -> Sequence[str]:
    """Return the names of the Nodes from before the opt-in that have no valid attested certificate.

    The oldest control plane node counts as that of `kubeadm init`, and is left out. A Node without
    creation time counts.
    """
    early = [node for node in nodes if node.created is None or node.created <= seen]
    control_plane = [node for node in early if node.is_control_plane and node.created is not None]
    first = min(control_plane, key=lambda node: (node.created, node.name), default=None)
    return sorted(
        node.name for node in early if node is not first and not _is_attested(node, inventory, now)
    )


def _is_attested(node: Node, inventory: Inventory, now: datetime) -> bool:
    """Return whether the Node's claim has a certificate that is valid.

    After a migration back, the claim stays and its certificate expires.
    """
    claim = inventory.attested_node(node.name)
    return (
        claim is not None and now <= claim.not_after and node.provider_id in {"", claim.provider_id}
    )


def _explain(names: Sequence[str], policy: Policy) -> str:
    listed = ", ".join(name[:_MAX_NAME] for name in names[:_MAX_NAMES])
    if len(names) > _MAX_NAMES:
        listed += f" and {len(names) - _MAX_NAMES} more"
    return (
        "they stay until these Nodes from before the opt-in have attested or are deleted:"
        f" {listed}. Next, on each of them: {_MOVE_NODE}. To delete the bindings now, set"
        f" autoApproveBindings: Remove in the policy {policy.name}"
    )
