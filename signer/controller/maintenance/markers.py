"""Keeps the markers of the claims in the workload clusters (`signer.claims.marker`)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Final
from weakref import WeakKeyDictionary

from common.errors import ApiServerUnavailable
from signer.claims.marker import Marker, Newest, next_marker
from signer.clusters.management_cluster import ManagementCluster
from signer.clusters.workload_cluster import WorkloadCluster
from signer.controller.observability.audit import log_cluster_alarm
from signer.errors import ClaimsOutOfDate
from signer.kinds.attested_node import AttestedNodeObject
from signer.kinds.cluster import ClusterKey
from signer.seams import WentBack

_WRITE_SECONDS: Final = 60.0
"""Seconds between two writes of one marker."""


@dataclass(slots=True)
class _Stored:
    """What a workload cluster has."""

    marker: Marker
    written_at: float


class Markers:
    """The markers of all open workload clusters."""

    def __init__(
        self,
        management: ManagementCluster,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self._management = management
        self._now = now
        self._monotonic = monotonic
        self._stored: WeakKeyDictionary[WorkloadCluster, _Stored] = WeakKeyDictionary()

    def update(self, workloads: Iterable[WorkloadCluster]) -> None:
        """Compare the claims of each cluster with its marker, if both are known; for one thread."""
        if not self._management.has_synced():
            return
        newest = newest_claims(self._management.nodes.all())
        went_back: dict[ClusterKey, WentBack | None] = {}
        for workload in workloads:
            marker = workload.marker
            if marker is None or not self._is_complete(workload.key):
                continue
            workload.marker = next_marker(marker, newest.get(workload.key), self._now())
            went_back[workload.key] = workload.marker.went_back
            if workload.marker.went_back not in {None, marker.went_back}:
                log_cluster_alarm(
                    workload.key,
                    ClaimsOutOfDate(
                        "claims of the Cluster were lost, as after a restore of the management"
                        " cluster: whether a renewal is overdue is known when its node renews"
                    ),
                )
        self._management.set_went_back(went_back)

    def sync(self, workload: WorkloadCluster) -> None:
        """Read the marker of a cluster once, and write it when it has changed.

        A marker that may not be read counts as an empty one, so that overdue renewals are found as
        without it. Raises `ApiServerUnavailable`.
        """
        stored, now = self._stored.get(workload), self._monotonic()
        if stored is None:
            try:
                marker = workload.marker_client.read()
            except ApiServerUnavailable as error:
                if error.status == HTTPStatus.FORBIDDEN:
                    workload.marker = Marker()
                raise
            self._stored[workload] = _Stored(marker, now - _WRITE_SECONDS)
            workload.marker = marker
            return
        marker = workload.marker or stored.marker
        if marker != stored.marker and now - stored.written_at >= _WRITE_SECONDS:
            workload.marker_client.write(marker)
            self._stored[workload] = _Stored(marker, now)

    def _is_complete(self, cluster: ClusterKey) -> bool:
        try:
            self._management.require_complete(cluster.namespace)
        except ApiServerUnavailable:
            return False
        return True


def newest_claims(nodes: Iterable[AttestedNodeObject]) -> dict[ClusterKey, Newest]:
    """Return the newest state of the claims of each Cluster that has one."""
    attested: dict[ClusterKey, datetime] = {}
    ends: dict[ClusterKey, datetime] = {}
    for node in nodes:
        key = node.cluster
        attested[key] = max(node.last_attested, attested.get(key, node.last_attested))
        ends[key] = max(node.not_after, ends.get(key, node.not_after))
    return {key: Newest(last_attested=time, not_after=ends[key]) for key, time in attested.items()}
