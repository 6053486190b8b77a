"""Limits of one requester and of one namespace, before the steps that cost something.

- A token bucket for each requester limits the rate of challenges. A challenge costs a
  MakeCredential and a write. An attacker with a stolen bootstrap token delays only the machines
  that share it.
- A share for each requester in the memory for pending CSRs: without it, one node could fill the
  cache of a workload cluster, and the signer would not read the requests of the other nodes. A
  requester above its share is denied until its pending requests fit again.
- A quota of EndorsementKey objects for each namespace: a user who may edit Machines can make any
  number of claims, and each claim creates a cluster-scoped object. Housekeeping deletes unclaimed
  keys only after a day.
"""

from collections import Counter
from collections.abc import Callable, Hashable
from datetime import datetime
from threading import Lock
from typing import Final

from common.names import NODE_USER_PREFIX
from signer.errors import EndorsementKeyQuotaExceeded, TooManyChallenges, TooManyPendingRequests
from signer.fairness.token_buckets import TokenBuckets
from signer.inventory.caches import ManagementCaches
from signer.inventory.custom_resources.claim_store import KubeClaimStore
from signer.kinds.csr import Csr
from signer.kinds.endorsement_key import EndorsementKeyObject, KeyHolder
from signer.kube.transport.client import ApiClient

QPS: Final = 20.0
BURST: Final = 100.0
"""Enough for a pool of a thousand machines that share one token: they join within a minute."""


class ChallengeRateLimiter:
    """Buckets of all requesters, for any number of threads."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._buckets = TokenBuckets(qps=QPS, burst=BURST, monotonic=monotonic)

    def acquire(self, requester: Hashable) -> None:
        """Take one token. Raises `TooManyChallenges`: the bucket is empty."""
        if not self._buckets.try_acquire(requester):
            raise TooManyChallenges("this requester gets challenges too fast")


MAX_BYTES_OF_NODE: Final = 3 << 20
"""A node has one or two pending requests: this is room for two answers with the largest event
log."""
MAX_BYTES: Final = 32 << 20
"""Of any other requester. A pool of machines may share one bootstrap token: this is room for about
four thousand offers that are pending together."""
_CSR_OVERHEAD: Final = 2048
"""Approximate bytes that a CSR uses in addition to its request and its annotations."""


class RequesterShares:
    """Bytes of pending CSRs by requester, for any number of threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._bytes: Counter[str] = Counter()

    def update(self, before: Csr | None, after: Csr | None) -> None:
        """Count a CSR: `before` is `None` when it was added, `after` when it was removed."""
        with self._lock:
            for csr, sign in ((before, -1), (after, 1)):
                if csr is not None:
                    self._bytes[csr.username] += sign * _size(csr)
                    if not self._bytes[csr.username]:
                        del self._bytes[csr.username]

    def verify_share(self, requester: str) -> None:
        """Return if the pending CSRs of a requester are within its share.

        Raises `TooManyPendingRequests`: they are not.
        """
        allowed = MAX_BYTES_OF_NODE if requester.startswith(NODE_USER_PREFIX) else MAX_BYTES
        with self._lock:
            pending = self._bytes[requester]
        if pending > allowed:
            raise TooManyPendingRequests(
                "this requester has too many pending requests",
                detail=f"{pending} bytes are pending, and {allowed} are allowed",
            )


def _size(csr: Csr) -> int:
    return _CSR_OVERHEAD + len(csr.request) + csr.annotations_size


MIN_QUOTA: Final = 10_000
"""Keys that every namespace may claim; about 10 MB in etcd."""
KEYS_PER_MACHINE: Final = 4
"""In a larger namespace, for each Machine: clouds give each new Machine another TPM, and the key of
the last one stays until its certificate has expired."""


class LimitedClaimStore(KubeClaimStore):
    """Claim store that verifies the quota before it creates an EndorsementKey.

    It counts the keys of a namespace from caches. Keys that an operator registered do not count.
    """

    def __init__(self, api: ApiClient, caches: ManagementCaches) -> None:
        super().__init__(api)
        self._caches = caches

    def create_endorsement_key(
        self, name: str, public_key_pem: str, held_by: KeyHolder, now: datetime
    ) -> EndorsementKeyObject:
        """Create the EndorsementKey, held by this node.

        Raises:
            EndorsementKeyQuotaExceeded: the namespace of the holder has too many.
            ApiServerUnavailable: a cache is not filled yet.

        """
        self._verify_quota(held_by.cluster.namespace)
        return super().create_endorsement_key(name, public_key_pem, held_by, now)

    def _verify_quota(self, namespace: str) -> None:
        claimed = len(self._caches.keys.by_index("claimed by namespace", namespace))
        if claimed >= MIN_QUOTA and claimed >= KEYS_PER_MACHINE * self._count_machines(namespace):
            raise EndorsementKeyQuotaExceeded(
                "too many endorsement keys were claimed", detail=f"{namespace} has {claimed}"
            )

    def _count_machines(self, namespace: str) -> int:
        machines = (m for m in self._caches.machines.all() if m.cluster.namespace == namespace)
        pools = (p for p in self._caches.pools.all() if p.cluster.namespace == namespace)
        return sum(1 for _ in machines) + sum(len(pool.provider_ids) for pool in pools)
