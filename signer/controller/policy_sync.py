"""Puts the present policies in force, and writes the status of their objects.

The policies come from a file, if the signer was started with one, else from the
KubeletAttestationPolicies of the management cluster.
"""

import time
from collections.abc import Mapping, Sequence
from datetime import datetime

from signer.config import PolicyFileContents
from signer.controller.active_policies import ActivePolicies
from signer.controller.cluster_report import ClusterReport
from signer.controller.policy_file import PolicyFile
from signer.controller.policy_objects import PolicyObjects
from signer.controller.policy_status import (
    PolicyStatuses,
    StatusWriter,
    build_status,
    stored_reports,
)
from signer.inventory.caches import cluster_key
from signer.inventory.management import ManagementCluster
from signer.model import ClusterKey


class PolicySync:
    """Keeps `active` up to date. One thread calls `sync`, and one `write_statuses`."""

    def __init__(
        self, management: ManagementCluster, writer: StatusWriter, file: PolicyFileContents | None
    ) -> None:
        self.active = ActivePolicies(self._labels_of)
        self._management = management
        self._objects = PolicyObjects(self.active)
        self._statuses = PolicyStatuses(writer, time.monotonic)
        self._file = None if file is None else PolicyFile(file, self.active)

    def sync(self) -> bool:
        """Read policies and trust bundles again; return whether a verdict may change."""
        if self._file is not None:
            changed = self._file.reload()
        else:
            cache = self._management.policies
            changed = cache.has_synced and self._objects.sync(cache.all())
        return self.active.reload_bundles() or changed

    @property
    def digest(self) -> str:
        """Return the digest of the policy file in force; empty if policies are objects."""
        return "" if self._file is None else self._file.digest

    def write_statuses(
        self,
        own: Sequence[ClusterReport],
        others: Sequence[ClusterReport],
        now: datetime,
        *,
        counts: bool,
    ) -> None:
        """Write the status of each object that was read. Raises `ApiServerUnavailable`.

        `own` are the Clusters that this replica serves; `counts` says whether it counts Clusters.
        """
        policies = self._management.policies.all() if self._file is None else ()
        for policy in policies:
            state = self._objects.states.get(policy.uid)
            if state is not None:
                watched = self._management.namespace
                reports = [*own, *stored_reports(policy, others, watched)]
                status = build_status(policy, state, reports, now, counts=counts)
                self._statuses.write(policy, status)
        self._statuses.forget_others(policies)

    def _labels_of(self, key: ClusterKey) -> Mapping[str, str]:
        cluster = self._management.clusters.get(cluster_key(key))
        return {} if cluster is None else cluster.labels
