"""Leases that say one thing about each Cluster, in the signer's own namespace.

No tenant can write there. Each Cluster has one Lease of a kind, whatever its tenant does.
"""

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Final

from signer.kinds.cluster import ClusterKey
from signer.kube.leases import Lease, LeaseClient

DIGITS: Final = 40
"""Hex digits of a digest. The value of a label has at most 63 characters."""


class ClusterLeases:
    """The Leases of one kind, for any number of threads."""

    def __init__(self, leases: LeaseClient, *, label: str, prefix: str) -> None:
        """Each Lease has `label`; its name begins with `prefix`."""
        self._leases = leases
        self._label = label
        self._prefix = prefix

    def find(self, value: str) -> Mapping[ClusterKey, Lease]:
        """Return the Leases whose label has this value, by their Clusters."""
        return self._read(f"{self._label}={value}")

    def assign(self, cluster: ClusterKey, labels: Mapping[str, str]) -> None:
        """Write the Lease of a Cluster."""
        self._leases.assign(self._name(cluster), holder=str(cluster), labels=labels)

    def delete(self, is_ended: Callable[[ClusterKey], bool]) -> None:
        """Delete the Leases of those Clusters that need none."""
        for cluster, lease in self._read(self._label).items():
            if is_ended(cluster):
                self._leases.delete_unchanged(lease)

    def _read(self, selector: str) -> Mapping[ClusterKey, Lease]:
        """Return what the signer wrote; a Lease with another name is someone else's."""
        found = {}
        for lease in self._leases.all(selector):
            namespace, _, name = lease.holder.partition("/")
            cluster = ClusterKey(namespace=namespace, name=name)
            if lease.name == self._name(cluster):
                found[cluster] = lease
        return found

    def _name(self, cluster: ClusterKey) -> str:
        return self._prefix + digest(cluster)


def digest(cluster: ClusterKey) -> str:
    """Return a digest of the Cluster's namespace and name, for names and labels."""
    return sha256(str(cluster).encode()).hexdigest()[:DIGITS]
