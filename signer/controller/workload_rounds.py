"""What a round of maintenance does for one workload cluster, and why the cluster is not served."""

import contextlib
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from http import HTTPStatus
from weakref import WeakKeyDictionary

from common.errors import ApiServerUnavailable, Waiting
from signer.controller.active_policies import ActivePolicies
from signer.controller.authorities import ClusterAuthorities, authority_secret
from signer.controller.cluster_reporter import cluster_reference
from signer.controller.credential_lists import read_entry, sync_credential_list
from signer.controller.housekeeping import (
    check_authority,
    delete_expired_offers,
    enforce_auto_approve_policy,
)
from signer.controller.node_labels import plan_label_changes, write_label_changes
from signer.controller.steps import run_step
from signer.controller.workload_maintenance import LimitedDeleter
from signer.errors import AutoApproveBindingPresent
from signer.inventory.claims import KubeClaimStore
from signer.inventory.cluster_connector import CONNECTING, FORBIDDEN, ConnectionProblem
from signer.inventory.lister import CachedInventory
from signer.inventory.management import ManagementCluster
from signer.inventory.workload import WorkloadCluster
from signer.kube.events import EventRecorder
from signer.policy import NodeLabels


class WorkloadRounds:
    """Maintains workload clusters, each on one thread at a time; any thread reads `problem`."""

    def __init__(  # noqa: PLR0913 - the last two are options
        self,
        management: ManagementCluster,
        policies: ActivePolicies,
        authorities: ClusterAuthorities,
        claims: KubeClaimStore,
        *,
        events: EventRecorder,
        now: Callable[[], datetime],
    ) -> None:
        self._management = management
        self._policies = policies
        self._authorities = authorities
        self._claims = claims
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
        succeeded = run_step(step, "maintenance of a cluster", workload.key)
        return succeeded and workload not in self._problems

    def _maintain(self, workload: WorkloadCluster, *, full: bool) -> None:
        may_sign = False
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
            run_step(partial(self._sync_node_labels, workload), "labels of Nodes", workload.key)
        if may_sign:
            self._problems.pop(workload, None)

    def _verify_authority(self, workload: WorkloadCluster) -> bool:
        """Return whether the Cluster has the authority that it needs; note why it has not."""
        error = check_authority(workload.key, self._authorities.authority)
        if error is None or self._policies.is_serving_only(workload.key):
            return True
        secret = authority_secret(workload.key)
        self._add_problem(workload, error.reason, f"Secret {secret}: {error.message}")
        return False

    def _maintain_requests(self, workload: WorkloadCluster) -> None:
        if workload.bindings.has_synced:
            # Without a policy, nothing says what to do with bindings: its requests report that.
            with contextlib.suppress(Waiting):
                policy = self._policies.policy_of(workload.key)
                bindings = workload.bindings.all()
                outcomes = enforce_auto_approve_policy(
                    workload.key, bindings, policy, workload.remove_binding
                )
                if outcomes:
                    step = partial(self._record_bindings, workload, outcomes)
                    run_step(step, "Event about bindings", workload.key)
                if policy.publish_credentials:
                    self._sync_credentials(workload)
        if workload.csrs.has_synced:
            deleter = LimitedDeleter(workload.writer.delete, time.monotonic)
            delete_expired_offers(workload.csrs.all(), deleter, self._now())

    def _record_bindings(self, workload: WorkloadCluster, outcomes: str) -> None:
        message = (
            "ClusterRoleBindings of the workload cluster let kube-controller-manager approve client"
            f" certificates without attestation: {outcomes}"
        )
        self._record(workload, AutoApproveBindingPresent.reason, message)

    def _record(self, workload: WorkloadCluster, reason: str, message: str) -> None:
        """Create an Event on the Cluster."""
        regarding = cluster_reference(workload.key, workload.uid)
        self._events.record(regarding, reason, message, self._now())

    def _sync_credentials(self, workload: WorkloadCluster) -> None:
        key, nodes = workload.key, self._management.nodes
        sync_credential_list(
            workload.credentials,
            nodes=lambda: [node for node in nodes.all() if node.cluster == key],
            live_entry=partial(read_entry, self._claims, key),
            key=self._management.keys.get,
        )

    def _sync_node_labels(self, workload: WorkloadCluster) -> None:
        try:
            policy = self._policies.policy_of(workload.key)
            changes = plan_label_changes(
                workload.nodes.all(),
                CachedInventory(self._management, workload),
                enabled=policy.node_labels is NodeLabels.ENABLED,
                now=self._now(),
            )
        except (Waiting, ApiServerUnavailable):
            # Without a policy, or with incomplete caches, nothing says what the labels must be.
            return
        try:
            write_label_changes(workload.key, changes, workload.node_labels, time.monotonic)
        except ApiServerUnavailable:
            # The message names no Node: it would be another Event for each.
            message = (
                "the workload cluster forbids labels on Nodes: apply node-labels-rbac.yaml there"
            )
            self._record(workload, "NodeLabelsForbidden", message)
            raise

    @contextlib.contextmanager
    def _report_forbidden(self, workload: WorkloadCluster) -> Iterator[None]:
        """Report a request that the workload cluster forbids, with the file that permits it."""
        try:
            yield
        except ApiServerUnavailable as e:
            if e.status == HTTPStatus.FORBIDDEN:
                request, _, _ = e.detail.partition(": ")
                message = f"the workload cluster forbids {request}: apply workload-rbac.yaml there"
                self._add_problem(workload, FORBIDDEN, message)
            raise

    def _add_problem(self, workload: WorkloadCluster, reason: str, message: str) -> None:
        self._problems[workload] = ConnectionProblem(reason=reason, message=message, reachable=True)
