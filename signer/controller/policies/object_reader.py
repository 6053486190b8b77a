"""Puts the KubeletAttestationPolicies of the management cluster in force.

Each object counts whole or not at all. While an object is invalid, its last valid version stays in
force. A signer that has seen no valid version lets the Clusters wait that the object selects: the
policy for all other Clusters could demand less of their nodes.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from signer.controller.policies.active import ActivePolicies
from signer.errors import PolicyInvalid
from signer.inventory.custom_resources.policy_object import PolicyObject
from signer.policy.policy import Policy, PolicySet, RefusedPolicy
from signer.settings.trust_bundles import TrustBundleInvalid, load_trust_bundle
from signer.verify.x509.trust_anchors import TrustAnchors

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyState:
    """Whether one object is in force, and why not."""

    problems: tuple[str, ...]
    """Why its present version is refused; empty if it is in force."""
    in_force: int | None
    """The generation in force; `None` if this signer has seen no valid one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Accepted:
    generation: int
    policy: Policy
    anchors: TrustAnchors


class PolicyObjects:
    """The last valid version of each object; only one thread may call `sync`."""

    def __init__(
        self,
        active: ActivePolicies,
        load_anchors: Callable[[Policy], TrustAnchors] = load_trust_bundle,
    ) -> None:
        self.synced: Sequence[tuple[PolicyObject, PolicyState]] = ()
        """The objects of the last `sync`, with their states."""
        self._states: Mapping[str, PolicyState] = {}
        """By the UID of the object."""
        self._active = active
        self._load_anchors = load_anchors
        self._accepted: dict[str, _Accepted] = {}
        """By the UID: an object that is created again does not get the version of the old one."""
        self._in_force: PolicySet | None = None

    def sync(self, objects: Iterable[PolicyObject]) -> bool:
        """Use the present objects; return whether the policies in force changed."""
        objects = sorted(objects, key=lambda policy_object: policy_object.name)
        states = {policy_object.uid: self._load(policy_object) for policy_object in objects}
        for policy_object in objects:
            self._report(policy_object, states[policy_object.uid])
        self._states = states
        self._accepted = {uid: self._accepted[uid] for uid in states if uid in self._accepted}
        policies = PolicySet.of(self._usable(policy_object) for policy_object in objects)
        changed = policies != self._in_force
        if changed:
            self._in_force = policies
            anchors = {a.policy.name: a.anchors for a in self._accepted.values()}
            self._active.replace(policies, anchors)
        # Last: a status must not say that a version is in force before it is.
        self.synced = [(policy_object, states[policy_object.uid]) for policy_object in objects]
        return changed

    def _usable(self, policy_object: PolicyObject) -> Policy | RefusedPolicy:
        """Return the last valid version, or why there is none."""
        accepted = self._accepted.get(policy_object.uid)
        if accepted is not None:
            return accepted.policy
        return RefusedPolicy(
            name=policy_object.name,
            clusters=policy_object.policy.clusters,
            problems=self._states[policy_object.uid].problems,
        )

    def _load(self, policy_object: PolicyObject) -> PolicyState:
        """Accept the object's version if it is valid; return whether it is in force."""
        accepted = self._accepted.get(policy_object.uid)
        if accepted is not None and accepted.generation == policy_object.generation:
            return PolicyState(problems=(), in_force=policy_object.generation)
        in_force = None if accepted is None else accepted.generation
        if isinstance(policy_object.policy, RefusedPolicy):
            return PolicyState(problems=policy_object.policy.problems, in_force=in_force)
        try:
            anchors = self._load_anchors(policy_object.policy)
        except TrustBundleInvalid as error:
            # The files may be mounted later: the next `sync` reads them again.
            return PolicyState(problems=(str(error),), in_force=in_force)
        self._accepted[policy_object.uid] = _Accepted(
            generation=policy_object.generation, policy=policy_object.policy, anchors=anchors
        )
        return PolicyState(problems=(), in_force=policy_object.generation)

    def _report(self, policy_object: PolicyObject, state: PolicyState) -> None:
        if not state.problems or self._states.get(policy_object.uid) == state:
            return
        fields = {
            "policy": policy_object.name,
            "generation": policy_object.generation,
            "reason": PolicyInvalid.reason,
            "detail": "; ".join(state.problems),
            "message": "its Clusters wait: correct the policy"
            if state.in_force is None
            else f"generation {state.in_force} stays in force: correct the policy",
            "alarm": True,
        }
        _logger.warning("policy is invalid", extra={"fields": fields})
