"""A Cluster of Cluster API, as the checks need it."""

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network
from typing import Final

from signer.host_names import HostName
from signer.kinds.resources import CAPI

CLUSTER_NAME_LABEL: Final = f"{CAPI}/cluster-name"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterKey:
    """Identifies a Cluster of the management cluster."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return `namespace/name`, as users write it and as the caches of Clusters are keyed."""
        return f"{self.namespace}/{self.name}"

    def log_fields(self) -> dict[str, object]:
        """Return the fields that name the Cluster in a line of the log."""
        return {"cluster": str(self), "namespace": self.namespace}


@lru_cache(maxsize=4096)
def shared_cluster_key(namespace: str, name: str) -> ClusterKey:
    """Return the key of a Cluster; the thousands of cached objects that name it share one value."""
    return ClusterKey(namespace=namespace, name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A Cluster as the checks need it."""

    key: ClusterKey
    uid: str
    paused: bool
    client_signers: frozenset[str]
    """Opted-in client signer names (R0); the fields of a CRD that has them, else annotations."""
    control_plane_hosts: frozenset[HostName]
    """Names of the control plane endpoint and the `kubernetes` service, as `canonical_name` returns
    them."""
    service_networks: tuple[IPv4Network | IPv6Network, ...]
    """Addresses of Services, as the Cluster object gives them; empty where it gives none."""
    service_domain: str
    """DNS domain of the workload cluster, e.g. `cluster.local`."""
    auto_approve_bindings: frozenset[str]
    """ClusterRoleBindings of the workload cluster that approve CSRs without attestation."""
    keeps_bindings: bool = False
    """Whether the signer leaves them for Nodes from before the opt-in that have not attested."""
