"""What a round of maintenance does for one workload cluster, and why the cluster is not served."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
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
from signer.controller.maintenance.node_sync import plan_label_changes, plan_taint_changes
from signer.controller.observability.audit import log_cluster_alarm
from signer.controller.policies.active import ActivePolicies
from signer.controller.reconcile.authorities import ClusterAuthorities
from signer.errors import AutoApproveBindingPresent, EndedCertificatesNotListed
from signer.fairness.outbox import Outbox, Write
from signer.inventory.cached_inventory import CachedInventory
from signer.inventory.cluster_api.cluster import cluster_reference
from signer.inventory.cluster_api.cluster_secret import authority_secret_name
from signer.inventory.custom_resources.claim_store import KubeClaimStore
from signer.kube.events import EventRecorder
from signer.logs import run_logged
from signer.model import Inventory, Node
from signer.policy.policy import Approval, NodeLabels, Policy

_LONGEST_LIFETIME: Final = timedelta(days=366)
"""Of the certificates of a Cluster whose policy is unknown."""


class WorkloadRounds:
    """Maintains workload clusters, each on one thread at a time; any thread reads `problem`."""

    def __init__(  # noqa: PLR0913 - all that a round reads and writes
        self,
        management: ManagementCluster,
        policies: ActivePolicies,
        authorities: ClusterAuthorities,
        claims: KubeClaimStore,
        *,
        bindings: BindingRemoval,
        events: EventRecorder,
        now: Callable[[], datetime],
    ) -> None:
        self._bindings = bindings
        self._management = management
        self._policies = policies
        self._authorities = authorities
        self._ended = EndedSync(management, claims, now)
        self._events = events
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
        """
        step = partial(self._maintain, workload, full=full)
        succeeded = run_logged(step, "maintenance of a cluster", workload.key)
        return succeeded and workload not in self._problems

    def _maintain(self, workload: WorkloadCluster, *, full: bool) -> None:
        may_sign = False
        # First: a ban waits neither for a flood of requests nor for a failure of another step.
        run_logged(partial(self._end_certificates, workload), "ended certificates", workload.key)
        try:
            if full:
                # First: neither a flood of requests nor the API server may prevent the alarm.
                may_sign = self._verify_authority(workload)
            with self._report_forbidden(workload):
                if full:
                    workload.read_hosts()
                self._maintain_requests(workload)
        finally:
            # Also after a failure: a flood of requests must not let a banned node keep its label.
            # The cluster is served without its labels, too.
            run_logged(partial(self._sync_node_labels, workload), "labels of Nodes", workload.key)
            run_logged(partial(self._sync_node_taints, workload), "taints of Nodes", workload.key)
        if may_sign:
            self._problems.pop(workload, None)

    def _end_certificates(self, workload: WorkloadCluster) -> None:
        """List what the claims say has ended; report that the cluster does not permit that."""
        try:
            lifetime = self._policies.policy_of(workload.key).certificate.lifetime
        except Waiting:
            lifetime = _LONGEST_LIFETIME
        try:
            self._ended.sync(workload, lifetime)
        except EndedCertificatesNotListed as alarm:
            log_cluster_alarm(workload.key, alarm)
            self._record(workload, alarm.reason, alarm.message)

    def _verify_authority(self, workload: WorkloadCluster) -> bool:
        """Return whether the Cluster has the authority that it needs; note why it has not."""
        error = check_authority(workload.key, self._authorities.authority)
        if error is None or self._policies.is_serving_only(workload.key):
            return True
        secret = authority_secret_name(workload.key)
        self._add_problem(workload, error.reason, f"Secret {secret}: {error.message}")
        return False

    def _maintain_requests(self, workload: WorkloadCluster) -> None:
        if workload.bindings.has_synced:
            # Without a policy, nothing says what to do with bindings: its requests report that.
            with contextlib.suppress(Waiting):
                policy = self._policies.policy_of(workload.key)
                self._maintain_bindings(workload, policy)
        if workload.csrs.has_synced:
            outbox = _outbox(workload, "expired offer not deleted", "csr")
            delete_expired_offers(workload.csrs.all(), workload.writer, outbox, self._now())

    def _maintain_bindings(self, workload: WorkloadCluster, policy: Policy) -> None:
        """Remove the bindings or report why they stay, as the policy says (R0)."""
        if not workload.nodes.has_synced and workload.failure is None:
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

    @contextlib.contextmanager
    def _report_forbidden(self, workload: WorkloadCluster) -> Iterator[None]:
        """Report a request that the workload cluster forbids, with the file that permits it."""
        try:
            yield
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


def _outbox(workload: WorkloadCluster, failure: str, object_field: str) -> Outbox:
    """Return an outbox for one round, in which each object is a tenant of its own."""
    return Outbox(failure, object_field, time.monotonic, workload.key.log_fields())
