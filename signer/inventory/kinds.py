"""The kinds of Cluster API and of this project on the management cluster.

A management cluster serves the kinds of Cluster API in several versions, so their resources are
discovered (`signer.kube.discovery`).
"""

from typing import Final

from common.names import API_GROUP, API_VERSION
from signer.kinds.policy import POLICY_KIND
from signer.kinds.resources import Kind, Resource

CAPI: Final = "cluster.x-k8s.io"
CLUSTER: Final[Kind] = (CAPI, "Cluster")
MACHINE: Final[Kind] = (CAPI, "Machine")
MACHINE_POOL: Final[Kind] = (CAPI, "MachinePool")
KUBEADM_CONFIG: Final[Kind] = (f"bootstrap.{CAPI}", "KubeadmConfig")

ATTESTED_NODES: Final = Resource(API_GROUP, API_VERSION, "AttestedNode", "attestednodes")
ENDORSEMENT_KEYS: Final = Resource(
    API_GROUP, API_VERSION, "EndorsementKey", "endorsementkeys", namespaced=False
)
KEY_REQUESTS: Final = Resource(
    API_GROUP, API_VERSION, "EndorsementKeyRequest", "endorsementkeyrequests"
)
POLICIES: Final = Resource(
    API_GROUP, API_VERSION, POLICY_KIND, "kubeletattestationpolicies", namespaced=False
)
