"""Why Clusters are not served: problems of their connections and of their maintenance."""

from dataclasses import dataclass
from datetime import datetime

from signer.clusters.connection_problem import ConnectionProblem
from signer.clusters.workload_clusters import WorkloadClusters
from signer.controller.maintenance.workload_rounds import WorkloadRounds
from signer.controller.replicas import Replicas
from signer.inventory.cluster_api.cluster import ClusterObject
from signer.model import ClusterKey


@dataclass(frozen=True, slots=True)
class ClusterConnections:
    """The connections of this replica, for the reports on the Clusters."""

    replicas: Replicas
    clusters: WorkloadClusters
    rounds: WorkloadRounds

    def serves(self, key: ClusterKey) -> bool:
        """Return whether this replica serves a Cluster."""
        return self.replicas.serves(key)

    def is_counting_replica(self) -> bool:
        """Return whether this replica counts the Clusters of each policy."""
        return self.replicas.is_counting_replica

    def opted_in_signers(self, cluster: ClusterObject) -> frozenset[str]:
        """Return the signer names that a Cluster has opted in to."""
        return self.clusters.opted_in_signers(cluster)

    def problem(self, key: ClusterKey) -> ConnectionProblem | None:
        """Return why a Cluster is not served."""
        workload = self.clusters.get(key)
        problem = None if workload is None else self.rounds.problem(workload)
        return self.clusters.problem(key) or problem

    def credential_expiry(self, key: ClusterKey) -> datetime | None:
        """Return when the signer's credential for a Cluster expires, if it is connected."""
        workload = self.clusters.get(key)
        return None if workload is None else workload.credential_expiry
