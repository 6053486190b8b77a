"""The Leases with which replicas of the signer show that they serve Clusters."""

from typing import Final

from common.names import ANNOTATION_PREFIX

SETTINGS_LABEL: Final = ANNOTATION_PREFIX + "signer-settings"
"""On the Lease of each replica: only replicas with the same value share the Clusters."""
NAMESPACE_LABEL: Final = ANNOTATION_PREFIX + "watched-namespace"
"""The only namespace whose Clusters a replica serves; empty for all."""
LEASE_SECONDS: Final = 15
"""How long a Lease counts after its last renewal. It is enough while no request takes over 5
seconds: two renewals are written 10 seconds apart at most, and each is seen 5 seconds later."""
