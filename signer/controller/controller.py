"""The controller: watches fill the work queue, and workers reconcile its items.

Threads, whatever the number of clusters: the workers; one for the watches of all workload clusters,
and one for those of the management cluster; a pool for what blocks and waits for no CSR, such as
maintenance; a pool for queries to platforms; the maintenance of the management cluster, the
policies, the reports, the list of workload clusters and the Leases of the replicas.
"""

import logging
import time
from threading import Event, Thread
from typing import Final

from signer.config import Config
from signer.controller.live_leases import RENEW_SECONDS
from signer.controller.management_maintenance import maintain_management
from signer.controller.steps import run_step
from signer.controller.wiring import Components

_logger = logging.getLogger(__name__)

_SYNC_INTERVAL: Final = 1.0
_START_INTERVAL: Final = 0.1
"""In place of `_SYNC_INTERVAL` until the management cluster has been listed, and of `RENEW_SECONDS`
until this replica has its share: a start must not wait for the next round."""
_POLICY_INTERVAL: Final = 1.0
_REPORT_INTERVAL: Final = 2.0
_HAND_OVER_SECONDS: Final = 10.0
"""How long a replica that ends still serves its Clusters: the others find within two seconds that
its Lease is gone, and then connect. With `_SHUTDOWN_GRACE`, it is less than the chart's
`terminationGracePeriodSeconds`."""
_SHUTDOWN_GRACE: Final = 15.0
"""Seconds in which workers may finish the items that they process."""


class Controller:
    """All threads of the signer.

    Raises `OSError` when it is made and cannot listen on the address for metrics.
    """

    def __init__(self, config: Config, *, agent: str, host_name: str) -> None:
        self._config = config
        self._agent = agent
        self._stop = Event()
        self._leaving = Event()
        self._components = Components(config, self._stop, agent=agent, host_name=host_name)

    def run(self, stop: Event) -> None:
        """Run until `stop` is set, then let the workers finish what they process."""
        components = self._components
        if components.http_server is not None:
            components.http_server.start()
        components.management.start()
        components.workers.start()
        maintenance = (components.challenge_keys, components.cleanup, self._stop)
        Thread(
            target=maintain_management, args=maintenance, name="maintenance", daemon=True
        ).start()
        Thread(target=self._maintain_policies, name="policies", daemon=True).start()
        Thread(target=self._sync_clusters, name="clusters", daemon=True).start()
        Thread(target=self._write_reports, name="reports", daemon=True).start()
        sharing = Thread(target=self._share_clusters, name="replicas", daemon=True)
        sharing.start()
        _logger.info("signer started", extra={"fields": self._describe()})
        stop.wait()
        self._hand_over(sharing)
        self._stop.set()
        components.clusters.stop()
        components.queue.shut_down()
        components.workers.join(_SHUTDOWN_GRACE)
        if components.http_server is not None:
            components.http_server.stop()
        _logger.info("signer stopped")

    def _hand_over(self, sharing: Thread) -> None:
        """Let other replicas take over the Clusters, while this one still serves them."""
        self._leaving.set()
        sharing.join(RENEW_SECONDS)
        if self._components.replicas.has_successors and self._components.clusters.open_clusters():
            _logger.info("other replicas take over the Clusters")
            time.sleep(_HAND_OVER_SECONDS)

    def _describe(self) -> dict[str, object]:
        file = self._config.policy_file
        return {
            "version": self._agent.rpartition("/")[2],
            "policySource": "KubeletAttestationPolicies" if file is None else str(file.path),
            "managementCluster": self._config.management.server,
            "namespace": self._config.watched_namespace or "all",
            "replica": self._components.replicas.this.name,
        }

    def _sync_clusters(self) -> None:
        while not self._stop.wait(
            _SYNC_INTERVAL if self._components.management.has_synced() else _START_INTERVAL
        ):
            run_step(self._components.clusters.sync, "sync of the workload clusters")
            run_step(self._sync_maintenance, "maintenance of the workload clusters")

    def _sync_maintenance(self) -> None:
        self._components.maintenance.sync(self._components.clusters.open_clusters())

    def _maintain_policies(self) -> None:
        while not self._stop.wait(_POLICY_INTERVAL):
            run_step(self._sync_policies, "reload of policies and trust bundles")

    def _sync_policies(self) -> None:
        if self._components.policy_sync.sync():
            # CSRs that wait for a policy or a revocation list can be decided now.
            self._components.queue.notify(None, None)

    def _share_clusters(self) -> None:
        while True:
            run_step(self._components.replicas.sync, "sharing of the Clusters")
            pause = RENEW_SECONDS if self._components.replicas.has_joined else _START_INTERVAL
            if self._leaving.wait(pause):
                break
        run_step(self._components.replicas.leave, "end of the Lease")

    def _write_reports(self) -> None:
        while not self._stop.wait(_REPORT_INTERVAL):
            self._components.reports.write()
