"""The controller: watches fill the work queue, and workers reconcile its items.

Threads, whatever the number of clusters: the workers; one for each watch of the management cluster;
a pool for queries to platforms; the maintenance of the management cluster, the policies, the
reports, the list of workload clusters and the Leases of the replicas. Each workload cluster has
three for its watches, and one for each read of its Secret, each round of its maintenance and each
look-up of its server's name.
"""

import logging
import time
from collections.abc import Callable
from functools import partial
from threading import Event
from typing import Final

from signer.controller.live_leases import RENEW_SECONDS
from signer.controller.maintenance.management_rounds import ManagementRounds
from signer.controller.steps import Step
from signer.controller.threads import Loop
from signer.controller.wiring import ControllerParts
from signer.logs import LogWriter, run_logged
from signer.settings.config import Config

_logger = logging.getLogger(__name__)

_SYNC_INTERVAL: Final = 1.0
_START_INTERVAL: Final = 0.1
"""In place of `_SYNC_INTERVAL` until the management cluster has been listed, and of `RENEW_SECONDS`
until this replica has its share: a start must not wait for the next round."""
_POLICY_INTERVAL: Final = 1.0
_REPORT_INTERVAL: Final = 2.0
_MARKER_INTERVAL: Final = 5.0
"""Seconds between two comparisons, each of which reads all claims of the cache."""
_HAND_OVER_SECONDS: Final = 10.0
"""How long a replica that ends still serves its Clusters: the others find within two seconds that
its Lease is gone, and then connect. With the two limits below, it is less than the chart's
`terminationGracePeriodSeconds`."""
_SHUTDOWN_GRACE: Final = 15.0
"""Seconds in which workers may finish the items that they process."""
_LAST_REPORTS_SECONDS: Final = 5.0
"""Seconds in which the conditions of Machines may be written that the workers left."""


class Controller:
    """All threads of the signer.

    Raises `OSError` when it is made and cannot listen on the address for metrics.
    """

    def __init__(self, config: Config, log: LogWriter, *, agent: str, host_name: str) -> None:
        self._config = config
        self._agent = agent
        self._stop = Event()
        self._leaving = Event()
        self._reports_due = Event()
        """Set when the workers have ended: the next reports are the last ones."""
        parts = ControllerParts(config, log, self._stop, agent=agent, host_name=host_name)
        self._parts = parts
        rounds = ManagementRounds(parts.steps, parts.challenge_keys, parts.cleanup)
        self._reports = Loop(
            "reports",
            parts.reports.write,
            pause=lambda: _REPORT_INTERVAL,
            stop=self._reports_due,
            last=parts.reports.write_last,
        )
        self._sharing = self._make_lease_loop("sharing of the Clusters", parts.replicas.sync)
        self._renewal = self._make_lease_loop(
            "renewal of the Lease", parts.replicas.renew, last=parts.replicas.leave
        )
        self._loops = (
            Loop("maintenance", rounds.run, pause=rounds.pause, stop=self._stop),
            Loop("policies", self._sync_policies, pause=lambda: _POLICY_INTERVAL, stop=self._stop),
            Loop("clusters", self._sync_clusters, pause=self._sync_pause, stop=self._stop),
            Loop("markers", self._compare_markers, pause=lambda: _MARKER_INTERVAL, stop=self._stop),
            self._reports,
            self._sharing,
            self._renewal,
        )
        for loop in self._loops:
            parts.health.add(loop.name, loop.is_healthy)

    def run(self, stop: Event) -> None:
        """Run until `stop` is set, then let the workers finish what they process."""
        components = self._parts
        components.management.start()
        components.workers.start()
        for loop in self._loops:
            loop.start()
        if components.http_server is not None:
            # Last: before the threads run, the probes would fail.
            components.http_server.start()
        _logger.info("signer started", extra={"fields": self._describe()})
        stop.wait()
        self._hand_over()
        self._stop.set()
        components.clusters.stop()
        components.queue.shut_down()
        components.workers.join(_SHUTDOWN_GRACE)
        self._reports_due.set()
        self._reports.join(_LAST_REPORTS_SECONDS)
        if components.http_server is not None:
            components.http_server.stop()
        _logger.info("signer stopped")

    def _hand_over(self) -> None:
        """Let other replicas take over the Clusters, while this one still serves them."""
        self._leaving.set()
        self._renewal.join(RENEW_SECONDS)
        if self._parts.replicas.has_successors and self._parts.clusters.open_clusters():
            _logger.info("other replicas take over the Clusters")
            time.sleep(_HAND_OVER_SECONDS)

    def _make_lease_loop(
        self, name: str, step: Callable[[], None], *, last: Callable[[], None] | None = None
    ) -> Loop:
        return Loop(
            name,
            step,
            pause=lambda: (
                RENEW_SECONDS if self._parts.replicas.has_share_of_clusters else _START_INTERVAL
            ),
            stop=self._leaving,
            last=last,
            from_start=True,
        )

    def _describe(self) -> dict[str, object]:
        return {
            "version": self._agent.rpartition("/")[2],
            "managementCluster": self._config.management.server,
            "namespace": self._config.watched_namespace or "all",
            "replica": self._parts.replicas.this.name,
        }

    def _sync_pause(self) -> float:
        return _SYNC_INTERVAL if self._parts.management.has_synced() else _START_INTERVAL

    def _sync_clusters(self) -> None:
        run_logged(self._parts.clusters.sync, "sync of the workload clusters")
        run_logged(self._sync_maintenance, "maintenance of the workload clusters")

    def _sync_maintenance(self) -> None:
        self._parts.maintenance.sync(self._parts.clusters.open_clusters())

    def _compare_markers(self) -> None:
        compare = partial(self._parts.markers.update, self._parts.clusters.open_clusters())
        self._parts.steps.run(Step.COMPARE_MARKERS, compare)

    def _sync_policies(self) -> None:
        if self._parts.default_policy is not None:
            run_logged(self._parts.default_policy.create_once, "first policy")
        if self._parts.policy_sync.sync():
            # CSRs that wait for a policy or a revocation list can be decided now.
            self._parts.queue.notify(None, None)
