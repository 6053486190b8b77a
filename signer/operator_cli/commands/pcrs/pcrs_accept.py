"""`pcrs accept`: adds the values that a group of nodes has to their policy."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from common.formats.strict_json import format_time
from signer.kinds.policy import POLICIES
from signer.kube.transport.client import MAY_HAVE_CHANGED
from signer.operator_cli.commands.pcrs.pcrs_review import (
    ACCEPT,
    RETRY,
    Review,
    choose_group,
    describe_nodes,
    read_reviews,
)
from signer.operator_cli.errors import EXIT_OK, InputInvalid, Rejected
from signer.operator_cli.session import Session
from signer.policy.changes.boot_review import Group, add_values, describe_change


def run(session: Session) -> int:
    """Show the group, ask, and add its values."""
    review, group = choose_group(session, read_reviews(session), ACCEPT)
    until = session.arguments.until
    _require_sensible_end(session, review, group)
    names = sorted(f"{node.cluster}/{node.name}" for node in group.nodes)
    consequence = (
        f"{describe_change(group)}. Nodes that quoted these values ({len(names)}):"
        f" {', '.join(names)}\n"
        "Root on a node can extend a PCR: compare the values with those of the vendor, or of a"
        " machine that you updated yourself. After this, a node of these may have them"
        f"{f' until {format_time(until)}' if until else ''}: {describe_nodes(review, group)}."
    )
    change_policy(session, review, group, partial(add_values, until=until), consequence)
    session.report(f"KubeletAttestationPolicy {group.policy}: values added")
    session.stdout.write(f"{RETRY}\n")
    return EXIT_OK


def _require_sensible_end(session: Session, review: Review, group: Group) -> None:
    """Raise if the end has passed, or would also end what is allowed already."""
    until = session.arguments.until
    if until is None:
        return
    if until <= session.now:
        raise InputInvalid("--until must be today or later")
    if review.reviewed.allows_elsewhere(group, session.now):
        raise Rejected(
            "the policy allows one of these values for another PCR or for other Machines, where it"
            " would end, too",
            hint="accept the group without --until",
        )


def change_policy(
    session: Session,
    review: Review,
    group: Group,
    edit: Callable[[Mapping[str, Any], Group], dict[str, Any]],
    consequence: str,
) -> None:
    """Ask, and write what `edit` returns, if the policy is still the one that was read.

    Raises `CommandError`.
    """
    if session.arguments.yes and session.arguments.group != group.digest:
        raise InputInvalid(
            "--yes must follow the group with all 64 digits",
            hint=f"compare its values first; then the group is {group.digest}",
        )
    values = "".join(f"  {value}\n" for value in group.values)
    session.confirm(f"{values}{consequence}", flags=f"--yes and the whole group {group.digest}")
    spec = edit(review.reviewed.spec, group)
    write_policy(session, group.policy, {"resourceVersion": review.resource_version}, spec)


def write_policy(
    session: Session, name: str, metadata: Mapping[str, Any], spec: Mapping[str, Any]
) -> None:
    """Write the rules on the boot, if the policy still has the resourceVersion in `metadata`.

    Raises `Rejected`.
    """
    changed = {key: spec[key] for key in ("pcrs", "eventLog") if key in spec}
    if "pcrs" in changed:
        changed["pcrs"] = {"until": None, **changed["pcrs"]}  # a merge patch removes what is null
    if not session.api.merge_patch(
        POLICIES.object_path(name),
        {"metadata": metadata, "spec": changed},
        accepted=MAY_HAVE_CHANGED,
    ).succeeded:
        raise Rejected(
            f"KubeletAttestationPolicy {name} has changed meanwhile",
            hint="run the command `pcrs review`, and then this command again",
        )
