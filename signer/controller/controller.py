"""The controller: watches fill the work queue, and workers reconcile its items.

Threads, whatever the number of clusters: the workers; one for the watches of all workload clusters,
and one for those of the management cluster; a pool for what blocks and waits for no CSR, such as
maintenance; a pool for queries to platforms; the maintenance of the management cluster, the
policies, the reports, the list of workload clusters and the Leases of the replicas.
"""

import logging
import random
import secrets
import time
from datetime import UTC, datetime
from hashlib import sha256
from threading import Event, Thread
from typing import Final

from signer.config import Config
from signer.controller import metrics
from signer.controller.authorities import ClusterAuthorities
from signer.controller.cache_events import connect_caches
from signer.controller.claim_cleanup import ClaimCleanup
from signer.controller.cluster_connections import ClusterConnections
from signer.controller.cluster_report import render_reports
from signer.controller.credential_lists import find_changed_list
from signer.controller.csr_workers import MAX_WORKERS_PER_CLUSTER, WORKERS, CsrWorkers
from signer.controller.dependencies import Dependencies
from signer.controller.http_server import METRICS_PATH, HttpServer, build_app
from signer.controller.key_quota import EndorsementKeyQuota, LimitedClaimStore
from signer.controller.live_leases import RENEW_SECONDS
from signer.controller.management_maintenance import maintain_management
from signer.controller.metrics_access import MetricsAccess
from signer.controller.policy_sync import PolicySync
from signer.controller.rate_limit import ChallengeRateLimiter
from signer.controller.reconcile import Reconciler
from signer.controller.replicas import Replica, Replicas
from signer.controller.reports import Reports
from signer.controller.server_certificate import self_signed_context
from signer.controller.steps import run_step
from signer.controller.workload_maintenance import WorkloadMaintenance
from signer.controller.workload_rounds import WorkloadRounds
from signer.controller.workqueue import WorkQueue
from signer.inventory.challenge_keys import ChallengeKeyStore
from signer.inventory.management import ManagementCluster
from signer.inventory.policy_object import PolicyClient
from signer.inventory.workload import WorkloadCluster
from signer.inventory.workload_clusters import WorkloadClusters
from signer.kube.budget import Budgets
from signer.kube.client import ApiClient
from signer.kube.events import EventRecorder
from signer.kube.leases import LeaseClient
from signer.kube.secrets import SecretClient
from signer.model import ClaimStore, ClusterKey, EndorsementKeyObject
from signer.platforms.queries import PlatformQueries
from signer.platforms.registry import platform_of
from signer.task_pool import TaskPool

_logger = logging.getLogger(__name__)

_TASK_THREADS: Final = 16
"""For all workload clusters: their maintenance, their Secrets, and names of their API servers."""
_PLATFORM_THREADS: Final = 16
"""For the queries to platforms, of which four at most are to one account."""
_SYNC_INTERVAL: Final = 1.0
_POLICY_INTERVAL: Final = 1.0
_REPORT_INTERVAL: Final = 2.0
_HAND_OVER_SECONDS: Final = 10.0
"""For which a replica that ends still serves its Clusters: the others find within two seconds that
its Lease is gone, and then connect. With `_SHUTDOWN_GRACE`, it is less than the chart's
`terminationGracePeriodSeconds`."""
_SHUTDOWN_GRACE: Final = 15.0
"""Seconds in which workers may finish the items that they process."""


class Controller:
    """All threads of the signer.

    Raises `OSError` when it is made and cannot listen on the address for metrics.
    """

    def __init__(self, config: Config, *, agent: str, host_name: str) -> None:
        api = ApiClient("management", config.management, user_agent=agent)
        self._config = config
        self._agent = agent
        self._stop = Event()
        self._leaving = Event()
        self._queue = WorkQueue(
            workers=WORKERS,
            max_workers_per_cluster=MAX_WORKERS_PER_CLUSTER,
            monotonic=time.monotonic,
            jitter=random.random,
        )
        self._budgets = Budgets()
        self._management = ManagementCluster(
            api,
            self._stop,
            self._queue.notify,
            budget=self._budgets.memory,
            infrastructure_groups=config.infrastructure_groups,
            namespace=config.watched_namespace,
            watch_policies=config.policy_file is None,
        )
        self._policy_sync = PolicySync(self._management, PolicyClient(api), config.policy_file)
        policies = self._policy_sync.active
        self._replicas = self._make_replicas(api, host_name)
        serves = self._replicas.serves
        claims = LimitedClaimStore(api, EndorsementKeyQuota(self._management))
        self._cleanup = ClaimCleanup(self._management, claims, serves=serves, now=_now)
        self._challenge_keys = ChallengeKeyStore(
            SecretClient(api), config.own_namespace, now=_now, random=secrets.token_bytes
        )
        authorities = ClusterAuthorities(
            SecretClient(api), policies.policy_of, monotonic=time.monotonic
        )
        self._rounds = WorkloadRounds(
            self._management, policies, authorities, claims, events=EventRecorder(api), now=_now
        )
        pool = TaskPool(_TASK_THREADS)
        self._clusters = WorkloadClusters(
            self._management,
            SecretClient(api),
            user_agent=agent,
            budgets=self._budgets,
            pool=pool,
            serves=serves,
            opened=self._on_cluster_added,
        )
        self._maintenance = WorkloadMaintenance(
            pool,
            self._rounds.maintain,
            closed=lambda workload: self._queue.reset_circuit_breaker(workload.key),
            monotonic=time.monotonic,
        )
        self._reports = Reports(
            api,
            self._management,
            self._policy_sync,
            ClusterConnections(self._replicas, self._clusters, self._rounds),
            now=_now,
        )
        self._management.keys.add_event_handler(self._on_key_changed)
        self._workers = CsrWorkers(
            self._queue,
            self._management,
            self._clusters,
            Reconciler(self._make_dependencies(claims, authorities)),
        )
        self._http_server = self._make_http_server(api)

    def run(self, stop: Event) -> None:
        """Run until `stop` is set, then let the workers finish what they process."""
        if self._http_server is not None:
            self._http_server.start()
        self._management.start()
        self._workers.start()
        maintenance = (self._challenge_keys, self._cleanup, self._stop)
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
        self._clusters.stop()
        self._queue.shut_down()
        self._workers.join(_SHUTDOWN_GRACE)
        if self._http_server is not None:
            self._http_server.stop()
        _logger.info("signer stopped")

    def _hand_over(self, sharing: Thread) -> None:
        """Let other replicas take over the Clusters, while this one still serves them."""
        self._leaving.set()
        sharing.join(RENEW_SECONDS)
        if self._replicas.has_successors and self._clusters.open_clusters():
            _logger.info("other replicas take over the Clusters")
            time.sleep(_HAND_OVER_SECONDS)

    def _describe(self) -> dict[str, object]:
        file = self._config.policy_file
        return {
            "version": self._agent.rpartition("/")[2],
            "policySource": "KubeletAttestationPolicies" if file is None else str(file.path),
            "managementCluster": self._config.management.server,
            "namespace": self._config.watched_namespace or "all",
            "replica": self._replicas.this.name,
        }

    def _settings(self) -> str:
        """Return a digest of what verdicts depend on and replicas may be started with."""
        groups = ",".join(sorted(self._config.infrastructure_groups))
        return sha256(f"{self._policy_sync.digest} {groups}".encode()).hexdigest()[:16]

    def _make_replicas(self, api: ApiClient, host_name: str) -> Replicas:
        name = f"{host_name}_{secrets.token_hex(8)}"
        return Replicas(
            LeaseClient(api, self._config.own_namespace),
            Replica(name=name, namespace=self._config.watched_namespace),
            settings=self._settings,
            ready=lambda: self._workers.are_alive() and self._management.has_synced(),
            connected=self._has_tried_all,
            now=_now,
            monotonic=time.monotonic,
        )

    def _has_tried_all(self) -> bool:
        return self._clusters.has_tried_all()

    def _make_dependencies(
        self, claims: ClaimStore, authorities: ClusterAuthorities
    ) -> Dependencies:
        return Dependencies(
            policies=self._policy_sync.active,
            claims=claims,
            challenge_keys=self._challenge_keys,
            authorities=authorities,
            rate_limiter=ChallengeRateLimiter(time.monotonic),
            platforms=PlatformQueries(
                TaskPool(_PLATFORM_THREADS),
                platform_of,
                answered=lambda provider_id: self._queue.notify(None, provider_id),
                monotonic=time.monotonic,
            ),
            note_machine=self._reports.machines.note,
            note_key_request=self._reports.key_requests.note,
            now=_now,
            monotonic=time.monotonic,
            random=secrets.token_bytes,
        )

    def _make_http_server(self, api: ApiClient) -> HttpServer | None:
        config, access, tls = self._config, None, None
        if config.metrics_address is None:
            return None
        if config.metrics_secure:
            access = MetricsAccess(api, METRICS_PATH, time.monotonic).check
            tls = self_signed_context(_now(), serial_number=secrets.randbits(64) + 1)
        registry = metrics.build_registry(
            lambda: self._policy_sync.active.bundles,
            self._queue.state,
            self._budgets.memory,
            self._reports.clusters.own,
            lambda: self._replicas.count,
        )
        app = build_app(
            registry,
            healthy=self._workers.are_alive,
            ready=lambda: self._management.has_synced() and self._replicas.has_joined,
            clusters=self._render_clusters,
            access=access,
        )
        return HttpServer(config.metrics_address, app, tls)

    def _render_clusters(self) -> bytes:
        reports = self._reports.clusters
        return render_reports(reports.own(), reports.others(), self._replica_name)

    def _replica_name(self, cluster: ClusterKey) -> str | None:
        replica = self._replicas.serving(cluster)
        return None if replica is None else replica.name

    def _on_cluster_added(self, workload: WorkloadCluster) -> None:
        """Connect the caches of a workload cluster with the queue."""
        self._rounds.add(workload)
        self._workers.add_cluster(workload)
        connect_caches(workload, self._queue)

    def _on_key_changed(
        self, _: str, before: EndorsementKeyObject | None, after: EndorsementKeyObject | None
    ) -> None:
        cluster = find_changed_list(before, after)
        workload = None if cluster is None else self._clusters.get(cluster)
        if workload is not None:
            workload.maintenance_due.set()

    def _sync_clusters(self) -> None:
        while not self._stop.wait(_SYNC_INTERVAL):
            run_step(self._clusters.sync, "sync of the workload clusters")
            run_step(self._sync_maintenance, "maintenance of the workload clusters")

    def _sync_maintenance(self) -> None:
        self._maintenance.sync(self._clusters.open_clusters())

    def _maintain_policies(self) -> None:
        while not self._stop.wait(_POLICY_INTERVAL):
            run_step(self._sync_policies, "reload of policies and trust bundles")

    def _sync_policies(self) -> None:
        if self._policy_sync.sync():
            # CSRs that wait for a policy or a revocation list can be decided now.
            self._queue.notify(None, None)

    def _share_clusters(self) -> None:
        while True:
            run_step(self._replicas.sync, "sharing of the Clusters")
            if self._leaving.wait(RENEW_SECONDS):
                break
        run_step(self._replicas.leave, "end of the Lease")

    def _write_reports(self) -> None:
        while not self._stop.wait(_REPORT_INTERVAL):
            self._reports.write()


def _now() -> datetime:
    return datetime.now(UTC)
