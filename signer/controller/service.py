"""The running signer: watches fill the queue, workers empty it, upkeep goes on beside them."""

import logging
import random
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Event, Thread
from typing import Final

from common.errors import AttestationError, Unavailable
from signer.config import Config
from signer.controller import metrics
from signer.controller.housekeeping import (
    delete_expired_offers,
    delete_stale_claims,
    enforce_auto_approve_policy,
)
from signer.controller.http_server import HttpServer, build_routes
from signer.controller.rate_limit import ChallengeRateLimiter
from signer.controller.reconcile import ClusterContext, Reconciler
from signer.controller.workqueue import DONE, RETRY, Item, Result, WorkQueue
from signer.inventory.challenge_keys import ChallengeKeyStore
from signer.inventory.claims import KubeClaimStore
from signer.inventory.lister import CachedInventory
from signer.inventory.management import ManagementCluster
from signer.inventory.workload import WorkloadCluster
from signer.inventory.workload_clusters import WorkloadClusters
from signer.issue.authority import ClusterAuthorities
from signer.kube.budget import MemoryBudget
from signer.kube.client import ApiClient
from signer.kube.secrets import SecretClient
from signer.model import AttestedNodeObject, Csr, Node
from signer.trust_bundles import TrustBundleFiles

_logger = logging.getLogger(__name__)

_WORKERS: Final = 32
_MAX_WORKERS_PER_CLUSTER: Final = 4
"""Workers that one cluster may hold up: each of its requests may take half a minute to fail. Seven
clusters that are away or hostile still leave some to the others."""
_TICK: Final = 1.0
_TRUST_BUNDLE_INTERVAL: Final = 1.0
_MAINTENANCE_INTERVAL: Final = 60.0
_MAINTENANCE_RETRY: Final = 5.0
_MIN_MAINTENANCE_INTERVAL: Final = 1.0
"""At least, between two rounds for a cluster: a hostile one may ask for the next all the time."""
_SHUTDOWN_GRACE: Final = 15.0
"""Seconds that looks in work are given at the end."""


class Controller:
    """All threads of the signer; making it raises OSError when there is no address for metrics."""

    def __init__(self, config: Config, *, agent: str) -> None:
        api = ApiClient("management", config.management, user_agent=agent)
        self._config = config
        self._anchors = TrustBundleFiles(config.policies.all(), config.anchors)
        self._stop = Event()
        self._queue = WorkQueue(
            per_cluster=_MAX_WORKERS_PER_CLUSTER, monotonic=time.monotonic, jitter=random.random
        )
        self._budget = MemoryBudget()
        self._management = ManagementCluster(
            api, self._stop, self._queue.notify, budget=self._budget
        )
        self._claims = KubeClaimStore(api)
        self._masters = ChallengeKeyStore(
            SecretClient(api), config.namespace, now=_now, random=secrets.token_bytes
        )
        self._clusters = WorkloadClusters(
            self._management,
            SecretClient(api),
            user_agent=agent,
            budget=self._budget,
            opened=self._on_cluster_added,
        )
        self._reconciler = Reconciler(
            policies=config.policies,
            anchors=self._anchors.current,
            claims=self._claims,
            challenge_keys=self._masters,
            authorities=ClusterAuthorities(SecretClient(api)),
            rate_limiter=ChallengeRateLimiter(time.monotonic),
            now=_now,
            monotonic=time.monotonic,
            random=secrets.token_bytes,
        )
        self._workers = [
            Thread(target=self._worker, name=f"worker {n}", daemon=True) for n in range(_WORKERS)
        ]
        self._observatory = self._observed_at(config.metrics_address)

    def run(self, stop: Event) -> None:
        """Work until told to stop; looks that are in work are finished."""
        if self._observatory is not None:
            self._observatory.start()
        self._management.start()
        for worker in self._workers:
            worker.start()
        Thread(target=self._maintain_management, name="upkeep", daemon=True).start()
        Thread(target=self._maintain_trust_bundles, name="trust anchors", daemon=True).start()
        Thread(target=self._sync_clusters, name="clusters", daemon=True).start()
        _logger.info("signer started")
        stop.wait()
        self._stop.set()
        self._clusters.stop()
        self._queue.shut_down()
        deadline = time.monotonic() + _SHUTDOWN_GRACE
        for worker in self._workers:
            worker.join(max(0.0, deadline - time.monotonic()))
        if self._observatory is not None:
            self._observatory.stop()
        _logger.info("signer stopped")

    def _observed_at(self, address: tuple[str, int] | None) -> HttpServer | None:
        if address is None:
            return None
        registry = metrics.build_registry(self._anchors)
        pages = build_routes(registry, healthy=self._healthy, ready=self._management.has_synced)
        return HttpServer(address, pages)

    def _healthy(self) -> bool:
        return all(worker.is_alive() for worker in self._workers)

    def _on_cluster_added(self, workload: WorkloadCluster) -> None:
        key = workload.key

        def csr_changed(_: str, before: Csr | None, after: Csr | None) -> None:
            if workload.stopped.is_set():
                return
            if after is not None:
                self._queue.add(Item(cluster=key, requester=after.username, name=after.name))
            elif before is not None:
                item = Item(cluster=key, requester=before.username, name=before.name)
                self._queue.forget(item)

        def node_changed(_: str, before: Node | None, after: Node | None) -> None:
            for node in (before, after):
                if node is not None:
                    self._queue.notify(key, node.name)
                    self._queue.notify(key, node.provider_id)

        def bindings_changed(_: str, _before: str | None, _after: str | None) -> None:
            self._queue.notify(key, None)
            workload.maintenance_due.set()

        workload.csrs.add_event_handler(csr_changed)
        workload.nodes.add_event_handler(node_changed)
        workload.bindings.add_event_handler(bindings_changed)
        name = f"upkeep {key.namespace}/{key.name}"
        Thread(target=self._maintain_workload, args=(workload,), name=name, daemon=True).start()

    def _worker(self) -> None:
        while (item := self._queue.get()) is not None:
            look = RETRY
            try:
                look = self._reconcile(item)
            except Unavailable:
                pass
            except Exception:
                _logger.exception("look failed", extra={"fields": {"csr": item.name}})
            finally:
                self._queue.done(item, look)

    def _reconcile(self, item: Item) -> Result:
        workload = self._clusters.get(item.cluster)
        csr = workload.csrs.get(item.name) if workload is not None else None
        if workload is None or csr is None or csr.username != item.requester:
            return DONE
        records = CachedInventory(self._management, workload)
        side = ClusterContext(key=item.cluster, records=records, csrs=workload.writer)
        return self._reconciler.reconcile(csr, side)

    def _maintain_workload(self, workload: WorkloadCluster) -> None:
        while not workload.stopped.is_set():
            done = _run_step(lambda: self._maintain_workload_once(workload), "upkeep of a cluster")
            workload.stopped.wait(_MIN_MAINTENANCE_INTERVAL)
            workload.maintenance_due.wait(_MAINTENANCE_INTERVAL if done else _MAINTENANCE_RETRY)
            workload.maintenance_due.clear()

    def _maintain_workload_once(self, workload: WorkloadCluster) -> None:
        workload.read_hosts()
        if workload.bindings.has_synced:
            policy = self._config.policies.for_cluster(workload.key)
            bindings = workload.bindings.all()
            enforce_auto_approve_policy(workload.key, bindings, policy, workload.remove_binding)
        if workload.csrs.has_synced:
            delete_expired_offers(workload.csrs.all(), workload.writer, _now())

    def _sync_clusters(self) -> None:
        while not self._stop.wait(_TICK):
            _run_step(self._clusters.sync, "tending clusters")

    def _maintain_trust_bundles(self) -> None:
        while not self._stop.wait(_TRUST_BUNDLE_INTERVAL):
            _run_step(self._reload_trust_bundles, "looking at trust anchors")

    def _reload_trust_bundles(self) -> None:
        if self._anchors.reload():
            # A revocation list may have been waited for.
            self._queue.notify(None, None)

    def _maintain_management(self) -> None:
        done = True
        while not self._stop.wait(_MAINTENANCE_INTERVAL if done else _MAINTENANCE_RETRY):
            done = _run_step(self._maintain_keys_and_claims, "upkeep")

    def _maintain_keys_and_claims(self) -> None:
        self._masters.rotate()
        delete_stale_claims(
            self._management.nodes.all(), self._claims, lives=self._is_live, now=_now()
        )

    def _is_live(self, node: AttestedNodeObject) -> bool:
        """Tell from caches that a claim need not be asked for: its Machine is there, or paused."""
        cluster = self._management.clusters.get(f"{node.cluster.namespace}/{node.cluster.name}")
        under = (node.cluster, node.provider_id)
        machines = self._management.machines.by_index("provider ID", under)
        pools = self._management.pools.by_index("provider ID", under)
        return bool(machines or pools) or (cluster is not None and cluster.paused)


def _now() -> datetime:
    return datetime.now(UTC)


def _run_step(step: Callable[[], None], what: str) -> bool:
    """Do a step that may fail without ending its thread; tell whether it was done."""
    try:
        step()
    except AttestationError as e:
        fields = {"step": what, "message": e.message, "detail": e.detail}
        _logger.warning("step not done", extra={"fields": fields})
    except Exception:
        _logger.exception("step failed", extra={"fields": {"step": what}})
    else:
        return True
    return False
