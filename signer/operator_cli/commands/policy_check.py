"""`policy check`: reads a policy file as the signer does, and compares it with the Clusters."""

from collections.abc import Mapping, Sequence

from common.errors import AttestationError
from signer.config import ConfigError, load_policy_file
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
        policies, _ = load_policy_file(session.arguments.file)
    except ConfigError as e:
        raise InputInvalid("\n".join(e.problems)) from e
    if session.arguments.offline:
        session.show_list([_document(p, None) for p in policies.all()], _COLUMNS)
        return EXIT_OK
    opted_in = [cluster.key for cluster in session.snapshot().opted_in()]
    chosen = {key: _choose(session, policies, key) for key in opted_in}
    documents = [
        _document(policy, [key for key, other in chosen.items() if other is policy])
        for policy in policies.all()
    ]
    session.show_list(documents, _COLUMNS)
    has_problem = None in chosen.values() or any(d["problem"] for d in documents)
    return EXIT_NEGATIVE if has_problem else EXIT_OK


def _choose(session: Session, policies: PolicySet, key: ClusterKey) -> Policy | None:
    """Return the policy of a Cluster; without one, warn and return `None`."""
    try:
        return policies.for_cluster(key)
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
    unused = policy.cluster is not None and not clusters
    problem = "is for no opted-in Cluster: check clusterRef and the opt-in" if unused else None
    names = [f"{key.namespace}/{key.name}" for key in clusters]
    return {**document, "clusters": names, "problem": problem}
