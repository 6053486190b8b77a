"""Puts the KubeletAttestationPolicies of the management cluster in force."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from common.errors import ApiServerUnavailable
from signer.clusters.management_cluster import ManagementCluster
from signer.controller.policies.active import ActivePolicies
from signer.controller.policies.object_reader import PolicyObjects, PolicyState
from signer.inventory.custom_resources.policy_object import PolicyObject
from signer.kinds.cluster import ClusterKey


class PolicySync:
    """Keeps `active` up to date; only one thread may call `sync`."""

    def __init__(self, management: ManagementCluster) -> None:
        self.active = ActivePolicies(self._labels_of)
        self._management = management
        self._objects = PolicyObjects(self.active)

    def sync(self) -> bool:
        """Read policies and trust bundles again; return whether a verdict may change."""
        changed = False
        # An object that cannot be read may be for any Cluster: all stays as it is.
        with suppress(ApiServerUnavailable):
            changed = self._objects.sync(self._management.policies.all())
        return self.active.reload_bundles() or changed

    def states(self) -> Sequence[tuple[PolicyObject, PolicyState]]:
        """Return each object of the last `sync` with its state."""
        return self._objects.synced

    def _labels_of(self, key: ClusterKey) -> Mapping[str, str]:
        cluster = self._management.clusters.get(str(key))
        if cluster is None:
            self._management.clusters.require_complete(key.namespace)
            return {}
        return cluster.labels
