"""KubeletAttestationPolicies: reads the policy in `spec`, and writes the status."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from signer.inventory.kinds import POLICIES
from signer.kube.decode import Fields, Name, Source, Text, decode
from signer.kube.transport.client import MAY_HAVE_CHANGED, ApiClient
from signer.model import ClusterKey
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

    A status has no more than 100 entries, those first that are not served. So a Cluster without an
    entry is served if the status counts more Clusters than it lists. Otherwise the replica that
    serves it has not written its state yet.
    """

    def __init__(self, status: Mapping[str, Any]) -> None:
        clusters = status.get("clusters") or ()
        self.entries: dict[ClusterKey, Mapping[str, str]] = {
            ClusterKey(namespace=e["namespace"], name=e["name"]): e for e in clusters
        }
        is_complete = status.get("selectedClusters", 0) <= len(self.entries)
        self._missing: Mapping[str, str] = {} if is_complete else {"state": SERVED}

    def get(self, key: ClusterKey) -> Mapping[str, str]:
        """Return `state` and perhaps `message` of a Cluster; nothing if they are not written."""
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
