"""`policy check`: reads policies as the signer does, and compares them with the Clusters.

The policies of a FILE are laid over the objects by their names, as `kubectl diff` does: what is
shown is what would be in force after `kubectl apply`.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from common.errors import AttestationError
from signer.inventory.cluster_api.cluster import ClusterObject
from signer.kinds.cluster import ClusterKey
from signer.operator_cli.errors import EXIT_NEGATIVE, EXIT_OK, InputInvalid
from signer.operator_cli.keys.key_input import read_text
from signer.operator_cli.output import Column, Document, field
from signer.operator_cli.policies import read_policy_objects
from signer.operator_cli.session import Session
from signer.policy.load import PolicyFileInvalid, load_policies
from signer.policy.policy import Policy, PolicySet, RefusedPolicy

_COLUMNS = (
    Column("POLICY", field("policy")),
    Column("TRUST", field("trust")),
    Column("CLUSTERS", field("clusters"), below=True),
    Column("PROBLEM", field("problem"), below=True),
)
_MAX_FILE: Final = 4 << 20
"""Bytes of a file: an object has 1.5 MiB at most, and a file may have several."""


def run(session: Session) -> int:
    """Print each policy with the opted-in Clusters that it is for."""
    policies = _read(session)
    if session.arguments.offline:
        session.show_list([_document(p, None) for p in policies.accepted], _COLUMNS)
        return EXIT_OK
    clusters = session.snapshot().opted_in()
    chosen = {cluster.key: _choose(session, policies, cluster) for cluster in clusters}
    conflicts = _conflicts(policies, clusters)
    documents = [
        _document(
            policy,
            [key for key, other in chosen.items() if other is policy],
            conflicts[policy.name],
        )
        for policy in policies.accepted
    ]
    documents += map(_refused_document, policies.refused)
    session.show_list(documents, _COLUMNS)
    has_problem = None in chosen.values() or any(d["problem"] for d in documents)
    return EXIT_NEGATIVE if has_problem else EXIT_OK


def _read(session: Session) -> PolicySet:
    """Return the policies of the file, if there is one, and the objects with other names."""
    file, is_offline = session.arguments.file, session.arguments.offline
    if file is None and is_offline:
        raise InputInvalid("--offline needs a FILE")
    given = () if file is None else _read_file(file)
    stored = PolicySet(accepted=()) if is_offline else read_policy_objects(session.api)
    names = {policy.name for policy in given}
    return PolicySet.of((*given, *(p for p in stored.every if p.name not in names)))


def _read_file(path: Path) -> tuple[Policy, ...]:
    try:
        return load_policies(read_text(path, _MAX_FILE)).accepted
    except PolicyFileInvalid as error:
        raise InputInvalid("\n".join(f"{path}: {each}" for each in error.problems)) from error


def _choose(session: Session, policies: PolicySet, cluster: ClusterObject) -> Policy | None:
    """Return the policy of a Cluster; without one, warn and return `None`."""
    key = cluster.key
    try:
        return policies.for_cluster(key, cluster.labels)
    except AttestationError as error:
        session.warn(
            f"with these policies, Cluster {key} gets no certificate:"
            f" {error.reason}: {error.message}" + (f": {error.detail}" if error.detail else "")
        )
        return None


def _conflicts(
    policies: PolicySet, clusters: Sequence[ClusterObject]
) -> Mapping[str, Sequence[ClusterKey]]:
    """Return, by the name of a policy, the Clusters that other policies are for as well."""
    conflicts = defaultdict(list)
    for cluster in clusters:
        selecting = policies.selecting(cluster.key, cluster.labels)
        if len(selecting) > 1:
            for policy in selecting:
                conflicts[policy.name].append(cluster.key)
    return conflicts


def _document(
    policy: Policy, clusters: Sequence[ClusterKey] | None, conflicts: Sequence[ClusterKey] = ()
) -> Document:
    """Return what is printed of a policy; `clusters` is `None` if they are not known."""
    document: Mapping[str, object] = {
        "policy": policy.name,
        "trust": policy.endorsement_key.trust.value,
    }
    if clusters is None:
        return {**document, "clusters": None, "problem": None}
    problem = None
    if conflicts:
        problem = f"other policies are also for {', '.join(_names(conflicts))}: change all but one"
    elif policy.clusters is not None and not clusters:
        problem = "is for no opted-in Cluster: check its selector and the opt-in"
    return {**document, "clusters": _names(clusters), "problem": problem}


def _names(clusters: Sequence[ClusterKey]) -> list[str]:
    return list(map(str, clusters))


def _refused_document(policy: RefusedPolicy) -> Document:
    problem = f"is invalid: {'; '.join(policy.problems)}"
    return {"policy": policy.name, "trust": None, "clusters": [], "problem": problem}
