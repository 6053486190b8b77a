"""KubeletAttestationPolicies: reads the policy in `spec`, and writes the status."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import msgspec

from common.names import API_GROUP, API_VERSION
from signer.kube.client import ApiClient
from signer.kube.decode import Fields, Source, Text, decode
from signer.policy import Policy, RefusedPolicy, load_spec
from signer.policy.load import POLICY_KIND

POLICY: Final = (API_GROUP, POLICY_KIND)
"""Group and kind."""
POLICIES: Final = f"/apis/{API_GROUP}/{API_VERSION}/kubeletattestationpolicies"
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


class _Meta(Fields):
    name: Text
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
            f"{POLICIES}/{quote(policy.name, safe='')}/status",
            {"metadata": metadata, "status": {**absent, **status}},
            accepted=(HTTPStatus.OK, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
        )
        return response.status == HTTPStatus.OK
