"""What can be done about the values of each policy: what `pcrs review` shows, and others change.

The signer writes into the claim of a node what its TPM quoted. Claims that are not complete are
left out: a tenant may write AttestedNodes where no admission policy prevents it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from common.errors import Waiting
from signer.inventory.custom_resources.policy_object import read_policy
from signer.kinds.attested_node import AttestedNodeObject
from signer.kinds.policy import POLICIES
from signer.operator_cli.commands.fleet.nodes import has_complete_claim
from signer.operator_cli.errors import Rejected
from signer.operator_cli.management.snapshot import Snapshot
from signer.operator_cli.session import Session
from signer.policy.changes.boot_review import (
    Group,
    NodeBoot,
    find_recorded,
    find_refused,
    find_unused,
)
from signer.policy.changes.edits import ReviewedPolicy, describe_labels
from signer.policy.policy import Policy, PolicySet, describe_clusters

NOT_ALLOWED: Final = "NotAllowed"
RECORDED: Final = "Recorded"
UNUSED: Final = "Unused"
ACCEPT: Final = "accept"
WITHDRAW: Final = "withdraw"
ACTIONS: Final = {NOT_ALLOWED: ACCEPT, RECORDED: ACCEPT, UNUSED: WITHDRAW}
"""What can be done about a group, by its state."""
_MIN_DIGITS: Final = 6
Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPolicy:
    """A valid policy as an object; one without a resourceVersion is not stored yet."""

    reviewed: ReviewedPolicy
    body: Body

    @property
    def name(self) -> str:
        """Return its name."""
        return self.reviewed.policy.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """What can be done about one policy."""

    stored: StoredPolicy
    nodes: Sequence[NodeBoot]
    """The nodes of its Clusters whose claims are complete."""
    groups: Mapping[str, Sequence[Group]]
    """By their state."""

    @property
    def waiting(self) -> int:
        """Return how many nodes were refused whose values the policy allows by now."""
        refused = {str(node) for node in self.nodes if node.refused is not None}
        return len(refused - {str(n) for group in self.groups[NOT_ALLOWED] for n in group.nodes})


def read_policies(session: Session) -> tuple[PolicySet, Mapping[str, Body]]:
    """Read all policies, and the objects by their names. Raises `CommandError`."""
    bodies = session.api.list_objects(POLICIES.collection_path())
    policies = PolicySet.of(read_policy(body).policy for body in bodies)
    return policies, {body["metadata"]["name"]: body for body in bodies}


def stored_policy(policy: Policy, bodies: Mapping[str, Body]) -> StoredPolicy:
    """Return a policy with its object."""
    body = bodies[policy.name]
    return StoredPolicy(reviewed=ReviewedPolicy(policy=policy, spec=body["spec"]), body=body)


def read_reviews(session: Session) -> Sequence[Review]:
    """Compare all nodes of all Clusters with their policies. Raises `CommandError`."""
    policies, bodies = read_policies(session)
    snapshot = session.snapshot()
    by_policy: dict[str, list[tuple[AttestedNodeObject, NodeBoot]]] = {}
    for node, policy in _with_policies(snapshot, policies):
        by_policy.setdefault(policy.name, []).append((node, _boot_of(node, snapshot)))
    reviews = []
    for policy in policies.accepted:
        stored = stored_policy(policy, bodies)
        having = by_policy.get(policy.name, [])
        proved = [boot for node, boot in having if has_complete_claim(node, snapshot)]
        every = [] if snapshot.unreadable else [b for n, b in having if snapshot.machine_of(n)]
        groups = {
            NOT_ALLOWED: find_refused(stored.reviewed, proved, session.now),
            RECORDED: find_recorded(stored.reviewed, proved),
            UNUSED: find_unused(stored.reviewed, every),
        }
        reviews.append(Review(stored=stored, nodes=proved, groups=groups))
    return reviews


def choose_group(reviews: Sequence[Review], digits: str, action: str) -> tuple[Review, Group]:
    """Return the group that the operator names. Raises `Rejected`."""
    digest = digits.lower()
    found = [
        (review, group)
        for review in reviews
        for state, groups in review.groups.items()
        if ACTIONS[state] == action
        for group in groups
        if len(digest) >= _MIN_DIGITS and group.digest.startswith(digest)
    ]
    if len(found) != 1:
        problem = "fits several groups" if found else f"is no group to {action}"
        hint = "run the command `pcrs review` for the groups: they change with the nodes"
        raise Rejected(f"{digest} {problem}", hint=hint)
    return found[0]


def describe_nodes(policy: Policy, group: Group) -> str:
    """Return as words for which nodes the values of a group count."""
    labels = describe_labels(group.machine_labels)
    where = f", Machines with {labels}" if labels else ""
    return describe_clusters(policy.clusters) + where


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
