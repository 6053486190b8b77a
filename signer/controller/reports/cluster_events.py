"""Reports whether each Cluster is served: log, Events, metrics and the status of the policies.

Each replica reports the Clusters that it serves. Without these reports, an operator would find a
Cluster that is not served only when its nodes do not join.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

from common.errors import ApiServerUnavailable
from signer.clusters.connection_problem import ConnectionProblem
from signer.controller.policies.active import ActivePolicies
from signer.controller.reports.cluster_state import (
    TRANSIENT,
    ClusterReport,
    add_expiry,
    add_unreadable,
    report_cluster,
)
from signer.fairness.outbox import BATCH_SIZE, Outbox
from signer.inventory.cluster_api.cluster import ClusterObject, cluster_reference
from signer.kinds.cluster import ClusterKey
from signer.kube.events import EventRecorder
from signer.kube.unreadable import UnreadableObject

_logger = logging.getLogger(__name__)

_TRANSIENT_SECONDS: Final = 30.0
"""How long a Cluster may be in a transient state before that is reported."""
_REPEAT_SECONDS: Final = 3600.0
"""Seconds until an Event is written again. The API server keeps Events for an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connections:
    """What is known of the connections to workload clusters."""

    serves: Callable[[ClusterKey], bool]
    """Whether this replica serves a Cluster."""
    is_counting_replica: Callable[[], bool]
    """Whether this replica counts the Clusters of each policy."""
    opted_in_signers: Callable[[ClusterObject], frozenset[str]]
    """The client signers of a Cluster. Raises `ApiServerUnavailable`."""
    problem: Callable[[ClusterKey], ConnectionProblem | None]
    """Why an opted-in Cluster is not served, `None` if it is."""
    credential_expiry: Callable[[ClusterKey], datetime | None]
    """When the certificate of the connection expires, `None` if it has none."""
    unreadable: Callable[[], Iterable[UnreadableObject]] = tuple
    """The objects of all API servers that cannot be read."""


@dataclass(slots=True)
class _Reported:
    """What was reported of a Cluster, and since when it is in its present state."""

    present: ClusterReport
    since: float
    logged: ClusterReport | None = None
    """The report in the last log line."""
    event: ClusterReport | None = None
    """The report in the last Event."""
    written: float = 0.0


class ClusterReporter:
    """The reports of all Clusters; only one thread may call `update`."""

    def __init__(
        self,
        policies: ActivePolicies,
        connections: Connections,
        events: EventRecorder,
        *,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self.own: Sequence[ClusterReport] = ()
        """The present report of each Cluster that this replica serves."""
        self.others: Sequence[ClusterReport] = ()
        """The reports of all other Clusters, as if their API servers answered."""
        self._policies = policies
        self._connections = connections
        self._events = events
        self._now = now
        self._monotonic = monotonic
        self._outbox = Outbox("event about a cluster not written", "namespace", monotonic)
        self._reported: dict[str, _Reported] = {}
        """By the UID of the Cluster."""

    def update(self, clusters: Iterable[ClusterObject]) -> None:
        """Report every Cluster, and write Events about changes.

        Raises `ApiServerUnavailable` before policies are known.
        """
        policies = self._policies.policies
        reports: list[ClusterReport] = []
        others: list[ClusterReport] = []
        unreadable: dict[str, list[UnreadableObject]] = defaultdict(list)
        for each in self._connections.unreadable():
            unreadable[each.cluster].append(each)
        for cluster in clusters:
            try:
                signers = self._connections.opted_in_signers(cluster)
            except ApiServerUnavailable:
                continue
            is_own = self._connections.serves(cluster.key)
            problem = self._connections.problem(cluster.key) if is_own else None
            report = report_cluster(cluster, signers, policies, problem)
            if report is not None:
                if is_own:
                    expiry = self._connections.credential_expiry(cluster.key)
                    report = add_expiry(report, expiry, self._now())
                    reports.append(add_unreadable(report, unreadable[str(cluster.key)]))
                else:
                    others.append(report)
        self.own, self.others = reports, others
        self._report_changes(reports)

    def _report_changes(self, reports: Sequence[ClusterReport]) -> None:
        uids = {report.uid for report in reports}
        self._reported = {uid: r for uid, r in self._reported.items() if uid in uids}
        lines: Counter[str] = Counter()
        due: list[_Reported] = []
        for report in reports:
            reported, now = self._reported.get(report.uid), self._monotonic()
            if reported is None:
                reported = self._reported[report.uid] = _Reported(report, now)
            elif reported.present != report:
                reported.present, reported.since = report, now
            if not _has_lasted(reported, now):
                continue
            # The log does not depend on Events. A tenant may change its Clusters at any rate.
            if reported.logged != report and lines[report.key.namespace] < BATCH_SIZE:
                lines[report.key.namespace] += 1
                _log(report)
                reported.logged = report
            if _is_due(reported, now):
                due.append(reported)
        self._outbox.write((r.present.key.namespace, partial(self._record, r)) for r in due)

    def _record(self, reported: _Reported) -> None:
        report = reported.present
        if report.message or reported.event is not None:
            reason, message = report.state, report.message
            if report.served:
                reason = "ClusterServed"
                message = "; ".join(filter(None, ("the signer serves the Cluster", message)))
            regarding = cluster_reference(report.key, report.uid)
            self._events.record(regarding, reason, message, self._now(), warning=not report.served)
        reported.event, reported.written = report, self._monotonic()


def _has_lasted(reported: _Reported, now: float) -> bool:
    return reported.present.state not in TRANSIENT or now - reported.since >= _TRANSIENT_SECONDS


def _is_due(reported: _Reported, now: float) -> bool:
    report, repeats = reported.present, not reported.present.served
    return reported.event != report or (repeats and now - reported.written > _REPEAT_SECONDS)


def _log(report: ClusterReport) -> None:
    fields = report.key.log_fields() | {"policies": list(report.policies)}
    if report.message:
        fields |= {"message": report.message}
    if report.served:
        _logger.info("cluster served", extra={"fields": fields})
        return
    fields |= {"reason": report.state, "alarm": True}
    _logger.warning("cluster not served", extra={"fields": fields})
