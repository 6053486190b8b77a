"""Metrics for Prometheus about nodes whose certificates will end."""

from collections.abc import Callable, Iterator
from heapq import nlargest
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from signer.claims.node_problem import ProblemKind
from signer.controller.reports.derived_conditions import CountsByCluster
from signer.errors import RenewalOverdue

_MAX_CLUSTERS: Final = 1000


def collect_nodes(nodes: Callable[[], CountsByCluster]) -> Iterator[Metric]:
    """Yield how many renewals are refused or overdue; of very many Clusters, the worst."""
    refused = GaugeMetricFamily(
        "node_attestation_refused_nodes",
        "Nodes of a Cluster of this replica whose last request for a certificate was refused.",
        labels=("namespace", "cluster", "reason"),
    )
    overdue = GaugeMetricFamily(
        "node_attestation_overdue_nodes",
        "Nodes of a Cluster of this replica that have not renewed their certificate in time.",
        labels=("namespace", "cluster"),
    )
    end = GaugeMetricFamily(
        "node_attestation_certificate_not_after_seconds",
        "When the next certificate of a node expires, by the state of renewals, as Unix time.",
        labels=("namespace", "cluster", "renewal"),
    )
    largest = nlargest(_MAX_CLUSTERS, nodes().items(), key=lambda pair: pair[1].problems.total())
    for key, counts in largest:
        labels = (key.namespace, str(key))
        overdue.add_metric(labels, counts.problems[ProblemKind.OVERDUE, RenewalOverdue.reason])
        for (kind, reason), count in counts.problems.items():
            if kind is ProblemKind.REFUSED:
                refused.add_metric((*labels, reason), count)
        for problem, not_after in counts.earliest_ends.items():
            renewal = "" if problem is None else problem.value
            end.add_metric((*labels, renewal), not_after.timestamp())
    yield from (refused, overdue, end)
