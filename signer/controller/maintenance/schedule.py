"""When each workload cluster is maintained, each round on a thread of its own."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import Final

from signer.clusters.workload_cluster import WorkloadCluster
from signer.fairness.compute_line import ComputeLine

_INTERVAL: Final = 60.0
_RETRY_INTERVAL: Final = 10.0
"""After a round that failed."""
_MIN_INTERVAL: Final = 5.0
"""Seconds between two rounds for a cluster. A hostile cluster can request the next round at any
time, by a change of its ClusterRoleBindings."""
_FULL_INTERVAL: Final = 600.0
"""Seconds between two rounds that make requests although nothing has changed."""


@dataclass(slots=True)
class _Schedule:
    """The rounds of one workload cluster; times are on the monotonic clock."""

    round: Thread | None = None
    """The thread of the present round, or of the last one."""
    ended_at: float = -math.inf
    pause: float = 0.0
    rest: float = 0.0
    """Seconds that pass even if a round is requested, because the tenant has used up its share of
    CPU time."""
    full_at: float = -math.inf
    """When the last full round succeeded."""


class WorkloadMaintenance:
    """Starts the rounds of the open workload clusters; `sync` is for one thread."""

    def __init__(
        self,
        line: ComputeLine,
        maintain: Callable[[WorkloadCluster, bool], bool],
        *,
        closed: Callable[[WorkloadCluster], None],
        monotonic: Callable[[], float],
    ) -> None:
        """Call `maintain` with a workload cluster for each round.

        Its second argument says whether the round is full. It returns whether the round succeeded.
        Call `closed` with each workload cluster that is no longer open.
        """
        self._line = line
        self._maintain = maintain
        self._closed = closed
        self._monotonic = monotonic
        self._schedules: dict[WorkloadCluster, _Schedule] = {}

    def sync(self, open_clusters: Iterable[WorkloadCluster]) -> None:
        """Start the rounds that are due."""
        clusters = set(open_clusters)
        for workload in self._schedules.keys() - clusters:
            del self._schedules[workload]
            self._closed(workload)
        for workload in clusters:
            schedule = self._schedules.setdefault(workload, _Schedule())
            if self._is_due(workload, schedule):
                run_round = partial(self._run_round, workload, schedule)
                schedule.round = self._line.start(f"{workload.key} maintenance", run_round)

    def _is_due(self, workload: WorkloadCluster, schedule: _Schedule) -> bool:
        if schedule.round is not None and schedule.round.is_alive():
            return False
        if not workload.has_answered or workload.is_unreachable:
            # Each request would wait until its connection fails; the watches try again.
            return False
        requested = workload.maintenance_due.is_set() or workload.full_maintenance_due.is_set()
        pause = min(_MIN_INTERVAL, schedule.pause) if requested else schedule.pause
        return self._monotonic() - schedule.ended_at >= max(pause, schedule.rest)

    def _run_round(self, workload: WorkloadCluster, schedule: _Schedule) -> None:
        if workload.stopped.is_set():
            return
        # Cleared first: a request that comes during the round is for the next one.
        workload.maintenance_due.clear()
        full = self._monotonic() - schedule.full_at >= _FULL_INTERVAL
        if workload.full_maintenance_due.is_set():
            workload.full_maintenance_due.clear()
            full = True
        succeeded, rest = workload.cpu.call(partial(self._maintain, workload, full))
        now = self._monotonic()
        if not succeeded:
            schedule.full_at = -math.inf
        elif full:
            schedule.full_at = now
        schedule.pause = _INTERVAL if succeeded else _RETRY_INTERVAL
        schedule.rest = rest
        schedule.ended_at = now
