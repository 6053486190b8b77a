"""Makes the parts of the controller from its configuration, and connects them."""

import random
import secrets
import time
from datetime import UTC, datetime
from hashlib import sha256
from threading import Event
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
from signer.controller.metrics_access import MetricsAccess
from signer.controller.policy_sync import PolicySync
from signer.controller.rate_limit import ChallengeRateLimiter
from signer.controller.reconcile import Reconciler
from signer.controller.replicas import Replica, Replicas
from signer.controller.reports import Reports
from signer.controller.server_certificate import self_signed_context
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

_TASK_THREADS: Final = 16
"""For all workload clusters: their maintenance, their Secrets, and names of their API servers."""
_PLATFORM_THREADS: Final = 16
"""For the queries to platforms, of which four at most are to one account."""


class Components:
    """The parts of the controller; `Controller.run` starts their threads.

    Raises `OSError` when it is made and cannot listen on the address for metrics.
    """

    def __init__(self, config: Config, stop: Event, *, agent: str, host_name: str) -> None:
        api = ApiClient("management", config.management, user_agent=agent)
        self._config = config
        self.queue = WorkQueue(
            workers=WORKERS,
            max_workers_per_cluster=MAX_WORKERS_PER_CLUSTER,
            monotonic=time.monotonic,
            jitter=random.random,
        )
        self._budgets = Budgets()
        self.management = ManagementCluster(
            api,
            stop,
            self.queue.notify,
            budget=self._budgets.memory,
            infrastructure_groups=config.infrastructure_groups,
            namespace=config.watched_namespace,
            watch_policies=config.policy_file is None,
        )
        self.policy_sync = PolicySync(self.management, PolicyClient(api), config.policy_file)
        policies = self.policy_sync.active
        self.replicas = self._make_replicas(api, host_name)
        serves = self.replicas.serves
        claims = LimitedClaimStore(api, EndorsementKeyQuota(self.management))
        self.cleanup = ClaimCleanup(self.management, claims, serves=serves, now=_now)
        self.challenge_keys = ChallengeKeyStore(
            SecretClient(api), config.own_namespace, now=_now, random=secrets.token_bytes
        )
        authorities = ClusterAuthorities(
            SecretClient(api), policies.policy_of, monotonic=time.monotonic
        )
        self._rounds = WorkloadRounds(
            self.management, policies, authorities, claims, events=EventRecorder(api), now=_now
        )
        pool = TaskPool(_TASK_THREADS)
        self.clusters = self._make_clusters(api, agent, pool)
        self.maintenance = WorkloadMaintenance(
            pool,
            self._rounds.maintain,
            closed=lambda workload: self.queue.reset_circuit_breaker(workload.key),
            monotonic=time.monotonic,
        )
        self.reports = Reports(
            api,
            self.management,
            self.policy_sync,
            ClusterConnections(self.replicas, self.clusters, self._rounds),
            now=_now,
        )
        self.management.keys.add_event_handler(self._on_key_changed)
        self.workers = CsrWorkers(
            self.queue,
            self.management,
            self.clusters,
            Reconciler(self._make_dependencies(claims, authorities)),
        )
        self.http_server = self._make_http_server(api)

    def _settings(self) -> str:
        """Return a digest of what verdicts depend on and replicas may be started with."""
        groups = ",".join(sorted(self._config.infrastructure_groups))
        return sha256(f"{self.policy_sync.digest} {groups}".encode()).hexdigest()[:16]

    def _make_replicas(self, api: ApiClient, host_name: str) -> Replicas:
        name = f"{host_name}_{secrets.token_hex(8)}"
        return Replicas(
            LeaseClient(api, self._config.own_namespace),
            Replica(name=name, namespace=self._config.watched_namespace),
            settings=self._settings,
            ready=lambda: self.workers.are_alive() and self.management.has_synced(),
            connected=self._has_tried_all,
            now=_now,
            monotonic=time.monotonic,
        )

    def _has_tried_all(self) -> bool:
        return self.clusters.has_tried_all()

    def _make_clusters(self, api: ApiClient, agent: str, pool: TaskPool) -> WorkloadClusters:
        return WorkloadClusters(
            self.management,
            SecretClient(api),
            user_agent=agent,
            budgets=self._budgets,
            pool=pool,
            serves=self.replicas.serves,
            opened=self._on_cluster_added,
        )

    def _make_dependencies(
        self, claims: ClaimStore, authorities: ClusterAuthorities
    ) -> Dependencies:
        return Dependencies(
            policies=self.policy_sync.active,
            claims=claims,
            challenge_keys=self.challenge_keys,
            authorities=authorities,
            rate_limiter=ChallengeRateLimiter(time.monotonic),
            platforms=PlatformQueries(
                TaskPool(_PLATFORM_THREADS),
                platform_of,
                answered=lambda provider_id: self.queue.notify(None, provider_id),
                monotonic=time.monotonic,
            ),
            note_machine=self.reports.machines.note,
            note_key_request=self.reports.key_requests.note,
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
            lambda: self.policy_sync.active.bundles,
            self.queue.state,
            self._budgets.memory,
            self.reports.clusters.own,
            lambda: self.replicas.count,
        )
        app = build_app(
            registry,
            healthy=self.workers.are_alive,
            ready=lambda: self.management.has_synced() and self.replicas.has_joined,
            clusters=self._render_clusters,
            access=access,
        )
        return HttpServer(config.metrics_address, app, tls)

    def _render_clusters(self) -> bytes:
        reports = self.reports.clusters
        return render_reports(reports.own(), reports.others(), self._replica_name)

    def _replica_name(self, cluster: ClusterKey) -> str | None:
        replica = self.replicas.serving(cluster)
        return None if replica is None else replica.name

    def _on_cluster_added(self, workload: WorkloadCluster) -> None:
        """Connect the caches of a workload cluster with the queue."""
        self._rounds.add(workload)
        self.workers.add_cluster(workload)
        connect_caches(workload, self.queue)

    def _on_key_changed(
        self, _: str, before: EndorsementKeyObject | None, after: EndorsementKeyObject | None
    ) -> None:
        cluster = find_changed_list(before, after)
        workload = None if cluster is None else self.clusters.get(cluster)
        if workload is not None:
            workload.maintenance_due.set()


def _now() -> datetime:
    return datetime.now(UTC)
