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
from signer.controller.housekeeping import remove_dead_claims, remove_old_offers, tend_bindings
from signer.controller.http_server import Observatory, pages_of
from signer.controller.rate_limit import ChallengeRate
from signer.controller.reconcile import ClusterSide, Reconciler
from signer.controller.workqueue import DONE, RETRY, Item, Look, WorkQueue
from signer.inventory.challenge_keys import MasterKeys
from signer.inventory.claims import LiveClaims
from signer.inventory.lister import ClusterRecords
from signer.inventory.management import Management
from signer.inventory.workload import Workload
from signer.inventory.workload_clusters import Clusters
from signer.issue.authority import Authorities
from signer.kube.client import Api
from signer.kube.secrets import Secrets
from signer.model import AttestedNodeObject, Csr, Node
from signer.trust_bundles import AnchorFiles

_logger = logging.getLogger(__name__)

_WORKERS: Final = 32
_PER_CLUSTER: Final = 4
"""Workers that one cluster may hold up: each of its requests may take half a minute to fail. Seven
clusters that are away or hostile still leave some to the others."""
_TICK: Final = 1.0
_LOOK_AT_FILES: Final = 1.0
_UPKEEP: Final = 60.0
_UPKEEP_RETRY: Final = 5.0
_UPKEEP_REST: Final = 1.0
"""At least, between two rounds for a cluster: a hostile one may ask for the next all the time."""
_LAST_LOOKS: Final = 15.0
"""Seconds that looks in work are given at the end."""


class Service:
    """All threads of the signer; making it raises OSError when there is no address for metrics."""

    def __init__(self, config: Config, *, agent: str) -> None:
        api = Api("management", config.management, user_agent=agent)
        self._config = config
        self._anchors = AnchorFiles(config.policies.all(), config.anchors)
        self._stop = Event()
        self._queue = WorkQueue(
            per_cluster=_PER_CLUSTER, monotonic=time.monotonic, jitter=random.random
        )
        self._management = Management(api, self._stop, self._queue.wake)
        self._claims = LiveClaims(api)
        self._masters = MasterKeys(
            Secrets(api), config.namespace, now=_now, random=secrets.token_bytes
        )
        self._clusters = Clusters(
            self._management,
            Secrets(api),
            agent=agent,
            opened=self._opened,
            monotonic=time.monotonic,
        )
        self._reconciler = Reconciler(
            policies=config.policies,
            anchors=self._anchors.current,
            claims=self._claims,
            masters=self._masters,
            authorities=Authorities(Secrets(api)),
            rate=ChallengeRate(time.monotonic),
            now=_now,
            monotonic=time.monotonic,
            random=secrets.token_bytes,
        )
        self._workers = [
            Thread(target=self._work, name=f"worker {n}", daemon=True) for n in range(_WORKERS)
        ]
        self._observatory = self._observed_at(config.metrics_address)

    def run(self, stop: Event) -> None:
        """Work until told to stop; looks that are in work are finished."""
        if self._observatory is not None:
            self._observatory.start()
        self._management.start()
        for worker in self._workers:
            worker.start()
        Thread(target=self._tend_management, name="upkeep", daemon=True).start()
        Thread(target=self._tend_anchors, name="trust anchors", daemon=True).start()
        Thread(target=self._tend_clusters, name="clusters", daemon=True).start()
        _logger.info("signer started")
        stop.wait()
        self._stop.set()
        self._clusters.stop()
        self._queue.close()
        deadline = time.monotonic() + _LAST_LOOKS
        for worker in self._workers:
            worker.join(max(0.0, deadline - time.monotonic()))
        if self._observatory is not None:
            self._observatory.stop()
        _logger.info("signer stopped")

    def _observed_at(self, address: tuple[str, int] | None) -> Observatory | None:
        if address is None:
            return None
        registry = metrics.registry(self._anchors)
        pages = pages_of(registry, healthy=self._healthy, ready=self._management.filled)
        return Observatory(address, pages)

    def _healthy(self) -> bool:
        return all(worker.is_alive() for worker in self._workers)

    def _opened(self, workload: Workload) -> None:
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
                    self._queue.wake(key, node.name)
                    self._queue.wake(key, node.provider_id)

        def bindings_changed(_: str, _before: str | None, _after: str | None) -> None:
            self._queue.wake(key, None)
            workload.attend.set()

        workload.csrs.listen(csr_changed)
        workload.nodes.listen(node_changed)
        workload.bindings.listen(bindings_changed)
        name = f"upkeep {key.namespace}/{key.name}"
        Thread(target=self._tend_workload, args=(workload,), name=name, daemon=True).start()

    def _work(self) -> None:
        while (item := self._queue.take()) is not None:
            look = RETRY
            try:
                look = self._look(item)
            except Unavailable:
                pass
            except Exception:
                _logger.exception("look failed", extra={"fields": {"csr": item.name}})
            finally:
                self._queue.done(item, look)

    def _look(self, item: Item) -> Look:
        workload = self._clusters.open(item.cluster)
        csr = workload.csrs.get(item.name) if workload is not None else None
        if workload is None or csr is None or csr.username != item.requester:
            return DONE
        records = ClusterRecords(self._management, workload)
        side = ClusterSide(key=item.cluster, records=records, csrs=workload.writer)
        return self._reconciler.look(csr, side)

    def _tend_workload(self, workload: Workload) -> None:
        while not workload.stopped.is_set():
            done = _guarded(lambda: self._tend_once(workload), "upkeep of a cluster")
            workload.stopped.wait(_UPKEEP_REST)
            workload.attend.wait(_UPKEEP if done else _UPKEEP_RETRY)
            workload.attend.clear()

    def _tend_once(self, workload: Workload) -> None:
        workload.read_hosts()
        if workload.bindings.filled:
            policy = self._config.policies.for_cluster(workload.key)
            bindings = workload.bindings.all()
            tend_bindings(workload.key, bindings, policy, workload.remove_binding)
        if workload.csrs.filled:
            remove_old_offers(workload.csrs.all(), workload.writer, _now())

    def _tend_clusters(self) -> None:
        while not self._stop.wait(_TICK):
            _guarded(self._clusters.tend, "tending clusters")

    def _tend_anchors(self) -> None:
        while not self._stop.wait(_LOOK_AT_FILES):
            _guarded(self._look_at_anchors, "looking at trust anchors")

    def _look_at_anchors(self) -> None:
        if self._anchors.tend():
            # A revocation list may have been waited for.
            self._queue.wake(None, None)

    def _tend_management(self) -> None:
        done = True
        while not self._stop.wait(_UPKEEP if done else _UPKEEP_RETRY):
            done = _guarded(self._tend_keys_and_claims, "upkeep")

    def _tend_keys_and_claims(self) -> None:
        self._masters.tend()
        remove_dead_claims(
            self._management.nodes.all(), self._claims, lives=self._lives, now=_now()
        )

    def _lives(self, node: AttestedNodeObject) -> bool:
        """Tell from caches that a claim need not be asked for: its Machine is there, or paused."""
        cluster = self._management.clusters.get(f"{node.cluster.namespace}/{node.cluster.name}")
        under = (node.cluster, node.provider_id)
        machines = self._management.machines.by("provider ID", under)
        pools = self._management.pools.by("provider ID", under)
        return bool(machines or pools) or (cluster is not None and cluster.paused)


def _now() -> datetime:
    return datetime.now(UTC)


def _guarded(step: Callable[[], None], what: str) -> bool:
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
