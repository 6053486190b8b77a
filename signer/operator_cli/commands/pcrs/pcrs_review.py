"""`pcrs review`: measured values that a policy does not allow, and values of it that no node has.

The signer writes into the claim of a node what its TPM quoted. Claims that are not complete are
left out: a tenant may write AttestedNodes where no admission policy prevents it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from common.errors import Waiting
from common.printed_command import printed_command
from signer.inventory.custom_resources.policy_object import read_policy
from signer.kinds.attested_node import AttestedNodeObject
from signer.kinds.policy import POLICIES
from signer.operator_cli.commands.fleet.nodes import has_complete_claim
from signer.operator_cli.errors import EXIT_NEGATIVE, EXIT_OK, Rejected
from signer.operator_cli.management.snapshot import Snapshot
from signer.operator_cli.output import SHORT_KEY, Column, Document, field
from signer.operator_cli.session import Session
from signer.policy.changes.boot_review import (
    Group,
    NodeBoot,
    ReviewedPolicy,
    describe_change,
    find_refused,
    find_unused,
)
from signer.policy.policy import Policy, PolicySet, describe_clusters

_COLUMNS = (
    Column("GROUP", lambda document: document["group"][:SHORT_KEY]),
    Column("STATE", field("state")),
    Column("POLICY", field("policy")),
    Column("NODES", field("nodes")),
    Column("CHANGE", field("change")),
    Column("CLUSTERS", field("clusters"), below=True),
    Column("VALUES", field("values"), below=True),
    Column("NEXT-STEP", field("nextStep"), below=True),
)
ACCEPT: Final = "accept"
WITHDRAW: Final = "withdraw"
_MIN_DIGITS: Final = 6
RETRY: Final = (
    "Each node renews at its next try, within half an hour, or at once with"
    " kubelet-authenticator-tpm renew"
)
_STATES: Final = {ACCEPT: "NotAllowed", WITHDRAW: "Unused"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """What can be done about one policy."""

    reviewed: ReviewedPolicy
    resource_version: str
    groups: dict[str, list[Group]]
    """By the action for which they are."""
    waiting: int
    """How many nodes were refused and are in no group: the policy allows their values by now."""


def run(session: Session) -> int:
    """Print one row for each group; values that are not allowed make the exit status 1."""
    reviews = read_reviews(session)
    waiting = sum(review.waiting for review in reviews)
    if waiting:
        session.warn(f"nodes that were refused for values that are allowed now: {waiting}. {RETRY}")
    session.show_list(
        [
            _document(action, group)
            for review in reviews
            for action, groups in review.groups.items()
            for group in groups
        ],
        _COLUMNS,
        name=lambda document: str(document["group"]),
    )
    return EXIT_NEGATIVE if any(review.groups[ACCEPT] for review in reviews) else EXIT_OK


def read_reviews(session: Session) -> Sequence[Review]:
    """Compare all nodes of all Clusters with their policies. Raises `CommandError`."""
    snapshot = session.snapshot()
    bodies = session.api.list_objects(POLICIES.collection_path())
    policies = PolicySet.of(read_policy(body).policy for body in bodies)
    by_policy: dict[str, list[tuple[AttestedNodeObject, NodeBoot]]] = {}
    for node, policy in _with_policies(snapshot, policies):
        by_policy.setdefault(policy.name, []).append((node, _boot_of(node, snapshot)))
    specs: dict[str, dict[str, Any]] = {body["metadata"]["name"]: body for body in bodies}
    reviews = []
    for policy in policies.accepted:
        reviewed = ReviewedPolicy(policy=policy, spec=specs[policy.name]["spec"])
        having = by_policy.get(policy.name, [])
        proved = [boot for node, boot in having if has_complete_claim(node, snapshot)]
        every = [] if snapshot.unreadable else [b for n, b in having if snapshot.machine_of(n)]
        groups = {
            ACCEPT: find_refused(reviewed, proved, session.now),
            WITHDRAW: find_unused(reviewed, every),
        }
        refused = sum(boot.refused is not None for boot in proved)
        grouped = sum(n.refused is not None for group in groups[ACCEPT] for n in group.nodes)
        version = specs[policy.name]["metadata"]["resourceVersion"]
        reviews.append(
            Review(
                reviewed=reviewed,
                resource_version=version,
                groups=groups,
                waiting=refused - grouped,
            )
        )
    return reviews


def choose_group(session: Session, reviews: Sequence[Review], action: str) -> tuple[Review, Group]:
    """Return the group that the operator names. Raises `Rejected`."""
    digest = session.arguments.group.lower()
    found = [
        (review, group)
        for review in reviews
        for group in review.groups[action]
        if len(digest) >= _MIN_DIGITS and group.digest.startswith(digest)
    ]
    if len(found) != 1:
        problem = "fits several groups" if found else f"is no group to {action}"
        hint = "run the command `pcrs review` for the groups: they change with the nodes"
        raise Rejected(f"{digest} {problem}", hint=hint)
    return found[0]


def describe_nodes(review: Review, group: Group) -> str:
    """Return as words for which nodes the values of a group count."""
    labels = "".join(f", {key}={value}" for key, value in sorted(group.machine_labels.items()))
    where = f", Machines with{labels.removeprefix(',')}" if labels else ""
    return describe_clusters(review.reviewed.policy.clusters) + where


def _document(action: str, group: Group) -> Document:
    return {
        "group": group.digest,
        "state": _STATES[action],
        "policy": group.policy,
        "machineLabels": dict(group.machine_labels) or None,
        "nodes": len(group.nodes),
        "change": describe_change(group),
        "clusters": sorted({str(node.cluster) for node in group.nodes}),
        "values": list(map(str, group.values)),
        "nextStep": printed_command("kubectl attestation pcrs", action, group.digest),
    }


def _with_policies(
    snapshot: Snapshot, policies: PolicySet
) -> Iterable[tuple[AttestedNodeObject, Policy]]:
    """Yield the nodes of Clusters that have a policy, with it."""
    of_clusters = {}
    for cluster in snapshot.clusters:
        try:
            of_clusters[cluster.key] = policies.for_cluster(cluster.key, cluster.labels)
        except Waiting:
            continue
    return ((n, of_clusters[n.cluster]) for n in snapshot.nodes if n.cluster in of_clusters)


def _boot_of(node: AttestedNodeObject, snapshot: Snapshot) -> NodeBoot:
    machine = snapshot.machine_of(node)
    return NodeBoot(
        cluster=node.cluster,
        name=node.node_name,
        machine_labels={} if machine is None else machine.labels,
        attested=node.measured,
        refused=None if node.last_refusal is None else node.last_refusal.measured,
    )
