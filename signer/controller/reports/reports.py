"""All reports to users of the management cluster: on Clusters, Machines, policies and new keys.

Workers only note what they decided; one thread writes it. No verdict depends on these writes.
"""

import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

from signer.clusters.management_cluster import ManagementCluster
from signer.controller.policies.sync import PolicySync
from signer.controller.reports.cluster_events import ClusterReporter, Connections
from signer.controller.reports.derived_conditions import (
    CountsByCluster,
    enqueue_bans,
    enqueue_conditions,
)
from signer.controller.reports.key_request_writer import KeyRequests
from signer.controller.reports.machine_reports import MachineReports
from signer.controller.reports.policy_status import PolicyStatuses
from signer.controller.reports.refusal_writer import RefusalWriter
from signer.controller.reports.unreadable_objects import UnreadableReporter
from signer.controller.steps import Step, Steps
from signer.inventory.cluster_api.machine_status import MachineStatusClient
from signer.inventory.custom_resources.claim_store import KubeClaimStore
from signer.inventory.custom_resources.key_request_client import KeyRequestClient
from signer.inventory.custom_resources.policy_object import PolicyClient
from signer.kube.events import EventRecorder
from signer.kube.transport.client import ApiClient

_DERIVE_SECONDS: Final = 10.0
"""Seconds between two searches for Machines that do not show what the claim of their node says."""


class Reports:
    """The reports and their present state; `write` is for one thread."""

    def __init__(  # noqa: PLR0913 - what the reports are about, and how they are written
        self,
        steps: Steps,
        api: ApiClient,
        management: ManagementCluster,
        policies: PolicySync,
        connections: Connections,
        *,
        now: Callable[[], datetime],
    ) -> None:
        """Report on the Clusters that this replica serves, and on what belongs to them."""
        self.clusters = ClusterReporter(
            policies.active,
            connections,
            EventRecorder(api),
            now=now,
            monotonic=time.monotonic,
        )
        self.unreadable = UnreadableReporter(
            connections.unreadable, EventRecorder(api), now=now, monotonic=time.monotonic
        )
        self.machines = MachineReports(MachineStatusClient(api), now=now, monotonic=time.monotonic)
        self.refusals = RefusalWriter(KubeClaimStore(api), monotonic=time.monotonic)
        self.nodes: CountsByCluster = {}
        """The nodes of the Clusters that this replica serves."""
        self.key_requests = KeyRequests(
            management, KeyRequestClient(api), serves=connections.serves, monotonic=time.monotonic
        )
        self._policy_statuses = PolicyStatuses(PolicyClient(api), time.monotonic)
        self._steps = steps
        self._connections = connections
        self._management = management
        self._policies = policies
        self._now = now
        self._derive_at = 0.0

    def write(self) -> None:
        """Write what has changed; a report that fails does not stop the others."""
        management, run = self._management, self._steps.run
        run(Step.WRITE_REFUSALS, self.refusals.flush)
        if management.has_synced():
            run(Step.REPORT_BANS, self._enqueue_bans)
            if time.monotonic() >= self._derive_at:
                self._derive_at = time.monotonic() + _DERIVE_SECONDS
                run(Step.REPORT_ATTESTED_NODES, self._enqueue_conditions)
        run(Step.WRITE_MACHINES, self.machines.flush)
        run(Step.REPORT_UNREADABLE, self.unreadable.update)
        if management.has_synced() and management.key_requests.has_synced:
            run(Step.SYNC_KEY_REQUESTS, self.key_requests.sync)
        if management.clusters.has_synced and self._policies.active.bundles is not None:
            run(Step.REPORT_CLUSTERS, self._report_clusters)
            run(Step.REPORT_POLICIES, self._report_policies)

    def write_last(self) -> None:
        """Write what only this process knows, before it ends."""
        self._steps.run(Step.WRITE_REFUSALS, self.refusals.flush)
        self.machines.flush_last()

    def _enqueue_bans(self) -> None:
        enqueue_bans(self._management, self.machines.note, self._connections.serves)

    def _enqueue_conditions(self) -> None:
        self.machines.log_dropped()
        self.nodes = enqueue_conditions(
            self._management, self.machines.note, self._connections.serves, self._now()
        )

    def _report_clusters(self) -> None:
        self.clusters.update(self._management.clusters.all())

    def _report_policies(self) -> None:
        self._policy_statuses.write_all(
            self._policies,
            self.clusters.own,
            self.clusters.others,
            self._management.namespace,
            self._now(),
            counts=self._connections.is_counting_replica(),
        )
