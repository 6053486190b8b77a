"""The policy of a cluster: one value, from a file whose schema the policy CRD will have.

A file that is empty, unknown in any key or contradictory in any point is refused whole, and a
Cluster that no policy is for gets nothing: a broken configuration approves nothing.
"""

from signer.policy.load import PolicyFileInvalid, load_policies
from signer.policy.policy import (
    AutoApproveBindings,
    EventLogRules,
    KubeletServingMode,
    NameReuse,
    PcrMode,
    PcrValues,
    PcrVariant,
    Policy,
    PolicySet,
    TrustMode,
)

__all__ = [
    "AutoApproveBindings",
    "KubeletServingMode",
    "EventLogRules",
    "NameReuse",
    "PcrMode",
    "PcrValues",
    "PcrVariant",
    "PolicySet",
    "Policy",
    "PolicyFileInvalid",
    "TrustMode",
    "load_policies",
]
