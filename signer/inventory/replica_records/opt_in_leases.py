"""When the signer first saw that a Cluster has opted in, as it wrote it down then.

A Node that is older may need the bindings with which kube-controller-manager approves client
certificates (R0). The time is in a Lease of the signer's own namespace. So neither the holder of a
bootstrap token nor a tenant can change it, and it is the same for all replicas and after a restart.
Source: docs/decisions/0061-opting-in-breaks-nothing.md.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from common.names import ANNOTATION_PREFIX
from signer.inventory.replica_records.cluster_leases import ClusterLeases, digest
from signer.kinds.cluster import ClusterKey
from signer.kube.leases import LeaseClient

_LABEL: Final = ANNOTATION_PREFIX + "opt-in"
"""On the Lease of each Cluster: a digest of its name."""
_SEEN: Final = ANNOTATION_PREFIX + "opt-in-seen"
"""On the same Lease: seconds since 1970, or `_COMPLETE`."""
_COMPLETE: Final = "complete"


class OptIns:
    """The opt-ins of all Clusters, for any number of threads.

    Only the replica that serves a Cluster writes its Lease.
    """

    def __init__(self, leases: LeaseClient) -> None:
        self._leases = ClusterLeases(leases, label=_LABEL, prefix="node-attestation-opt-in-")

    def note(self, cluster: ClusterKey, now: datetime) -> datetime | None:
        """Return when the opt-in of a Cluster was first seen; write `now` if that is now.

        `None` after `complete`. A Lease that cannot be read counts as a first time: then the
        bindings stay longer. Raises `ApiServerUnavailable`.
        """
        lease = self._leases.find(digest(cluster)).get(cluster)
        seen = "" if lease is None else lease.labels.get(_SEEN, "")
        if seen == _COMPLETE:
            return None
        if seen.isascii() and seen.isdecimal() and len(seen) <= len("9999999999"):
            return datetime.fromtimestamp(int(seen), UTC)
        self._write(cluster, str(int(now.timestamp())))
        return now

    def complete(self, cluster: ClusterKey) -> None:
        """Write that no Node from before the opt-in needs the bindings any more: this is final.

        Raises `ApiServerUnavailable`.
        """
        self._write(cluster, _COMPLETE)

    def delete_ended(self, has_ended: Callable[[ClusterKey], bool]) -> None:
        """Forget the opt-ins that have ended: the next one of the Cluster is a new one."""
        self._leases.delete(has_ended)

    def _write(self, cluster: ClusterKey, seen: str) -> None:
        self._leases.assign(cluster, {_LABEL: digest(cluster), _SEEN: seen})
