"""Which Cluster has which certificate authority, as all replicas of the signer wrote it (I1).

A replica reads the authorities of the Clusters that it serves. It writes the digest of each
authority's public key into a Lease of the Cluster. So each replica finds the Clusters of the others
that have the same key. A Lease with another key is overwritten. Source:
docs/decisions/0008-one-authority-one-cluster.md.
"""

from collections.abc import Callable
from typing import Final

from common.names import ANNOTATION_PREFIX
from signer.inventory.replica_records.cluster_leases import DIGITS, ClusterLeases
from signer.kinds.cluster import ClusterKey
from signer.kube.leases import LeaseClient

_LABEL: Final = ANNOTATION_PREFIX + "authority"
"""On the Lease of each Cluster: the digest of its authority's public key."""


class AuthorityLeases:
    """The Leases of all Clusters, for any number of threads."""

    def __init__(self, leases: LeaseClient) -> None:
        self._leases = ClusterLeases(leases, label=_LABEL, prefix="node-attestation-authority-")

    def clusters_with(self, spki_sha256: bytes) -> frozenset[ClusterKey]:
        """Return the Clusters whose authority has this public key, as their Leases say."""
        return frozenset(self._leases.find(_label_value(spki_sha256)))

    def assign(self, cluster: ClusterKey, spki_sha256: bytes) -> None:
        """Write which public key the authority of a Cluster has."""
        self._leases.assign(cluster, {_LABEL: _label_value(spki_sha256)})

    def delete_absent(self, is_absent: Callable[[ClusterKey], bool]) -> None:
        """Delete the Leases of Clusters that do not exist."""
        self._leases.delete(is_absent)


def _label_value(spki_sha256: bytes) -> str:
    return spki_sha256.hex()[:DIGITS]
