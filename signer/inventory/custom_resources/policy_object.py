"""KubeletAttestationPolicies: reads the policy in `spec`, and writes the status."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from signer.kinds.cluster import ClusterKey
from signer.kinds.decode import Fields, Name, Source, Text, decode
from signer.kinds.policy import POLICIES
from signer.kube.transport.client import MAY_HAVE_CHANGED, ApiClient
from signer.policy.load import load_spec
from signer.policy.policy import Policy, RefusedPolicy

SERVED: Final = "Served"
"""The state of a Cluster whose requests are decided; all states are in docs/policies.md."""
_EMPTY: Final = msgspec.Raw(b"{}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyObject:
    """One KubeletAttestationPolicy."""

    name: str
    uid: str
    resource_version: str
    generation: int
    """The API server counts the changes of `spec`."""
    policy: Policy | RefusedPolicy
    status: Mapping[str, Any]


class StoredStates:
    """The states of Clusters that replicas of the signer wrote into the status of a policy.

    Those that are not served, or have a message, come first; `clustersLeftOut` counts those of them
    that have no space. A Cluster without an entry is served only if none was left out, and if the
    status counts more Clusters than it lists. Otherwise nothing is known of it.
    """

    def __init__(self, status: Mapping[str, Any]) -> None:
        clusters = status.get("clusters") or ()
        self.entries: dict[ClusterKey, Mapping[str, str]] = {
            ClusterKey(namespace=e["namespace"], name=e["name"]): e for e in clusters
        }
        self.lists_all = status.get("selectedClusters", 0) <= len(self.entries)
        """Whether each Cluster that the status counts has an entry."""
        self.leaves_out = status.get("clustersLeftOut", 0) != 0
        """Whether a Cluster that is not served may have no entry."""
        only_good = "clustersLeftOut" in status and not (self.lists_all or self.leaves_out)
        self._missing: Mapping[str, str] = {"state": SERVED} if only_good else {}

    def get(self, key: ClusterKey) -> Mapping[str, str]:
        """Return `state` and perhaps `message` of a Cluster; nothing if they are not known."""
        return self.entries.get(key, self._missing)


class _Meta(Fields):
    name: Name
    uid: Text
    resource_version: Text
    generation: int


class _Policy(Fields):
    metadata: _Meta
    spec: msgspec.Raw
    status: msgspec.Raw = _EMPTY


def read_policy(source: Source) -> PolicyObject:
    """Read a policy. An invalid `spec` becomes a `RefusedPolicy`. Raises `ValueError`."""
    found = decode(source, _Policy)
    metadata = found.metadata
    return PolicyObject(
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        generation=metadata.generation,
        policy=load_spec(metadata.name, decode(found.spec, dict)),
        status=decode(found.status, dict),
    )


class PolicyClient:
    """Writes the status of policies to the management cluster."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def write_status(self, policy: PolicyObject, status: Mapping[str, Any]) -> bool:
        """Replace the status, unless the policy has changed since it was read.

        Return whether the status is written. Raises `ApiServerUnavailable`.
        """
        absent = {key: None for key in policy.status if key not in status}
        metadata = {"uid": policy.uid, "resourceVersion": policy.resource_version}
        response = self._api.merge_patch(
            POLICIES.object_path(policy.name, subresource="status"),
            {"metadata": metadata, "status": {**absent, **status}},
            accepted=MAY_HAVE_CHANGED,
        )
        return response.succeeded
