"""Puts the present policies in force.

The policies come from a file, if the signer was started with one, else from the
KubeletAttestationPolicies of the management cluster.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from common.errors import ApiServerUnavailable
from signer.clusters.management_cluster import ManagementCluster
from signer.controller.policies.active import ActivePolicies
from signer.controller.policies.file_reader import PolicyFile
from signer.controller.policies.object_reader import PolicyObjects, PolicyState
from signer.inventory.custom_resources.policy_object import PolicyObject
from signer.inventory.replica_records.replica_leases import PolicySource
from signer.kinds.cluster import ClusterKey
from signer.settings.config import PolicyFileContents


class PolicySync:
    """Keeps `active` up to date; only one thread may call `sync`."""

    def __init__(self, management: ManagementCluster, file: PolicyFileContents | None) -> None:
        self.active = ActivePolicies(self._labels_of)
        self._management = management
        self._objects = PolicyObjects(self.active)
        self._file = None if file is None else PolicyFile(file, self.active)

    def sync(self) -> bool:
        """Read policies and trust bundles again; return whether a verdict may change."""
        if self._file is not None:
            changed = self._file.reload()
        else:
            changed = False
            # An object that cannot be read may be for any Cluster: all stays as it is.
            with suppress(ApiServerUnavailable):
                changed = self._objects.sync(self._management.policies.all())
        return self.active.reload_bundles() or changed

    def states(self) -> Sequence[tuple[PolicyObject, PolicyState]]:
        """Return each object of the last `sync` with its state; none if policies are in a file."""
        return self._objects.synced

    def validity(self) -> Mapping[tuple[str, str], bool]:
        """Return whether each source is valid: `file` without a name, or `object` with its name."""
        if self._file is not None:
            return {("file", ""): self._file.is_valid}
        return {("object", policy.name): not state.problems for policy, state in self.states()}

    @property
    def source(self) -> PolicySource:
        """Return where the policies are."""
        if self._file is None:
            return PolicySource.OBJECTS
        return PolicySource.FILE if self._file.is_valid else PolicySource.INVALID_FILE

    @property
    def digest(self) -> str:
        """Return the digest of the policy file in force; empty if policies are objects."""
        return "" if self._file is None else self._file.digest

    def _labels_of(self, key: ClusterKey) -> Mapping[str, str]:
        cluster = self._management.clusters.get(str(key))
        if cluster is None:
            self._management.clusters.require_complete(key.namespace)
            return {}
        return cluster.labels
