"""The policies in force with their trust anchors: both are replaced in one assignment."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from common.errors import ApiServerUnavailable
from signer.kinds.cluster import ClusterKey
from signer.policy.policy import Policy, PolicySet
from signer.settings.trust_bundles import TrustBundleFiles
from signer.verify.x509.trust_anchors import TrustAnchors

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectivePolicy:
    """The policy of one Cluster, and the trust anchors that it names."""

    policy: Policy
    anchors: TrustAnchors


class ActivePolicies:
    """The policies in force; one thread replaces them, any number reads them."""

    def __init__(self, labels_of: Callable[[ClusterKey], Mapping[str, str]]) -> None:
        """Read the labels of a Cluster with `labels_of`, since a policy may select by them."""
        self._labels_of = labels_of
        self._in_force: tuple[PolicySet, TrustBundleFiles] | None = None

    @property
    def bundles(self) -> TrustBundleFiles | None:
        """Return the trust bundles of the policies in force; `None` before policies are read."""
        return None if self._in_force is None else self._in_force[1]

    @property
    def policies(self) -> PolicySet:
        """Return all policies in force. Raises `ApiServerUnavailable` before they are read."""
        return self._require()[0]

    def for_cluster(self, key: ClusterKey) -> EffectivePolicy:
        """Return the policy of a Cluster with its trust anchors.

        Raises `PolicyMissing`, `PolicyConflict` or `PolicyInvalid` unless exactly one is in force,
        and `ApiServerUnavailable` before policies and Clusters have been read.
        """
        policies, bundles = self._require()
        policy = policies.for_cluster(key, self._labels_of(key))
        return EffectivePolicy(policy=policy, anchors=bundles.current[policy.name])

    def policy_of(self, key: ClusterKey) -> Policy:
        """Return the policy of a Cluster; raises as `for_cluster` does."""
        return self.for_cluster(key).policy

    def is_serving_only(self, key: ClusterKey) -> bool:
        """Return whether a Cluster has exactly one policy, and its mode is ServingOnly."""
        return self.policies.is_serving_only(key, self._labels_of(key))

    def replace(self, policies: PolicySet, anchors: Mapping[str, TrustAnchors]) -> None:
        """Put all of these policies in force, and no others; `anchors` has the anchors of each.

        A policy that was in force before keeps its present trust anchors: `anchors` may be older.
        """
        current: dict[str, TrustAnchors] = {}
        if self._in_force is not None:
            before, bundles = self._in_force
            kept = (p.name for p in policies.accepted if p in before.accepted)
            current = {name: bundles.current[name] for name in kept}
        self._in_force = policies, TrustBundleFiles(policies.accepted, {**anchors, **current})
        _log(policies)

    def reload_bundles(self) -> bool:
        """Read the files of the trust bundles; return whether any trust anchors changed."""
        return self.bundles is not None and self.bundles.reload()

    def _require(self) -> tuple[PolicySet, TrustBundleFiles]:
        if self._in_force is None:
            raise ApiServerUnavailable("the policies are not known yet")
        return self._in_force


def _log(policies: PolicySet) -> None:
    fields: dict[str, object] = {
        "policies": [policy.name for policy in policies.accepted],
        "refused": [policy.name for policy in policies.refused],
    }
    if policies.accepted:
        _logger.info("policies in force", extra={"fields": fields})
        return
    fields["message"] = (
        "no Cluster is served: create a KubeletAttestationPolicy (its CRD must be installed)"
    )
    _logger.warning("no policy in force", extra={"fields": {**fields, "alarm": True}})
