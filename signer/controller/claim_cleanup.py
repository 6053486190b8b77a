"""Deletes claims and endorsement keys that nothing needs; the caches say which may be needed."""

from collections.abc import Callable
from datetime import datetime

from signer.controller.housekeeping import delete_stale_claims, delete_unclaimed_keys
from signer.inventory.caches import cluster_key
from signer.inventory.claims import KubeClaimStore
from signer.inventory.management import ManagementCluster
from signer.model import AttestedNodeObject, ClusterKey, EndorsementKeyObject


class ClaimCleanup:
    """Reads claims, keys and Machines from the caches, and deletes by the claim store."""

    def __init__(
        self,
        management: ManagementCluster,
        claims: KubeClaimStore,
        *,
        serves: Callable[[ClusterKey], bool],
        now: Callable[[], datetime],
    ) -> None:
        """Clean up after the Clusters that this replica `serves`, also those that are gone."""
        self._management = management
        self._serves = serves
        self._claims = claims
        self._now = now

    def delete_stale_claims(self) -> None:
        """Delete AttestedNodes without a Machine whose certificate expired a day ago."""
        nodes = [node for node in self._management.nodes.all() if self._serves(node.cluster)]
        delete_stale_claims(nodes, self._claims, is_live=self._is_live, now=self._now())

    def delete_unclaimed_keys(self) -> None:
        """Delete EndorsementKeys that no operator has written to and no AttestedNode names."""
        keys = [
            key
            for key in self._management.keys.all()
            if key.held_by is not None and self._serves(key.held_by.cluster)
        ]
        delete_unclaimed_keys(keys, self._claims, is_claimed=self._is_claimed, now=self._now())

    def _is_live(self, node: AttestedNodeObject) -> bool:
        """Return whether a claim's Machine is in the caches, or its Cluster is paused."""
        cluster = self._management.clusters.get(cluster_key(node.cluster))
        index_key = (node.cluster, node.provider_id)
        machines = self._management.machines.by_index("provider ID", index_key)
        pools = self._management.pools.by_index("provider ID", index_key)
        if node.machine_name:
            machines, pools = [m for m in machines if m.name == node.machine_name], ()
        return bool(machines or pools) or (cluster is not None and cluster.paused)

    def _is_claimed(self, key: EndorsementKeyObject) -> bool:
        """Return whether an AttestedNode in the caches names the key."""
        return bool(self._management.nodes.by_index("endorsement key", key.name))
