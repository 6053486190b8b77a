"""The policies that a command works with: those of a file, or the objects of the cluster."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from signer.inventory.cluster_api.cluster import ClusterObject
from signer.inventory.custom_resources.policy_object import read_policy
from signer.kinds.policy import POLICIES
from signer.operator_cli.errors import InputInvalid, Rejected, ServerUnavailable
from signer.operator_cli.management.api import ManagementApi
from signer.operator_cli.management.signer_state import read_signer_state
from signer.operator_cli.session import Session
from signer.policy.policy import Policy, PolicySet
from signer.settings.config import ConfigError, PolicyFileContents, load_policy_file
from signer.settings.trust_bundles import TrustBundleInvalid, load_trust_bundle
from signer.verify.x509.trust_anchors import TrustAnchors

_FROM_FILE: Final = (
    "the signer has its policies in a file, so the KubeletAttestationPolicies have no effect"
)
_FILE: Final = "give the policy file of the signer to this command (docs/policies.md says how)"


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


def reads_policy_file(session: Session) -> bool:
    """Return whether the signer has its policies in a file, as the Leases of its replicas say.

    If no replica runs, none says it, or the Leases cannot be read, policy objects with a status
    show that one read them. Raises `CommandError` if there is no object, either: then nothing can
    be known.
    """
    state = read_signer_state(session.api, session.arguments.signer_namespace, session.now)
    if state.sources:
        return state.reads_only_files
    bodies = list(session.api.list_objects(POLICIES.collection_path()))
    if not bodies and state.problem:
        raise ServerUnavailable(
            f"it is not known which policies the signer has: {state.problem}", hint=_FILE
        )
    if not bodies:
        raise Rejected(
            "no replica of the signer runs and there is no KubeletAttestationPolicy, so it is not"
            " known which policies the signer has",
            hint=f"start the signer, or {_FILE}",
        )
    return not any(body.get("status") for body in bodies)


def require_policy_objects(session: Session, hint: str = _FILE) -> None:
    """Raise `Rejected` if the signer has its policies in a file, which only the caller has."""
    if reads_policy_file(session):
        raise Rejected(_FROM_FILE, hint=hint)


def warn_if_unread(session: Session) -> None:
    """Warn if the signer has its policies in a file: the objects may be for later."""
    if reads_policy_file(session):
        session.warn(f"{_FROM_FILE}. Next step: {_FILE}")
