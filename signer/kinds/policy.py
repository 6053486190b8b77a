"""KubeletAttestationPolicies: what the nodes of Clusters must prove."""

from typing import Final

from common.names import API_GROUP, API_VERSION
from signer.kinds.resources import Resource

POLICY_KIND: Final = "KubeletAttestationPolicy"
POLICIES: Final = Resource(
    API_GROUP, API_VERSION, POLICY_KIND, "kubeletattestationpolicies", namespaced=False
)
