"""Why an opted-in Cluster is not served, as its users and reports read it."""

from dataclasses import dataclass
from typing import Final

FORBIDDEN: Final = "Forbidden"
"""Reason of a problem: RBAC does not allow the signer what it needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionProblem:
    """Why an opted-in Cluster is not served."""

    reason: str
    message: str
    """The next step of the operator; it may be shown in the Cluster's namespace."""
    reachable: bool = False
    """Whether its API server answers."""


CONNECTING: Final = ConnectionProblem(
    reason="Connecting", message="the signer has not read the workload cluster's objects yet"
)
