"""What an object means that cannot be read, for each kind that the signer watches.

Whoever may write the object decides. A tenant makes its own namespace undecided, and a node its own
name; what only operators write leaves all undecided that could depend on it. A list without a cache
is undecided as a whole, unless its reader names what it leaves out. `docs/threat-model.md` has the
same table.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from signer.kube.unreadable import Effect

REASON: Final = "ObjectUnreadable"
"""Of Events and of `kubectl attestation problems`."""
CLUSTER_MESSAGE: Final = "objects of the workload cluster cannot be read:"
"""How the message of a served Cluster begins that names such objects."""
INFRASTRUCTURE: Final = "infrastructure objects"

UNREADABLE: Final[Mapping[str, Effect]] = MappingProxyType(
    {
        "Clusters": Effect.NAMESPACE,
        "Machines": Effect.NAMESPACE,
        "MachinePools": Effect.NAMESPACE,
        "KubeadmConfigs": Effect.NAMESPACE,
        INFRASTRUCTURE: Effect.NAMESPACE,
        "AttestedNodes": Effect.NAMESPACE,
        # It may be registered for any Machine, and hold any node.
        "EndorsementKeys": Effect.KIND,
        # It may be for any Cluster: the policies in force stay as they are.
        "KubeletAttestationPolicies": Effect.KIND,
        # No check reads them.
        "EndorsementKeyRequests": Effect.NOTHING,
        # It may bind any role.
        "ClusterRoleBindings": Effect.NAMESPACE,
        "Nodes": Effect.NAME,
        "CertificateSigningRequests": Effect.NOTHING,
    }
)
"""By the plural of the kind."""
