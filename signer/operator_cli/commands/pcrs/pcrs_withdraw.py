"""`pcrs withdraw`: removes a value that no node has any more from its policy."""

from signer.operator_cli.commands.pcrs.changes import change_policy, require_whole
from signer.operator_cli.commands.pcrs.reviews import (
    WITHDRAW,
    choose_group,
    describe_nodes,
    read_reviews,
)
from signer.operator_cli.errors import EXIT_OK
from signer.operator_cli.session import Session
from signer.policy.changes.boot_review import remove_values


def run(session: Session) -> int:
    """Show the value, ask, and remove it."""
    [digits] = session.arguments.targets
    review, group = choose_group(read_reviews(session), digits, WITHDRAW)
    stored = review.stored
    consequence = (
        "No node has this value. After this, a node that boots with it, for example a new machine"
        " with the former firmware, gets no certificate:"
        f" {describe_nodes(stored.reviewed.policy, group)}."
    )
    spec = remove_values(stored.reviewed.spec, group)
    change_policy(session, stored, spec, consequence, hint=require_whole(session, [group]))
    return EXIT_OK
