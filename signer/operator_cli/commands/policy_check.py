"""`policy check`: reads a policy file as the signer does, and compares it with the Clusters."""

from collections.abc import Iterator, Mapping

from common.names import CLIENT_SIGNER
from signer.config import ConfigError, load_policy_file
from signer.operator_cli.errors import EXIT_NEGATIVE, EXIT_OK, InputInvalid
from signer.operator_cli.output import Column, field
from signer.operator_cli.session import Session
from signer.operator_cli.snapshot import Snapshot
from signer.policy import PolicySet

_COLUMNS = (
    Column("POLICY", field("policy")),
    Column("TRUST", field("trust")),
    Column("CLUSTERS", field("clusters")),
    Column("PROBLEMS", field("problems")),
)


def run(session: Session) -> int:
    """Print each policy with the opted-in Clusters that it is for."""
    try:
        policies, _ = load_policy_file(session.arguments.file)
    except ConfigError as e:
        raise InputInvalid("\n".join(e.problems)) from e
    snapshot = None if session.arguments.offline else session.snapshot()
    documents = list(_documents(policies, snapshot))
    session.show_list(documents, _COLUMNS)
    without_policy = [] if snapshot is None else list(_without_policy(policies, snapshot))
    for name in without_policy:
        session.warn(f"Cluster {name} has opted in, and no policy is for it: it gets nothing")
    problems = without_policy or any(d["problems"] for d in documents)
    return EXIT_NEGATIVE if problems else EXIT_OK


def _documents(policies: PolicySet, snapshot: Snapshot | None) -> Iterator[Mapping[str, object]]:
    opted_in = [] if snapshot is None else [c.key for c in snapshot.opted_in()]
    for policy in policies.all():
        problems = []
        if policy.cluster is None:
            clusters = [key for key in opted_in if key not in policies.by_cluster]
        else:
            clusters = [policy.cluster]
            if snapshot is not None:
                problems = list(_reference_problems(policy.cluster, snapshot))
        yield {
            "policy": policy.name,
            "trust": policy.trust.value,
            "clusters": [f"{key.namespace}/{key.name}" for key in clusters]
            if policy.cluster or snapshot is not None
            else ["every other Cluster"],
            "problems": problems,
        }


def _reference_problems(key: object, snapshot: Snapshot) -> Iterator[str]:
    [*matching] = [c for c in snapshot.clusters if c.key == key]
    if not matching:
        yield "clusterRef names no Cluster"
    elif CLIENT_SIGNER not in snapshot.signers[matching[0].key]:
        yield "the Cluster has not opted in"


def _without_policy(policies: PolicySet, snapshot: Snapshot) -> Iterator[str]:
    if policies.default is not None:
        return
    for cluster in snapshot.opted_in():
        if cluster.key not in policies.by_cluster:
            yield f"{cluster.key.namespace}/{cluster.key.name}"
