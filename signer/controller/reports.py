"""All reports to users of the management cluster: on Clusters, Machines, policies and new keys.

Workers only note what they decided; one thread writes it. No verdict depends on these writes.
"""

import time
from collections.abc import Callable
from datetime import datetime

from signer.controller.ban_reports import note_bans
from signer.controller.cluster_reporter import ClusterReporter, Connections
from signer.controller.key_requests import KeyRequests
from signer.controller.machine_reports import MachineReports
from signer.controller.policy_sync import PolicySync
from signer.controller.steps import run_step
from signer.inventory.key_requests import KeyRequestClient
from signer.inventory.machine_status import MachineStatusClient
from signer.inventory.management import ManagementCluster
from signer.kube.client import ApiClient
from signer.kube.events import EventRecorder


class Reports:
    """The reports and their present state; `write` is for one thread."""

    def __init__(
        self,
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
        self.machines = MachineReports(MachineStatusClient(api), now=now, monotonic=time.monotonic)
        self.key_requests = KeyRequests(
            management, KeyRequestClient(api), serves=connections.serves, monotonic=time.monotonic
        )
        self._connections = connections
        self._management = management
        self._policies = policies
        self._now = now

    def write(self) -> None:
        """Write what has changed; a report that fails does not stop the others."""
        management = self._management
        run_step(self.machines.flush, "report on the Machines")
        if management.has_synced():
            run_step(self._note_bans, "report of bans")
            if management.key_requests.has_synced:
                run_step(self.key_requests.sync, "requests of endorsement keys")
        if management.clusters.has_synced and self._policies.active.bundles is not None:
            run_step(self._report_clusters, "report on the Clusters")
            run_step(self._report_policies, "status of the policies")

    def _note_bans(self) -> None:
        note_bans(self._management, self.machines.note, self._connections.serves)

    def _report_clusters(self) -> None:
        self.clusters.update(self._management.clusters.all())

    def _report_policies(self) -> None:
        own, others = self.clusters.own(), self.clusters.others()
        counts = self._connections.counts_clusters()
        self._policies.write_statuses(own, others, self._now(), counts=counts)
