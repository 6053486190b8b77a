"""`pcrs withdraw`: removes a value that no node has any more from its policy."""

from signer.operator_cli.commands.pcrs.pcrs_accept import change_policy
from signer.operator_cli.commands.pcrs.pcrs_review import (
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
    review, group = choose_group(session, read_reviews(session), WITHDRAW)
    consequence = (
        "No node has this value. After this, a node that boots with it, for example a new machine"
        f" with the former firmware, gets no certificate: {describe_nodes(review, group)}."
    )
    change_policy(session, review, group, remove_values, consequence)
    session.report(f"KubeletAttestationPolicy {group.policy}: value withdrawn")
    return EXIT_OK
