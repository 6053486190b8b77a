"""What a claim says about the renewals of its node: refused or overdue.

The condition of the Machine, the metrics and the commands of operators all show what `find_problem`
returns, so they agree. It depends on the claim, the time, and whether the claims went back. So the
answer is the same in each replica, and after a restart.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final

from common.formats.strict_json import format_time
from signer.errors import ClaimsOutOfDate, RenewalOverdue
from signer.kinds.attested_node import AttestedNodeObject
from signer.kinds.cluster import ClusterKey
from signer.seams import WentBack

RENEWAL_DEADLINE: Final = 0.85
"""Share of a client certificate's lifetime after which its renewal is overdue. The plugin renews
between 0.7 and 0.8 (authenticator/state/credential.py); the rest is for exchanges that fail."""


class ProblemKind(Enum):
    """What is wrong with the renewals of a node."""

    REFUSED = "Refused"
    """The signer denied the last request of the node, or lets it wait."""
    OVERDUE = "Overdue"
    """The node has filed no request that was refused, and has not renewed its certificate."""
    UNKNOWN = "Unknown"
    """The claims of the Cluster went back: the node may have renewed since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProblem:
    """Why a node that has attested will lose its certificate."""

    kind: ProblemKind
    reason: str
    message: str


def renewal_deadline(issued: datetime, not_after: datetime) -> datetime:
    """Return when the renewal of a client certificate is overdue, in whole seconds."""
    return (issued + (not_after - issued) * RENEWAL_DEADLINE).replace(microsecond=0)


def find_problem(
    node: AttestedNodeObject,
    now: datetime,
    went_back: Callable[[ClusterKey], WentBack | None],
) -> NodeProblem | None:
    """Return what is wrong with the renewals of a node, `None` if nothing is.

    A claim without a deadline is of an earlier version, or of a node whose client certificate
    another program made. Its renewal is overdue when its last certificate has expired, if the
    signer has issued a client certificate to it at all.

    `went_back` returns the last loss of claims of a Cluster. It is called only for a node with a
    problem: the claim that shows it may be older than the last renewal of the node. What
    `went_back` raises is raised.
    """
    refusal, deadline = node.last_refusal, node.renewal_deadline or node.not_after
    if refusal is not None:
        kind, reason, message = ProblemKind.REFUSED, refusal.reason, refusal.message
        seen = refusal.time
    elif now >= deadline and node.credential_ids:
        kind, reason = ProblemKind.OVERDUE, RenewalOverdue.reason
        message = f"the node has not renewed its certificate by {format_time(deadline)}"
        seen = node.last_attested
    else:
        return None
    lost = went_back(node.cluster)
    if lost is not None and lost.covers(seen, now):
        kind, reason = ProblemKind.UNKNOWN, ClaimsOutOfDate.reason
        message = "claims were lost: the node may have renewed since, and its next renewal shows it"
    verb = "is valid until" if now < node.not_after else "expired at"
    until = f"the last certificate of the node {verb} {format_time(node.not_after)}"
    return NodeProblem(kind=kind, reason=reason, message=f"{message}; {until}")
