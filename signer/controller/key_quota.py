"""Quota of EndorsementKey objects that claims create, for each namespace.

A user who may edit Machines can make any number of claims, one for each endorsement key. Each
claim creates a cluster-scoped object. Housekeeping deletes unclaimed keys only after a day.
"""

from datetime import datetime
from typing import Final

from signer.errors import EndorsementKeyQuotaExceeded
from signer.inventory.caches import ManagementCaches
from signer.inventory.claims import KubeClaimStore
from signer.kube.client import ApiClient
from signer.model import EndorsementKeyObject, KeyHolder

MIN_QUOTA: Final = 10_000
"""Keys that every namespace may claim; about 10 MB in etcd."""
KEYS_PER_MACHINE: Final = 4
"""In a larger namespace, for each Machine: clouds give each new Machine another TPM, and the key of
the last one stays until its certificate has expired."""


class EndorsementKeyQuota:
    """Counts the keys of a namespace from caches. Keys that an operator registered do not count."""

    def __init__(self, caches: ManagementCaches) -> None:
        self._caches = caches

    def verify_quota(self, namespace: str) -> None:
        """Return if the Clusters of a namespace may claim one more key.

        Raises:
            EndorsementKeyQuotaExceeded: they may not.
            ApiServerUnavailable: a cache is not filled yet.

        """
        claimed = len(self._caches.keys.by_index("claimed by namespace", namespace))
        if claimed >= MIN_QUOTA and claimed >= KEYS_PER_MACHINE * self._count_machines(namespace):
            raise EndorsementKeyQuotaExceeded(
                "too many endorsement keys were claimed", detail=f"{namespace} has {claimed}"
            )

    def _count_machines(self, namespace: str) -> int:
        machines = (m for m in self._caches.machines.all() if m.cluster.namespace == namespace)
        pools = (p for p in self._caches.pools.all() if p.cluster.namespace == namespace)
        return sum(1 for _ in machines) + sum(len(pool.provider_ids) for pool in pools)


class LimitedClaimStore(KubeClaimStore):
    """Claim store that verifies the quota before it creates an EndorsementKey."""

    def __init__(self, api: ApiClient, quota: EndorsementKeyQuota) -> None:
        super().__init__(api)
        self._quota = quota

    def create_endorsement_key(
        self, name: str, public_key_pem: str, held_by: KeyHolder, now: datetime
    ) -> EndorsementKeyObject:
        """Create the EndorsementKey, held by this node.

        Raises:
            EndorsementKeyQuotaExceeded: the namespace of the holder has too many.

        """
        self._quota.verify_quota(held_by.cluster.namespace)
        return super().create_endorsement_key(name, public_key_pem, held_by, now)
