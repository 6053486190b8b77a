"""The first KubeletAttestationPolicy of a new installation.

A Lease in the signer's own namespace says that it was created, or that there were policies already.
So a policy that an administrator deletes does not come back.
"""

import time
from collections.abc import Callable
from typing import Final

from common.names import ANNOTATION_PREFIX
from signer.kinds.policy import POLICIES
from signer.kube.leases import LeaseClient
from signer.kube.transport.client import MAY_EXIST, ApiClient

NAME: Final = "default"
_RETRY_SECONDS: Final = 10.0
_LEASE: Final = "node-attestation-default-policy"
_LABEL: Final = ANNOTATION_PREFIX + "default-policy"


class DefaultPolicy:
    """Creates the policy once; for one thread."""

    def __init__(
        self, api: ApiClient, leases: LeaseClient, has_policies: Callable[[], bool | None]
    ) -> None:
        """`has_policies` returns `None` until all policies have been listed."""
        self._api = api
        self._leases = leases
        self._has_policies = has_policies
        self._done = False
        self._not_before = 0.0

    def create_once(self) -> None:
        """Create the policy if this installation never had one.

        It is for all Clusters, and accepts registered endorsement keys only. Raises
        `ApiServerUnavailable`; the next attempt follows after some seconds.
        """
        has_policies, now = self._has_policies(), time.monotonic()
        if self._done or has_policies is None or now < self._not_before:
            return
        self._not_before = now + _RETRY_SECONDS
        if not self._leases.all(_LABEL):
            if not has_policies:
                body = POLICIES.manifest(metadata={"name": NAME}, spec={})
                self._api.create(POLICIES.collection_path(), body, accepted=MAY_EXIST)
            self._leases.assign(_LEASE, holder=NAME, labels={_LABEL: NAME})
        self._done = True
