"""The policies that a command works with: those of a file, or the objects of the cluster."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from signer.config import ConfigError, load_policy_file
from signer.inventory.cluster import ClusterObject
from signer.inventory.policy_object import read_policy
from signer.operator_cli.errors import InputInvalid, ServerUnavailable
from signer.operator_cli.management import ManagementApi
from signer.operator_cli.session import Session
from signer.operator_cli.snapshot import API
from signer.policy import Policy, PolicySet, RefusedPolicy
from signer.trust_bundles import TrustBundleInvalid, load_trust_bundle
from signer.verify.x509.trust_anchors import TrustAnchors

POLICIES: Final = f"{API}/kubeletattestationpolicies"
_NO_STATUS: Final = (
    "no signer has written the status of a KubeletAttestationPolicy: a signer with --policy reads a"
    " file and no objects. The Helm chart and install.yaml install such a file: give it to this"
    " command, see docs/policies.md"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPolicies:
    """Policies, and the trust anchors of those that are needed, by the name of the policy."""

    policies: PolicySet
    anchors: Mapping[str, TrustAnchors]


def read_policy_file(path: Path) -> LoadedPolicies:
    """Read a policy file as the signer does. Raises `InputInvalid` with every problem."""
    try:
        contents = load_policy_file(path)
    except ConfigError as e:
        raise InputInvalid("\n".join(e.problems)) from e
    return LoadedPolicies(policies=contents.policies, anchors=contents.anchors)


def read_policy_objects(api: ManagementApi) -> PolicySet:
    """Read the KubeletAttestationPolicies in their present version. Raises `CommandError`.

    The signer may still use an earlier version of an invalid one.
    """
    found = [read_policy(json.dumps(body).encode()).policy for body in api.list_objects(POLICIES)]
    return PolicySet(
        accepted=tuple(policy for policy in found if isinstance(policy, Policy)),
        refused=tuple(policy for policy in found if isinstance(policy, RefusedPolicy)),
    )


def load_for_cluster(api: ManagementApi, cluster: ClusterObject) -> LoadedPolicies:
    """Read the policy objects, and the trust anchors of those that select the Cluster.

    Raises:
        ServerUnavailable: the files of the trust anchors are not on this machine.

    """
    policies = read_policy_objects(api)
    selecting = policies.selecting(cluster.key, cluster.labels)
    try:
        anchors = {p.name: load_trust_bundle(p) for p in selecting if isinstance(p, Policy)}
    except TrustBundleInvalid as e:
        raise ServerUnavailable(
            f"the trust anchors of a policy cannot be read on this machine: {e}",
            hint="copy the files of the signer to the same paths, or name a policy file with"
            " --policy whose paths exist here",
        ) from e
    return LoadedPolicies(policies=policies, anchors=anchors)


def warn_if_unread(session: Session) -> None:
    """Warn if no signer seems to read the policy objects, so that a file may be in force.

    Raises `CommandError`.
    """
    if not any(body.get("status") for body in session.api.list_objects(POLICIES)):
        session.warn(_NO_STATUS)
