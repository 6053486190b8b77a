"""The policies that a command works with: those of a file, or the objects of the cluster."""

from collections.abc import Mapping
from pathlib import Path

from signer.inventory.cluster_api.cluster import ClusterObject
from signer.inventory.custom_resources.policy_object import read_policy
from signer.kinds.policy import POLICIES
from signer.operator_cli.errors import InputInvalid, ServerUnavailable
from signer.operator_cli.management.api import ManagementApi
from signer.policy.policy import Policy, PolicySet
from signer.settings.config import ConfigError, PolicyFileContents, load_policy_file
from signer.settings.trust_bundles import TrustBundleInvalid, load_trust_bundle
from signer.verify.x509.trust_anchors import TrustAnchors


def read_policy_file(path: Path) -> PolicyFileContents:
    """Read a policy file as the signer does. Raises `InputInvalid` with every problem."""
    try:
        return load_policy_file(path)
    except ConfigError as error:
        raise InputInvalid("\n".join(error.problems)) from error


def read_policy_objects(api: ManagementApi) -> PolicySet:
    """Read the KubeletAttestationPolicies in their present version. Raises `CommandError`.

    The signer may still use an earlier version of an invalid one.
    """
    bodies = api.list_objects(POLICIES.collection_path())
    return PolicySet.of(read_policy(body).policy for body in bodies)


def load_for_cluster(
    api: ManagementApi, cluster: ClusterObject
) -> tuple[PolicySet, Mapping[str, TrustAnchors]]:
    """Read the policy objects, and the trust anchors of those that select the Cluster.

    The trust anchors are by the name of their policy. Raises `ServerUnavailable`: their files are
    not on this machine.
    """
    policies = read_policy_objects(api)
    selecting = policies.selecting(cluster.key, cluster.labels)
    try:
        return policies, {p.name: load_trust_bundle(p) for p in selecting if isinstance(p, Policy)}
    except TrustBundleInvalid as error:
        raise ServerUnavailable(
            f"the trust anchors of a policy cannot be read on this machine: {error}",
            hint="copy the files of the signer to the same paths, or name a policy file with"
            " --policy whose paths exist here",
        ) from error
