"""Policies: their values, how they are loaded from text, and how one is drafted from a log.

Imports only `signer.model`, `signer.errors` and `common`, and does no I/O. A file with any problem
is refused as a whole, and a Cluster without a policy gets no certificate.
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
    "EventLogRules",
    "KubeletServingMode",
    "NameReuse",
    "PcrMode",
    "PcrValues",
    "PcrVariant",
    "Policy",
    "PolicyFileInvalid",
    "PolicySet",
    "TrustMode",
    "load_policies",
]
