"""`pcrs review`: what nodes measured and their policy does not allow, and values of no node."""

from typing import Final

from common.printed_command import printed_command
from signer.operator_cli.commands.pcrs.reviews import ACTIONS, NOT_ALLOWED, read_reviews
from signer.operator_cli.errors import EXIT_NEGATIVE, EXIT_OK
from signer.operator_cli.output import SHORT_KEY, Column, Document, field
from signer.operator_cli.session import Session
from signer.policy.changes.boot_review import Group, describe_change

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
RETRY: Final = (
    "Each node renews at its next try, within half an hour, or at once with"
    " kubelet-authenticator-tpm renew"
)


def run(session: Session) -> int:
    """Print one row for each group; values that are not allowed make the exit status 1."""
    reviews = read_reviews(session)
    waiting = sum(review.waiting for review in reviews)
    if waiting:
        session.warn(f"nodes that were refused for values that are allowed now: {waiting}. {RETRY}")
    documents = [
        _document(state, group)
        for review in reviews
        for state, groups in review.groups.items()
        for group in groups
    ]
    session.show_list(documents, _COLUMNS, name=lambda document: str(document["group"]))
    return EXIT_NEGATIVE if any(review.groups[NOT_ALLOWED] for review in reviews) else EXIT_OK


def _document(state: str, group: Group) -> Document:
    return {
        "group": group.digest,
        "state": state,
        "policy": group.policy,
        "machineLabels": dict(group.machine_labels) or None,
        "nodes": len(group.nodes),
        "change": describe_change(group),
        "clusters": sorted({str(node.cluster) for node in group.nodes}),
        "values": list(map(str, group.values)),
        "nextStep": printed_command("kubectl attestation pcrs", ACTIONS[state], group.digest),
    }
