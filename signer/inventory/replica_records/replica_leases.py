"""The Leases with which replicas of the signer show that they serve Clusters."""

from enum import Enum
from typing import Final

SETTINGS_LABEL: Final = "attestation.cluster.x-k8s.io/signer-settings"
"""On the Lease of each replica: only replicas with the same value share the Clusters."""
NAMESPACE_LABEL: Final = "attestation.cluster.x-k8s.io/watched-namespace"
"""The only namespace whose Clusters a replica serves; empty for all."""
SOURCE_LABEL: Final = "attestation.cluster.x-k8s.io/policy-source"
"""Where a replica has its policies: a `PolicySource`."""
LEASE_SECONDS: Final = 15
"""How long a Lease counts after its last renewal. It is enough while no request takes over 5
seconds: two renewals are written 10 seconds apart at most, and each is seen 5 seconds later."""


class PolicySource(Enum):
    """Where a replica reads its policies."""

    OBJECTS = "Objects"
    FILE = "File"
    INVALID_FILE = "InvalidFile"
    """The present file is invalid: the policies of an earlier content are in force."""
