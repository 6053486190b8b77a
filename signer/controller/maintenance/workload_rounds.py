"""What a round of maintenance does for one workload cluster, and why the cluster is not served."""

import contextlib
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import Final
from weakref import WeakKeyDictionary

from common.errors import ApiServerUnavailable, Waiting
from signer.clusters.connection_problem import CONNECTING, FORBIDDEN, ConnectionProblem
from signer.clusters.management_cluster import ManagementCluster
from signer.clusters.workload_cluster import WorkloadCluster
from signer.controller.maintenance.binding_removal import BindingRemoval
from signer.controller.maintenance.ended_sync import EndedSync
from signer.controller.maintenance.housekeeping import (
    check_authority,
    delete_expired_offers,
    enforce_auto_approve_policy,
    write_nodes,
)
from signer.controller.maintenance.markers import Markers
from signer.controller.maintenance.node_sync import plan_label_changes, plan_taint_changes
from signer.controller.observability.audit import log_cluster_alarm
from signer.controller.policies.active import ActivePolicies
from signer.controller.reconcile.authorities import ClusterAuthorities
from signer.controller.steps import Step, Steps
from signer.errors import AutoApproveBindingPresent, EndedCertificatesNotListed
from signer.fairness.outbox import Outbox, Write
from signer.inventory.cached_inventory import CachedInventory
from signer.inventory.cluster_api.cluster import cluster_reference
from signer.inventory.cluster_api.cluster_secret import authority_secret_name
from signer.inventory.custom_resources.claim_store import KubeClaimStore
from signer.kinds.node import Node
from signer.kube.events import EventRecorder
from signer.logs import run_logged
from signer.policy.policy import Approval, NodeLabels, Policy
from signer.seams import Inventory

_LONGEST_LIFETIME: Final = timedelta(days=366)
"""Of the certificates of a Cluster whose policy is unknown."""
_NEVER_LATER: Final = datetime.fromtimestamp(0, UTC)
"""A time at which no entry has expired."""


class WorkloadRounds:
    """Maintains workload clusters, each on one thread at a time; any thread reads `problem`."""

    def __init__(  # noqa: PLR0913 - all that a round reads and writes
        self,
        steps: Steps,
        management: ManagementCluster,
        policies: ActivePolicies,
        authorities: ClusterAuthorities,
        claims: KubeClaimStore,
        *,
        bindings: BindingRemoval,
        events: EventRecorder,
        markers: Markers,
        now: Callable[[], datetime],
    ) -> None:
        self._steps = steps
        self._bindings = bindings
        self._management = management
        self._policies = policies
        self._authorities = authorities
        self._ended = EndedSync(management, claims)
        self._events = events
        self._markers = markers
        self._now = now
        self._problems: WeakKeyDictionary[WorkloadCluster, ConnectionProblem] = WeakKeyDictionary()

    def problem(self, workload: WorkloadCluster) -> ConnectionProblem | None:
        """Return why the cluster is not served, as its maintenance found."""
        return self._problems.get(workload)

    def add(self, workload: WorkloadCluster) -> None:
        """Note a new workload cluster, which is not served until its first round has succeeded."""
        self._problems[workload] = CONNECTING

    def maintain(self, workload: WorkloadCluster, full: bool) -> bool:  # noqa: FBT001 # a callback
        """Run a round of maintenance; return whether the cluster is served without a problem.

        A full round also reads what seldom changes: the addresses of the API server, and the CA.
        A step that fails does not stop the others: an object that cannot be read must not keep a
        ban from taking effect.
        """
        key, may_sign = workload.key, False
        if full:
            # First: neither a flood of requests nor the API server may prevent the alarm.
            verify = partial(self._verify_authority, workload)
            may_sign = self._steps.call(Step.VERIFY_AUTHORITY, verify) or False
        functions = {
            Step.LIST_ENDED_CERTIFICATES: self._list_ended,
            **({Step.READ_HOSTS: _read_hosts} if full else {}),
            Step.REMOVE_BINDINGS: self._maintain_bindings,
            Step.DELETE_EXPIRED_OFFERS: self._delete_expired_offers,
        }
        results = [
            self._steps.run(step, partial(self._report_forbidden, workload, function), key)
            for step, function in functions.items()
        ]
        # The cluster is served without its marker, labels and taints, too.
        self._steps.run(Step.SYNC_MARKER, partial(self._sync_marker, workload), key)
        self._steps.run(Step.SYNC_NODE_LABELS, partial(self._sync_node_labels, workload), key)
        self._steps.run(Step.SYNC_NODE_TAINTS, partial(self._sync_node_taints, workload), key)
        if may_sign and all(results):
            self._problems.pop(workload, None)
        return all(results) and workload not in self._problems

    def _list_ended(self, workload: WorkloadCluster) -> None:
        """List what the claims say has ended; report that the cluster does not permit that."""
        lifetime = _LONGEST_LIFETIME
        with contextlib.suppress(Waiting, ApiServerUnavailable):
            lifetime = self._policies.policy_of(workload.key).certificate.lifetime
        # A clock that is ahead must not let what is ended write again.
        now = self._steps.call(Step.EXPIRE_ENDED_CERTIFICATES, self._now) or _NEVER_LATER
        try:
            self._ended.sync(workload, lifetime, now)
        except EndedCertificatesNotListed as alarm:
            log_cluster_alarm(workload.key, alarm)
            self._record(workload, alarm.reason, alarm.message)

    def _verify_authority(self, workload: WorkloadCluster) -> bool:
        """Return whether the Cluster has the authority that it needs; note why it has not."""
        error = check_authority(workload.key, self._authorities.authority)
        if error is None:
            return True
        with contextlib.suppress(ApiServerUnavailable):
            if self._policies.is_serving_only(workload.key):
                return True
        secret = authority_secret_name(workload.key)
        self._add_problem(workload, error.reason, f"Secret {secret}: {error.message}")
        return False

    def _delete_expired_offers(self, workload: WorkloadCluster) -> None:
        if workload.csrs.has_synced:
            outbox = _outbox(workload, "expired offer not deleted", "csr")
            delete_expired_offers(workload.csrs.all(), workload.writer, outbox, self._now())

    def _policy_of(self, workload: WorkloadCluster) -> Policy | None:
        """Return the policy; `None` if there is not exactly one: its requests report that."""
        with contextlib.suppress(Waiting):
            return self._policies.policy_of(workload.key)
        return None

    def _maintain_bindings(self, workload: WorkloadCluster) -> None:
        """Remove the bindings or report why they stay, as the policy says (R0)."""
        policy = self._policy_of(workload)
        if policy is None or not workload.bindings.has_synced:
            return
        if not workload.nodes.has_synced and not workload.nodes.failing_seconds:
            # The Nodes are being listed. They say whether the bindings may go.
            workload.maintenance_due.set()
            return
        names = workload.bindings.all()
        reason = self._bindings.reason_to_keep(workload, policy)
        outcomes = enforce_auto_approve_policy(
            workload.key,
            names,
            policy,
            workload.remove_binding,
            _outbox(workload, "binding not removed", "binding"),
            keep=bool(reason),
        )
        if outcomes:
            message = (
                "ClusterRoleBindings of the workload cluster let kube-controller-manager approve"
                f" client certificates without attestation: {outcomes}"
            )
            message = "; ".join(filter(None, (message, reason)))
            step = partial(self._record, workload, AutoApproveBindingPresent.reason, message)
            run_logged(step, "Event about bindings", workload.key)

    def _record(self, workload: WorkloadCluster, reason: str, message: str) -> None:
        """Create an Event on the Cluster."""
        regarding = cluster_reference(workload.key, workload.uid)
        self._events.record(regarding, reason, message, self._now())

    def _sync_marker(self, workload: WorkloadCluster) -> None:
        try:
            self._markers.sync(workload)
        except ApiServerUnavailable as error:
            if error.status == HTTPStatus.FORBIDDEN:
                message = "the workload cluster forbids the marker of the claims: apply"
                self._record(workload, "MarkerForbidden", f"{message} workload-rbac.yaml there")
            raise

    def _sync_node_labels(self, workload: WorkloadCluster) -> None:
        def plan(policy: Policy, nodes: Sequence[Node], inventory: Inventory) -> list[Write]:
            enabled = policy.node_labels is NodeLabels.ENABLED
            changes = plan_label_changes(nodes, inventory, enabled=enabled, now=self._now())
            change = workload.node_labels.change
            return [(node.name, partial(change, node, labels)) for node, labels in changes]

        self._sync_nodes(workload, plan, "labels")

    def _sync_node_taints(self, workload: WorkloadCluster) -> None:
        def plan(policy: Policy, nodes: Sequence[Node], inventory: Inventory) -> list[Write]:
            enabled = policy.renewals.taint_unattested and policy.approval is Approval.ENABLED
            changes = plan_taint_changes(nodes, inventory, enabled=enabled, now=self._now())
            change = workload.node_taints.change
            return [(node.name, partial(change, node, tainted=t)) for node, t in changes]

        self._sync_nodes(workload, plan, "taints")

    def _sync_nodes(
        self,
        workload: WorkloadCluster,
        plan: Callable[[Policy, Sequence[Node], Inventory], list[Write]],
        what: str,
    ) -> None:
        """Write labels or taints. Raises `ApiServerUnavailable` if that is forbidden."""
        try:
            policy = self._policies.policy_of(workload.key)
            inventory = CachedInventory(self._management, workload)
            writes = plan(policy, workload.nodes.all(), inventory)
        except (Waiting, ApiServerUnavailable):
            # Without a policy, or with incomplete caches, nothing says what a Node must have.
            return
        try:
            write_nodes(writes, _outbox(workload, f"node {what} not written", "node"))
        except ApiServerUnavailable:
            # The message names no Node: it would be another Event for each.
            message = (
                f"the workload cluster forbids {what} on Nodes: apply node-{what}-rbac.yaml there"
            )
            self._record(workload, f"Node{what.capitalize()}Forbidden", message)
            raise

    def _report_forbidden(
        self, workload: WorkloadCluster, step: Callable[[WorkloadCluster], None]
    ) -> None:
        """Report a request that the workload cluster forbids, with the file that permits it."""
        try:
            step(workload)
        except ApiServerUnavailable as error:
            if error.status == HTTPStatus.FORBIDDEN:
                request, _, _ = error.detail.partition(": ")
                # Without the name of the object: each offer would be another Event.
                request, _, _ = request.rpartition("/")
                message = f"the workload cluster forbids {request}: apply workload-rbac.yaml there"
                self._add_problem(workload, FORBIDDEN, message)
            raise

    def _add_problem(self, workload: WorkloadCluster, reason: str, message: str) -> None:
        self._problems[workload] = ConnectionProblem(reason=reason, message=message, reachable=True)


def _read_hosts(workload: WorkloadCluster) -> None:
    workload.read_hosts()


def _outbox(workload: WorkloadCluster, failure: str, object_field: str) -> Outbox:
    """Return an outbox for one round, in which each object is a tenant of its own."""
    return Outbox(failure, object_field, time.monotonic, workload.key.log_fields())
