"""Whether a signer runs, and which Clusters it says that it serves.

The facts are the Leases of the replicas, in the signer's own namespace, and the status of the
KubeletAttestationPolicies. No tenant can write either. A replica renews its Lease every two
seconds, and deletes it when it ends or cannot serve. The clocks of the operator's machine and of
the signer may differ: a Lease with an old time counts as live if it changes while the command
watches.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from signer.errors import PolicyConflict, PolicyMissing
from signer.inventory.cluster_api.cluster import ClusterObject
from signer.inventory.custom_resources.policy_object import PolicyObject, StoredStates, read_policy
from signer.inventory.replica_records.replica_leases import (
    LEASE_SECONDS,
    NAMESPACE_LABEL,
    SETTINGS_LABEL,
)
from signer.kinds.policy import POLICIES
from signer.kinds.resources import LEASES
from signer.kube.leases import Lease, read_lease
from signer.operator_cli.errors import CommandError, Rejected
from signer.operator_cli.management.api import ManagementApi
from signer.policy.policy import PolicySet

NO_REPLICA: Final = "NoReplica"
"""State of a Cluster that no running replica of the signer is for."""
_WATCH_SECONDS: Final = 6.0
"""How long a command waits for the renewal of a Lease; a replica that runs renews it thrice."""
_POLL_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SignerState:
    """What the replicas of the signer in one namespace have written."""

    namespace: str
    leases: Sequence[Lease] = ()
    """Those of all replicas, also of replicas that ended without deleting theirs."""
    live: frozenset[str] = frozenset()
    """Names of the Leases whose replicas run."""
    policies: Sequence[PolicyObject] = ()
    problem: str = ""
    """Why Leases or policies cannot be read; then nothing is known."""

    @property
    def last_renewal(self) -> datetime | None:
        """Return the latest renewal of any Lease, by the clock of its replica."""
        return max(filter(None, map(_renewed, self.leases)), default=None)

    def has_replica(self, namespace: str = "") -> bool:
        """Return whether a replica runs that serves the Clusters of a namespace, or any at all."""
        watched = {e.labels.get(NAMESPACE_LABEL, "") for e in self.leases if e.name in self.live}
        return bool(watched & {"", namespace} if namespace else watched)

    def of_cluster(self, cluster: ClusterObject) -> Mapping[str, str]:
        """Return `state` and perhaps `message` of a Cluster, as the signer wrote them.

        Nothing is returned if they are not known: the signer has not written them yet.
        """
        if self.problem:
            return {}
        if not self.has_replica(cluster.key.namespace):
            return {"state": NO_REPLICA, "message": "no replica of the signer runs"}
        if self.policies and not any(policy.status for policy in self.policies):
            return {}
        every = PolicySet.of(policy.policy for policy in self.policies)
        names = {p.name for p in every.selecting(cluster.key, cluster.labels)}
        if len(names) != 1:
            reason = PolicyConflict.reason if names else PolicyMissing.reason
            return {
                "state": reason,
                "message": f"{len(names) or 'no'} policies are for the Cluster",
            }
        [policy] = [p for p in self.policies if p.name in names]
        return StoredStates(policy.status).get(cluster.key)


def read_signer_state(api: ManagementApi, namespace: str, now: datetime) -> SignerState:
    """Read Leases and policies. Wait some seconds for a renewal if no Lease looks renewed."""
    try:
        leases = _read_leases(api, namespace)
        live = {lease.name for lease in leases if _is_recent(lease, now)}
        if not any(e.name in live and not e.labels.get(NAMESPACE_LABEL) for e in leases):
            leases, renewed = _await_renewal(api, namespace, leases)
            live |= renewed
        policies = _read_policies(api)
    except CommandError as error:
        return SignerState(namespace=namespace, problem=error.message)
    return SignerState(namespace=namespace, leases=leases, live=frozenset(live), policies=policies)


def _read_leases(api: ManagementApi, namespace: str) -> Sequence[Lease]:
    path = LEASES.collection_path(namespace)
    return list(map(read_lease, api.list_objects(path, {"labelSelector": SETTINGS_LABEL})))


def _read_policies(api: ManagementApi) -> Sequence[PolicyObject]:
    """Return the policies; none if the CRD is missing."""
    try:
        return list(map(read_policy, api.list_objects(POLICIES.collection_path())))
    except Rejected:
        return ()


def _await_renewal(
    api: ManagementApi, namespace: str, leases: Iterable[Lease]
) -> tuple[Sequence[Lease], set[str]]:
    """Return the Leases and the names of those that were renewed or created meanwhile."""
    before = {lease.name: lease.renewed for lease in leases}
    deadline = time.monotonic() + _WATCH_SECONDS
    while True:
        present = _read_leases(api, namespace)
        renewed = {e.name for e in present if before.get(e.name) != e.renewed}
        if renewed or not present or time.monotonic() >= deadline:
            return present, renewed
        time.sleep(_POLL_SECONDS)


def _renewed(lease: Lease) -> datetime | None:
    try:
        return datetime.fromisoformat(lease.renewed)
    except ValueError:
        return None


def _is_recent(lease: Lease, now: datetime) -> bool:
    renewed = _renewed(lease)
    return renewed is not None and abs(now - renewed) < timedelta(seconds=LEASE_SECONDS)
