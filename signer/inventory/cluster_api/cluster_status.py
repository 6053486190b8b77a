"""Writes the condition AutoApproveBindingsRemoved of Clusters, next to those of Cluster API.

In v1beta2 it is in `status.conditions`. A management cluster that prefers v1beta1 has the same list
in `status.v1beta2.conditions`. Both are lists with a key, so server-side apply writes this entry
alone.
"""

from datetime import datetime
from typing import Any, Final

from common.formats.strict_json import format_time
from signer.inventory.cluster_api.cluster import BINDINGS_CONDITION, ClusterCondition, ClusterObject
from signer.kinds.decode import Fields, Text, read_as
from signer.kinds.resources import CLUSTER
from signer.kube.discovery import find_resource
from signer.kube.events import COMPONENT
from signer.kube.transport.client import MAY_HAVE_CHANGED, ApiClient

_OLD_VERSION: Final = "v1beta1"


class _Meta(Fields):
    uid: Text
    resource_version: Text


class _Cluster(Fields):
    metadata: _Meta


class ClusterStatusClient:
    """Writes the condition to the management cluster."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def write(self, cluster: ClusterObject, condition: ClusterCondition, now: datetime) -> None:
        """Write the condition, unless the Cluster has it, is gone, or has changed meanwhile.

        The next round writes it then. Raises `ApiServerUnavailable`.
        """
        earlier = cluster.bindings
        if condition == earlier:
            return
        clusters = find_resource(self._api, CLUSTER)
        if clusters is None:
            return
        key = cluster.key
        response = self._api.find(clusters.object_path(key.name, key.namespace))
        if response is None:
            return
        present = response.read(read_as(_Cluster)).metadata
        if present.uid != cluster.uid:
            # Another Cluster has its name now.
            return
        lasts = earlier is not None and earlier.since and earlier.removed == condition.removed
        entry = {
            "type": BINDINGS_CONDITION,
            "status": str(condition.removed),
            "reason": condition.reason,
            "message": condition.message,
            "lastTransitionTime": earlier.since if earlier and lasts else format_time(now),
        }
        conditions: dict[str, Any] = {"conditions": [entry]}
        body = clusters.manifest(
            # The API server ignores a UID in a write to a subresource.
            metadata={
                "name": key.name,
                "namespace": key.namespace,
                "resourceVersion": present.resource_version,
            },
            status={"v1beta2": conditions} if clusters.version == _OLD_VERSION else conditions,
        )
        path = clusters.object_path(key.name, key.namespace, subresource="status")
        self._api.apply(path, body, manager=COMPONENT, accepted=MAY_HAVE_CHANGED)
