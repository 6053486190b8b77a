"""The open workload clusters: opted-in Clusters, connected to by their kubeconfig Secrets.

The signer never connects to a Cluster that has not opted in, nor to one that another replica
serves. The Secret of each is read, and its connection opened, on a thread of its own: one that is
refused, or takes long to read, delays no other Cluster.
"""

import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from threading import Thread
from typing import Final

from common.errors import ApiServerUnavailable
from common.names import CLIENT_SIGNER
from signer.clusters.cluster_connector import ClusterConnector
from signer.clusters.connection_problem import CONNECTING, ConnectionProblem
from signer.clusters.management_cluster import ManagementCluster
from signer.clusters.workload_cluster import WorkloadCluster
from signer.fairness.compute_line import ComputeLine
from signer.fairness.memory_budget import Budgets
from signer.inventory.cached_inventory import infrastructure_signer
from signer.inventory.cluster_api.cluster import ClusterObject, client_signers
from signer.kinds.cluster import ClusterKey
from signer.kube.secrets import SecretClient

_logger = logging.getLogger(__name__)

_MAX_CLUSTERS: Final = 500
"""Clusters of one tenant (namespace). Each has three connections, and the number of open files
is limited."""
_OPENED_PER_SECOND: Final = 250
"""Clusters whose Secrets are read at the start of a replica, so that the management cluster does
not get hundreds of requests at once."""
_UNKNOWN: Final = datetime.max.replace(tzinfo=UTC)
"""Sorts a Cluster without a creation time last."""
_TOO_MANY: Final = ConnectionProblem(
    reason="TooManyClusters",
    message=f"the signer serves {_MAX_CLUSTERS} Clusters of one namespace at most: use others too",
)


class WorkloadClusters:
    """The open workload clusters; `sync` and `stop` are for one thread, `get` for any."""

    def __init__(  # noqa: PLR0913 - the last seven are options
        self,
        management: ManagementCluster,
        secrets: SecretClient,
        *,
        user_agent: str,
        budgets: Budgets,
        line: ComputeLine,
        serves: Callable[[ClusterKey], bool],
        connecting: Callable[[ClusterKey], None],
        opened: Callable[[WorkloadCluster], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open the Clusters that this replica `serves`.

        Call `connecting` with a Cluster before each attempt to read its Secret, and `opened` with
        each workload cluster before its watches start. Each has threads of its own, which
        compute in the order of `line`.
        """
        self._management = management
        self._line = line
        self._serves = serves
        self._connector = partial(
            ClusterConnector,
            secrets=secrets,
            user_agent=user_agent,
            budgets=budgets,
            line=line,
            connecting=connecting,
            opened=opened,
            monotonic=monotonic,
        )
        self._refreshing: dict[ClusterConnector, Thread] = {}
        self._connectors: dict[ClusterKey, ClusterConnector] = {}
        self._over_limit: frozenset[str] = frozenset()
        """Tenants with more opted-in Clusters than are served."""

    def get(self, key: ClusterKey) -> WorkloadCluster | None:
        """Return an open workload cluster."""
        connector = self._connectors.get(key)
        return connector.workload if connector else None

    def credential_expiry(self, key: ClusterKey) -> datetime | None:
        """Return when the signer's credential for a Cluster expires, if it is connected."""
        workload = self.get(key)
        return None if workload is None else workload.credential_expiry

    def problem(self, key: ClusterKey) -> ConnectionProblem | None:
        """Return why an opted-in Cluster is not served now, `None` if it is."""
        connector = self._connectors.get(key)
        if connector is not None:
            return connector.problem()
        return _TOO_MANY if key.namespace in self._over_limit else CONNECTING

    def is_watching(self) -> bool:
        """Return whether the threads of the watches make progress, and none has been lost."""
        return self._line.is_moving() and all(w.is_watching for w in self.open_clusters())

    def open_clusters(self) -> Sequence[WorkloadCluster]:
        """Return the open workload clusters."""
        connectors = tuple(self._connectors.values())
        return [c.workload for c in connectors if c.workload is not None]

    def has_tried_all(self) -> bool:
        """Return whether each Cluster that this replica serves is connected, or has a problem."""
        if not self._management.clusters.has_synced:
            return False
        return all(self.problem(c.key) is not CONNECTING for c in self._clusters_to_serve())

    def sync(self) -> None:
        """Make a connector for each opted-in Cluster of this replica; stop those of all others.

        Start the reads of the Secrets that are due, and close the connections that are idle. Until
        the objects of the management cluster have been listed, nothing is opened: no request could
        be verified, and the connections would take CPU time from the lists.
        """
        if not self._management.has_synced():
            return
        opted_in = {cluster.key: cluster for cluster in self._clusters_to_serve()}
        for key, connector in tuple(self._connectors.items()):
            cluster = opted_in.get(key)
            if cluster is None or cluster.uid != connector.cluster.uid:
                del self._connectors[key]
                connector.stop()
            else:
                connector.update(cluster)
        self._start_new(opted_in)
        self._refresh_due()
        for workload in self.open_clusters():
            workload.close_idle_connections()

    def stop(self) -> None:
        """Close every workload cluster."""
        while self._connectors:
            _, connector = self._connectors.popitem()
            connector.stop()

    def opted_in_signers(self, cluster: ClusterObject) -> frozenset[str]:
        """Return the client signers of a Cluster.

        Raises `ApiServerUnavailable` while its infrastructure cluster is not known.
        """
        return client_signers(cluster, infrastructure_signer(cluster, self._management))

    def _clusters_to_serve(self) -> Iterator[ClusterObject]:
        for cluster in self._management.clusters.all():
            if self._serves(cluster.key) and self._has_opted_in(cluster):
                yield cluster

    def _has_opted_in(self, cluster: ClusterObject) -> bool:
        """Return whether the Cluster has opted in; a Cluster stays open while that is unknown."""
        try:
            return CLIENT_SIGNER in self.opted_in_signers(cluster)
        except ApiServerUnavailable:
            return cluster.key in self._connectors

    def _start_new(self, opted_in: Mapping[ClusterKey, ClusterObject]) -> None:
        """Make connectors, the oldest Clusters' first, up to the limit of each tenant."""
        served = Counter(key.namespace for key in self._connectors)
        over_limit = set()
        new = [cluster for key, cluster in opted_in.items() if key not in self._connectors]
        for cluster in sorted(new, key=lambda cluster: cluster.created or _UNKNOWN):
            tenant = cluster.key.namespace
            if served[tenant] < _MAX_CLUSTERS:
                connector = self._connectors[cluster.key] = self._connector(cluster)
                connector.jitter = random.random() * len(new) / _OPENED_PER_SECOND  # noqa: S311 # spreads load
                served[tenant] += 1
            else:
                over_limit.add(tenant)
        for tenant in over_limit - self._over_limit:
            fields = {"namespace": tenant, "served": _MAX_CLUSTERS, "alarm": True}
            _logger.warning("too many Clusters have opted in", extra={"fields": fields})
        self._over_limit = frozenset(over_limit)

    def _refresh_due(self) -> None:
        """Start the refreshes that are due, one at a time for each connector."""
        self._refreshing = {c: t for c, t in self._refreshing.items() if t.is_alive()}
        for key, connector in tuple(self._connectors.items()):
            if connector.is_due and connector not in self._refreshing:
                name = f"{key} Secret"
                self._refreshing[connector] = self._line.start(name, connector.refresh)
