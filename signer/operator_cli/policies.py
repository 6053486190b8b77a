"""The policies of the management cluster."""

from signer.inventory.custom_resources.policy_object import read_policy
from signer.kinds.policy import POLICIES
from signer.operator_cli.management.api import ManagementApi
from signer.policy.policy import PolicySet


def read_policy_objects(api: ManagementApi) -> PolicySet:
    """Read the KubeletAttestationPolicies in their present version. Raises `CommandError`.

    The signer may still use an earlier version of an invalid one.
    """
    bodies = api.list_objects(POLICIES.collection_path())
    return PolicySet.of(read_policy(body).policy for body in bodies)
