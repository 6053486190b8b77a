"""The steps of all rounds, and which of them wait until the clock of this machine is trusted.

A clock that is ahead makes each offer expired, each claim stale and each certificate overdue. What
other loops compare is on the monotonic clock: Leases, pauses, ages of what was read. Source:
docs/decisions/0052-clocks-of-replicas.md.
"""

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TypeVar

from signer.kinds.cluster import ClusterKey
from signer.logs import run_logged

T = TypeVar("T")


class Step(Enum):
    """A step: what the log calls it, and whether it compares times with the machine's clock."""

    ROTATE_CHALLENGE_KEYS = "rotation of the challenge keys", True
    DELETE_STALE_CLAIMS = "deletion of stale claims", True
    DELETE_UNCLAIMED_KEYS = "deletion of unclaimed keys", True
    DELETE_AUTHORITY_LEASES = "deletion of Leases of authorities", False
    DELETE_OPT_IN_LEASES = "deletion of Leases of opt-ins", False

    NOTE_OPT_IN = "time of the opt-in", True
    """Nodes that are older keep the bindings."""
    VERIFY_AUTHORITY = "certificate authority of a Cluster", False
    READ_HOSTS = "addresses of an API server", False
    REMOVE_BINDINGS = "bindings that approve without attestation", True
    LIST_ENDED_CERTIFICATES = "list of ended certificates", False
    """It compares the times of claims with those of entries: both were written."""
    EXPIRE_ENDED_CERTIFICATES = "end of listed certificates", True
    DELETE_EXPIRED_OFFERS = "deletion of expired offers", True
    COMPARE_MARKERS = "comparison of the claims with their markers", True
    SYNC_MARKER = "marker of the claims", False
    SYNC_NODE_LABELS = "labels of Nodes", True
    SYNC_NODE_TAINTS = "taints of Nodes", True

    WRITE_REFUSALS = "refusals of nodes", False
    REPORT_BANS = "report of bans", False
    REPORT_ATTESTED_NODES = "report of attested nodes", True
    """Overdue renewals are a condition of Machines, and a MachineHealthCheck may act on it."""
    WRITE_MACHINES = "report on the Machines", False
    SYNC_KEY_REQUESTS = "requests of endorsement keys", False
    REPORT_CLUSTERS = "report on the Clusters", False
    """It compares the end of a kubeconfig's certificate, which is only shown."""
    REPORT_POLICIES = "status of the policies", False
    REPORT_UNREADABLE = "report of unreadable objects", False

    def __init__(self, title: str, compares_times: bool) -> None:  # noqa: FBT001 # a column
        self.title = title
        self.compares_times = compares_times


class Steps:
    """Runs the steps of all rounds; for any number of threads."""

    def __init__(self, is_clock_trusted: Callable[[], bool]) -> None:
        self._is_clock_trusted = is_clock_trusted

    def call(self, step: Step, function: Callable[[], T]) -> T | None:
        """Run a step and return its result; `None` if it has to wait for a trusted clock.

        Raises what the function raises.
        """
        if step.compares_times and not self._is_clock_trusted():
            return None
        return function()

    def run(
        self, step: Step, function: Callable[[], object], cluster: ClusterKey | None = None
    ) -> bool:
        """Run a step as `call` does, but log its exception; return whether it has not failed."""
        return run_logged(partial(self.call, step, function), step.title, cluster)
