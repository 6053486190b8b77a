"""`policy check`: reads a policy file as the signer does, and compares it with the Clusters."""

from collections.abc import Mapping, Sequence

from common.errors import AttestationError
from signer.config import ConfigError, load_policy_file
from signer.inventory.cluster import ClusterObject
from signer.model import ClusterKey
from signer.operator_cli.errors import EXIT_NEGATIVE, EXIT_OK, InputInvalid
from signer.operator_cli.output import Column, Document, field
from signer.operator_cli.session import Session
from signer.policy import Policy, PolicySet

_COLUMNS = (
    Column("POLICY", field("policy")),
    Column("TRUST", field("trust")),
    Column("CLUSTERS", field("clusters")),
    Column("PROBLEM", field("problem")),
)


def run(session: Session) -> int:
    """Print each policy with the opted-in Clusters that it is for."""
    try:
        policies = load_policy_file(session.arguments.file).policies
    except ConfigError as e:
        raise InputInvalid("\n".join(e.problems)) from e
    if session.arguments.offline:
        session.show_list([_document(p, None) for p in policies.accepted], _COLUMNS)
        return EXIT_OK
    chosen = {
        cluster.key: _choose(session, policies, cluster)
        for cluster in session.snapshot().opted_in()
    }
    documents = [
        _document(policy, [key for key, other in chosen.items() if other is policy])
        for policy in policies.accepted
    ]
    session.show_list(documents, _COLUMNS)
    has_problem = None in chosen.values() or any(d["problem"] for d in documents)
    return EXIT_NEGATIVE if has_problem else EXIT_OK


def _choose(session: Session, policies: PolicySet, cluster: ClusterObject) -> Policy | None:
    """Return the policy of a Cluster; without one, warn and return `None`."""
    key = cluster.key
    try:
        return policies.for_cluster(key, cluster.labels)
    except AttestationError as e:
        session.warn(
            f"Cluster {key.namespace}/{key.name} gets no certificate: {e.reason}: {e.message}"
        )
        return None


def _document(policy: Policy, clusters: Sequence[ClusterKey] | None) -> Document:
    """Return what is printed of a policy; `clusters` is `None` if they are not known."""
    document: Mapping[str, object] = {"policy": policy.name, "trust": policy.trust.value}
    if clusters is None:
        return {**document, "clusters": None, "problem": None}
    unused = policy.clusters is not None and not clusters
    problem = "is for no opted-in Cluster: check its selector and the opt-in" if unused else None
    names = [f"{key.namespace}/{key.name}" for key in clusters]
    return {**document, "clusters": names, "problem": problem}
