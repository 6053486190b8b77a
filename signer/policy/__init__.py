"""Policies: their values, how they are loaded from text, and how one is drafted from a log.

Imports only `signer.model`, `signer.errors` and `common`, and does no I/O. A policy with any
problem is refused as a whole, and a Cluster without exactly one policy gets no certificate.
"""

from signer.policy.load import PolicyFileInvalid, load_policies, load_spec
from signer.policy.policy import (
    AccessReview,
    Approval,
    AutoApproveBindings,
    ClusterSelector,
    EventLogRules,
    FirstJoinRules,
    KubeletServingMode,
    NameReuse,
    NodeLabels,
    PcrMode,
    PcrValues,
    PcrVariant,
    PlatformRules,
    Policy,
    PolicyMode,
    PolicySet,
    RefusedPolicy,
    TrustMode,
    UnknownCredential,
)

__all__ = [
    "AccessReview",
    "Approval",
    "AutoApproveBindings",
    "ClusterSelector",
    "EventLogRules",
    "FirstJoinRules",
    "KubeletServingMode",
    "NameReuse",
    "NodeLabels",
    "PcrMode",
    "PcrValues",
    "PcrVariant",
    "PlatformRules",
    "Policy",
    "PolicyFileInvalid",
    "PolicyMode",
    "PolicySet",
    "RefusedPolicy",
    "TrustMode",
    "UnknownCredential",
    "load_policies",
    "load_spec",
]
