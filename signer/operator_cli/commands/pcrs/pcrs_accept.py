"""`pcrs accept`: allows what nodes measured, in their policy, in another one or in a new one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

from common.formats.strict_json import format_time
from signer.operator_cli.commands.pcrs.changes import (
    change_policy,
    edited,
    policy_in_the_way,
    require_later,
    require_whole,
)
from signer.operator_cli.commands.pcrs.pcrs_review import RETRY
from signer.operator_cli.commands.pcrs.reviews import (
    ACCEPT,
    Review,
    StoredPolicy,
    choose_group,
    describe_nodes,
    read_policies,
    read_reviews,
)
from signer.operator_cli.errors import EXIT_OK, InputInvalid, Rejected
from signer.operator_cli.session import Session
from signer.policy.changes.boot_review import (
    Group,
    NodeBoot,
    add_values,
    allows_elsewhere,
    describe_change,
    find_recorded,
    find_refused,
    missing_pcrs,
)
from signer.policy.changes.edits import ReviewedPolicy
from signer.policy.policy import PcrMode


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """What the operator names: groups and nodes of one policy."""

    source: Review
    groups: Sequence[Group]
    nodes: Sequence[NodeBoot]

    @property
    def every_node(self) -> Sequence[NodeBoot]:
        """Return the nodes, and those of the groups."""
        return [*self.nodes, *(node for group in self.groups for node in group.nodes)]


def run(session: Session) -> int:
    """Show what is added and which nodes may have it then, ask, and change the policy."""
    require_later(session)
    reviews = read_reviews(session)
    choice = _choose(session, reviews)
    into = _into(session, reviews, choice)
    groups = _missing_groups(session, choice, into)
    _require_sensible_end(session, into, groups)
    if into is choice.source:
        hint = require_whole(session, groups)
    else:
        hint = "print the policy with --dry-run=client, read it, and apply it"
        if session.arguments.yes:
            raise InputInvalid("--yes is only for the policy of the nodes", hint=hint)
    _warn_of_unset(session, groups)
    reviewed, until = into.stored.reviewed, session.arguments.until
    spec = reduce(lambda spec, group: add_values(spec, group, until), groups, reviewed.spec)
    consequence = _describe(session, choice, into, groups)
    consequence += _describe_others(session, into, edited(into.stored, spec))
    change_policy(session, into.stored, spec, consequence, hint=hint)
    is_refused = any(node.refused for group in groups for node in group.nodes)
    if is_refused and session.arguments.dry_run != "client":
        session.stdout.write(f"{RETRY}\n")
    return EXIT_OK


def _choose(session: Session, reviews: Sequence[Review]) -> _Choice:
    sources, groups, nodes = {}, [], []
    for word in session.arguments.targets:
        if "/" in word:
            review, node = _find_node(reviews, word)
            nodes.append(node)
        else:
            review, group = choose_group(reviews, word, ACCEPT)
            groups.append(group)
        sources[review.stored.name] = review
    if len(sources) > 1:
        raise Rejected(
            f"groups and nodes must have one policy, and these have {', '.join(sorted(sources))}",
            hint="run this command once for each policy",
        )
    [source] = sources.values()
    return _Choice(source=source, groups=groups, nodes=nodes)


def _find_node(reviews: Sequence[Review], word: str) -> tuple[Review, NodeBoot]:
    for review in reviews:
        for node in review.nodes:
            if str(node) == word:
                return review, node
    raise Rejected(
        f"{word} must be a node with a valid policy and a complete claim",
        hint="run the commands `nodes` and `policy check`",
    )


def _into(session: Session, reviews: Sequence[Review], choice: _Choice) -> Review:
    """Return the policy that is changed; a new one, if none has the name of `--policy`.

    Raises `Rejected`: an invalid one has it, and its rules would be lost.
    """
    name = session.arguments.policy or choice.source.stored.name
    found = [review for review in reviews if review.stored.name == name]
    if found:
        return found[0]
    _, bodies = read_policies(session)
    if name in bodies:
        raise policy_in_the_way(name)
    return _new_policy(name, choice)


def _new_policy(name: str, choice: _Choice) -> Review:
    """Return the policy of the nodes for their Cluster alone, under another name."""
    source = choice.source.stored
    clusters = {node.cluster for node in choice.every_node}
    if source.reviewed.policy.clusters is not None:
        raise Rejected(
            f"KubeletAttestationPolicy {source.name} names its Clusters: with a second policy for"
            " them they get no certificate",
            hint=f"leave out --policy, which changes {source.name}",
        )
    if len(clusters) > 1:
        raise Rejected(
            "a new policy is for one Cluster, and these nodes are of"
            f" {', '.join(sorted(map(str, clusters)))}",
            hint="run this command once for each Cluster",
        )
    [cluster] = clusters
    selector = {"clusterRef": {"namespace": cluster.namespace, "name": cluster.name}}
    reviewed = ReviewedPolicy.of(name, {**selector, **source.reviewed.spec})
    return Review(
        stored=StoredPolicy(reviewed=reviewed, body={"metadata": {"name": name}}),
        nodes=[node for node in choice.source.nodes if node.cluster == cluster],
        groups={},
    )


def _missing_groups(session: Session, choice: _Choice, into: Review) -> Sequence[Group]:
    """Return the values that the policy lacks. Raises `Rejected`: none, or they are not known."""
    is_own = into is choice.source
    nodes = choice.nodes if is_own else choice.every_node
    for node in nodes:
        _require_known(node, into.stored)
    reviewed = into.stored.reviewed
    found = [*find_refused(reviewed, nodes, session.now), *find_recorded(reviewed, nodes)]
    groups = {group.digest: group for group in (*found, *(choice.groups if is_own else ()))}
    if not groups:
        raise Rejected(
            f"KubeletAttestationPolicy {into.stored.name} allows already what these nodes measured"
        )
    return list(groups.values())


def _require_known(node: NodeBoot, stored: StoredPolicy) -> None:
    is_recorded = stored.reviewed.policy.pcrs.mode is PcrMode.RECORD
    missing = missing_pcrs(stored.reviewed, node.attested if is_recorded else node.present)
    if missing:
        raise Rejected(
            f"{node} must have quoted {', '.join(missing)}, which KubeletAttestationPolicy"
            f" {stored.name} selects",
            hint="select these PCRs in the policy of the node, and renew its certificate there:"
            " kubelet-authenticator-tpm renew",
        )


def _require_sensible_end(session: Session, into: Review, groups: Iterable[Group]) -> None:
    """Raise `Rejected` if the end would also end what is allowed already."""
    reviewed = into.stored.reviewed
    if session.arguments.until is not None and any(
        allows_elsewhere(reviewed, group, session.now) for group in groups
    ):
        raise Rejected(
            "the policy allows one of these values for another PCR or for other Machines, where it"
            " would end, too",
            hint="accept the group without --until",
        )


def _warn_of_unset(session: Session, groups: Iterable[Group]) -> None:
    values = {value for group in groups for value in group.values if value.is_unset}
    if values:
        places = ", ".join(sorted(":".join(value.where) for value in values))
        session.warn(
            f"a node measured nothing into {places}: leave such PCRs out of selection, unless they"
            " must stay unset"
        )


def _describe(session: Session, choice: _Choice, into: Review, groups: Sequence[Group]) -> str:
    policy, until = into.stored.reviewed.policy, session.arguments.until
    lines = []
    if "resourceVersion" not in into.stored.body["metadata"]:
        source = choice.source.stored.name
        lines.append(f"{policy.name} is a new policy, for one Cluster. The rest is as in {source}.")
    for group in groups:
        names = sorted(map(str, group.nodes))
        lines.append(
            f"{describe_change(group)}. Nodes that quoted these values ({len(names)}):"
            f" {', '.join(names)}"
        )
    allowed = sorted({describe_nodes(policy, group) for group in groups})
    lines.append(
        "Root on a node can extend a PCR: compare the values with those of the vendor, or of a"
        " machine that you updated yourself. After this, a node of these may have them"
        f"{f' until {format_time(until)}' if until else ''}: {'; '.join(allowed)}."
    )
    return "\n".join(lines)


def _describe_others(session: Session, into: Review, after: ReviewedPolicy) -> str:
    """Return what happens to the nodes of the policy whose values it still does not allow."""
    others = find_refused(after, into.nodes, session.now)
    warns = after.policy.pcrs.mode is PcrMode.WARN
    alarms = [group for group in others if warns and all(v.is_of_pcr for v in group.values)]
    refused = [group for group in others if group not in alarms]
    lines = [
        f"\nOf its {len(into.nodes)} nodes, {sum(len(group.nodes) for group in groups)} have other"
        f" values: {what}."
        for groups, what in (
            (refused, "they get no certificate any more"),
            (alarms, "they get their next certificate with an alarm"),
        )
        if groups
    ]
    return "".join(lines)
