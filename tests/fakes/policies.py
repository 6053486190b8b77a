"""Policies in force that never change."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from signer.controller.policies.active import ActivePolicies, EffectivePolicy
from signer.kinds.cluster import ClusterKey
from signer.policy.policy import Policy, PolicySet
from signer.verify.x509.trust_anchors import TrustAnchors


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedPolicies(ActivePolicies):
    """Policies, the trust anchors of each, and the labels of all Clusters."""

    policies: PolicySet
    anchors: Mapping[str, TrustAnchors]
    labels: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def for_all(cls, policy: Policy, anchors: TrustAnchors) -> "FixedPolicies":
        return cls(policies=PolicySet(accepted=(policy,)), anchors={policy.name: anchors})

    def for_cluster(self, key: ClusterKey) -> EffectivePolicy:
        policy = self.policies.for_cluster(key, self.labels)
        return EffectivePolicy(policy=policy, anchors=self.anchors[policy.name])
