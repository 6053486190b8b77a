"""Makes the parts of the controller from its configuration, and connects them."""

import random
import secrets
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from threading import Event
from typing import Final

from signer.clusters.connection_problem import ConnectionProblem
from signer.clusters.management_cluster import ManagementCluster
from signer.clusters.workload_cluster import WorkloadCluster
from signer.clusters.workload_clusters import WorkloadClusters
from signer.controller.clock_skew import ClockSkew
from signer.controller.live_leases import RENEW_DEADLINE
from signer.controller.maintenance.binding_removal import BindingRemoval
from signer.controller.maintenance.ended_sync import clusters_of_changed_key
from signer.controller.maintenance.management_rounds import Cleanup
from signer.controller.maintenance.markers import Markers
from signer.controller.maintenance.schedule import WorkloadMaintenance
from signer.controller.maintenance.workload_rounds import WorkloadRounds
from signer.controller.observability import metrics
from signer.controller.observability.http_server import (
    METRICS_PATH,
    HttpServer,
    build_app,
    self_signed_context,
)
from signer.controller.observability.metrics_access import MetricsAccess
from signer.controller.policies.sync import PolicySync
from signer.controller.queue.workqueue import WorkQueue
from signer.controller.reconcile.authorities import ClusterAuthorities
from signer.controller.reconcile.dependencies import Dependencies
from signer.controller.reconcile.limits import (
    ChallengeRateLimiter,
    LimitedClaimStore,
)
from signer.controller.reconcile.reconciler import CsrReconciler
from signer.controller.replicas import Replica, Replicas
from signer.controller.reports.cluster_events import Connections
from signer.controller.reports.cluster_state import render_reports
from signer.controller.reports.reports import Reports
from signer.controller.steps import Step, Steps
from signer.controller.threads import Contact, Health, SharedWaits
from signer.controller.workers import MAX_WORKERS_PER_CLUSTER, WORKERS, CsrWorkers, connect_caches
from signer.fairness.compute_line import ComputeLine
from signer.fairness.memory_budget import Budgets
from signer.fairness.task_pool import TaskPool
from signer.inventory.cluster_api.cluster_status import ClusterStatusClient
from signer.inventory.custom_resources.default_policy import DefaultPolicy
from signer.inventory.replica_records.authority_leases import AuthorityLeases
from signer.inventory.replica_records.challenge_keys import ChallengeKeyStore
from signer.inventory.replica_records.opt_in_leases import OptIns
from signer.kinds.cluster import ClusterKey
from signer.kinds.endorsement_key import EndorsementKeyObject
from signer.kube.events import EventRecorder
from signer.kube.leases import LeaseClient
from signer.kube.secrets import SecretClient
from signer.kube.transport.client import ApiClient
from signer.kube.unreadable import UnreadableObject
from signer.logs import LogWriter
from signer.platforms.queries import PlatformQueries
from signer.platforms.registry import platform_of
from signer.seams import ClaimStore
from signer.settings.config import Config

_COMPUTE_PLACES: Final = 2
"""Threads of workload clusters that compute at a time: one that is costly does not stop the others,
and the workers have to wait for two at most."""
_PLATFORM_THREADS: Final = 16
"""For the queries to platforms, of which four at most are to one account."""


def _make_queue() -> WorkQueue:
    return WorkQueue(
        workers=WORKERS,
        max_workers_per_cluster=MAX_WORKERS_PER_CLUSTER,
        monotonic=time.monotonic,
        jitter=random.random,
        waited=metrics.QUEUE_SECONDS.observe,
    )


class ControllerParts:
    """The parts of the controller; `Controller.run` starts their threads.

    Raises `OSError` when it is made and cannot listen on the address for metrics.
    """

    def __init__(
        self, config: Config, log: LogWriter, stop: Event, *, agent: str, host_name: str
    ) -> None:
        self.clock_skew = ClockSkew()
        api = ApiClient("management", config.management, user_agent=agent)
        lease_api = ApiClient(
            "management",
            config.management,
            user_agent=agent,
            observe_date=self.clock_skew.observe,
            answer_seconds=RENEW_DEADLINE,
        )
        self._contact = Contact(lambda: max(api.succeeded_at, lease_api.succeeded_at))
        self._config = config
        self._log = log
        self._version = agent.rpartition("/")[2]
        self.queue = _make_queue()
        self._budgets = Budgets()
        self.management = self._make_management(api, stop)
        self.policy_sync = PolicySync(self.management)
        self.steps = Steps(lambda: self.clock_skew.is_trusted)
        self.replicas = self._make_replicas(lease_api, host_name)
        claims = LimitedClaimStore(api, self.management)
        leases = LeaseClient(api, config.own_namespace)
        authority_leases, opt_ins = AuthorityLeases(leases), OptIns(leases)
        self.cleanup = self._make_cleanup(claims, authority_leases, opt_ins)
        self.default_policy = self._make_default_policy(api, leases)
        self._bindings = self._make_bindings(api, opt_ins)
        self.challenge_keys = ChallengeKeyStore(
            SecretClient(api), config.own_namespace, now=_now, random=secrets.token_bytes
        )
        authorities = self._make_authorities(api, authority_leases)
        self.markers = Markers(self.management, _now, time.monotonic)
        self._rounds = self._make_rounds(api, authorities, claims)
        self.line = ComputeLine(_COMPUTE_PLACES)
        self._platform_threads = TaskPool(_PLATFORM_THREADS)
        self.clusters = self._make_clusters(api, agent)
        self.maintenance = self._make_maintenance()
        self.reports = self._make_reports(api)
        self.management.keys.add_event_handler(self._on_key_changed)
        self.workers = self._make_workers(claims, authorities)
        self.health = self._make_health(stop)
        self.waits = self._make_waits()
        self.http_server = self._make_http_server(api)

    def _make_management(self, api: ApiClient, stop: Event) -> ManagementCluster:
        return ManagementCluster(
            api,
            stop,
            self.queue.notify,
            budgets=self._budgets,
            infrastructure_groups=self._config.infrastructure_groups,
            namespace=self._config.watched_namespace,
        )

    def _make_default_policy(self, api: ApiClient, leases: LeaseClient) -> DefaultPolicy | None:
        if not self._config.create_default_policy:
            return None
        return DefaultPolicy(api, leases, self._has_policies)

    def _make_bindings(self, api: ApiClient, opt_ins: OptIns) -> BindingRemoval:
        return BindingRemoval(
            self.management,
            opt_ins,
            ClusterStatusClient(api),
            self.policy_sync.active.policy_of,
            changed=lambda key: self.queue.notify(key, None),
            now=_now,
        )

    def _make_cleanup(
        self, claims: LimitedClaimStore, authority_leases: AuthorityLeases, opt_ins: OptIns
    ) -> Cleanup:
        return Cleanup(
            self.management,
            claims,
            authority_leases,
            opt_ins,
            serves=self.replicas.serves,
            now=_now,
        )

    def _make_authorities(self, api: ApiClient, leases: AuthorityLeases) -> ClusterAuthorities:
        return ClusterAuthorities(
            SecretClient(api), leases, self.policy_sync.active.policy_of, monotonic=time.monotonic
        )

    def _make_rounds(
        self, api: ApiClient, authorities: ClusterAuthorities, claims: LimitedClaimStore
    ) -> WorkloadRounds:
        return WorkloadRounds(
            self.steps,
            self.management,
            self.policy_sync.active,
            authorities,
            claims,
            bindings=self._bindings,
            events=EventRecorder(api),
            markers=self.markers,
            now=_now,
        )

    def _make_reports(self, api: ApiClient) -> Reports:
        return Reports(
            self.steps,
            api,
            self.management,
            self.policy_sync,
            Connections(
                serves=self.replicas.serves,
                is_counting_replica=lambda: self.replicas.is_counting_replica,
                opted_in_signers=self.clusters.opted_in_signers,
                problem=self._problem,
                credential_expiry=self.clusters.credential_expiry,
                unreadable=self._unreadable_objects,
            ),
            now=_now,
        )

    def _unreadable_objects(self) -> Iterator[UnreadableObject]:
        """Yield the objects of all API servers that cannot be read."""
        for plural, each in self.management.unreadable():
            yield UnreadableObject(each.key.rpartition("/")[0], "", plural, each)
        for workload in self.clusters.open_clusters():
            for plural, each in workload.unreadable():
                yield UnreadableObject(workload.key.namespace, str(workload.key), plural, each)

    def _make_maintenance(self) -> WorkloadMaintenance:
        return WorkloadMaintenance(
            self.line,
            self._rounds.maintain,
            closed=lambda workload: self.queue.reset_circuit_breaker(workload.key),
            monotonic=time.monotonic,
        )

    def _has_policies(self) -> bool | None:
        policies = self.management.policies
        return bool(policies.all()) if policies.has_synced else None

    def _settings(self) -> str:
        """Return a digest of what verdicts depend on and replicas may be started with."""
        groups = ",".join(sorted(self._config.infrastructure_groups))
        return sha256(groups.encode()).hexdigest()[:16]

    def _can_serve(self) -> bool:
        """Return whether this replica may serve Clusters if others can do it, too."""
        return (
            self.health.is_good()
            and self._contact.is_good()
            and self.management.has_synced_once()
            and self.clock_skew.is_trusted
        )

    def _is_ready(self) -> bool:
        """Return whether this replica serves its share of the Clusters, and can decide.

        No task may wait for long for what tenants share. A replica that cannot decide keeps its
        Lease, by which it notices a restore.
        """
        return (
            self._can_serve()
            and self.replicas.has_share_of_clusters
            and self.management.problem() is None
            and self.waits.are_short()
        )

    def _problem(self, key: ClusterKey) -> ConnectionProblem | None:
        """Return why a Cluster is not served: its connection, its maintenance, or our caches."""
        workload = self.clusters.get(key)
        problem = None if workload is None else self._rounds.problem(workload)
        return self.clusters.problem(key) or problem or self.management.problem()

    def _make_health(self, stop: Event) -> Health:
        health = Health(stop)
        health.add("log", self._log.is_healthy)
        health.add("workers", self.workers.are_healthy)
        health.add("watches of the management cluster", self.management.is_watching)
        health.add("watches of workload clusters", self.clusters.is_watching)
        return health

    def _make_waits(self) -> SharedWaits:
        return SharedWaits(
            {
                "worker": self.queue.longest_wait,
                "platform thread": self._platform_threads.longest_wait,
                "turn of workload clusters": self.line.longest_wait,
                "turn of the management cluster": self.management.line.longest_wait,
            }
        )

    def _make_replicas(self, api: ApiClient, host_name: str) -> Replicas:
        name = f"{host_name}_{secrets.token_hex(8)}"
        return Replicas(
            LeaseClient(api, self._config.own_namespace),
            Replica(name=name, namespace=self._config.watched_namespace),
            settings=self._settings,
            ready=self._can_serve,
            connected=self._has_tried_all,
            state=self.management.state,
            restored=self.management.list_again,
            now=_now,
            monotonic=time.monotonic,
        )

    def _has_tried_all(self) -> bool:
        return self.clusters.has_tried_all()

    def _make_clusters(self, api: ApiClient, agent: str) -> WorkloadClusters:
        return WorkloadClusters(
            self.management,
            SecretClient(api),
            user_agent=agent,
            budgets=self._budgets,
            line=self.line,
            serves=self.replicas.serves,
            connecting=self._note_opt_in,
            opened=self._on_cluster_added,
        )

    def _make_workers(self, claims: ClaimStore, authorities: ClusterAuthorities) -> CsrWorkers:
        return CsrWorkers(
            self.queue,
            self.management,
            self.clusters,
            CsrReconciler(self._make_dependencies(claims, authorities)),
            monotonic=time.monotonic,
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
                self._platform_threads,
                platform_of,
                answered=lambda provider_id: self.queue.notify(None, provider_id),
                replicas=lambda: self.replicas.count,
                monotonic=time.monotonic,
            ),
            enqueue_condition=self.reports.machines.note,
            enqueue_refusal=self.reports.refusals.note,
            enqueue_key_request=self.reports.key_requests.note,
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
            lambda: self.reports.clusters.own,
            version=self._version,
            ready=self._is_ready,
            policies=self.policy_sync.states,
            nodes=lambda: self.reports.nodes,
            replicas=lambda: self.replicas.count,
            clock_skew=lambda: self.clock_skew.seconds,
            lost_lines=self._log.lost,
            waits=self.waits.seconds,
            unreadable=lambda: self.reports.unreadable.counts,
            failing_kinds=self.management.failing_seconds,
        )
        app = build_app(
            registry,
            healthy=self.health.is_good,
            ready=self._is_ready,
            clusters=self._render_clusters,
            access=access,
        )
        return HttpServer(config.metrics_address, app, tls)

    def _render_clusters(self) -> bytes:
        reports = self.reports.clusters
        return render_reports(reports.own, reports.others, self._replica_name)

    def _replica_name(self, cluster: ClusterKey) -> str | None:
        replica = self.replicas.serving(cluster)
        return None if replica is None else replica.name

    def _note_opt_in(self, key: ClusterKey) -> None:
        self.steps.call(Step.NOTE_OPT_IN, partial(self._bindings.note_opt_in, key))

    def _on_cluster_added(self, workload: WorkloadCluster) -> None:
        """Connect the caches of a workload cluster with the queue."""
        self._rounds.add(workload)
        self.workers.add_cluster(workload)
        connect_caches(workload, self.queue)

    def _on_key_changed(
        self, _: str, before: EndorsementKeyObject | None, after: EndorsementKeyObject | None
    ) -> None:
        for cluster in clusters_of_changed_key(before, after):
            workload = self.clusters.get(cluster)
            if workload is not None:
                workload.ended.note_change()
                workload.maintenance_due.set()


def _now() -> datetime:
    return datetime.now(UTC)
