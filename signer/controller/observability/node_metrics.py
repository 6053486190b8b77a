"""Metrics for Prometheus about nodes whose certificates will end."""

from collections.abc import Callable, Iterator
from heapq import nlargest
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from signer.controller.reports.derived_conditions import CountsByCluster
from signer.errors import RenewalOverdue
from signer.node_problem import ProblemKind

_MAX_CLUSTERS: Final = 1000


class NodeMetrics(Collector):
    """Nodes whose renewal was refused or is overdue; of very many Clusters, those with most."""

    def __init__(self, nodes: Callable[[], CountsByCluster]) -> None:
        """Take the numbers from `nodes` when they are collected."""
        self._nodes = nodes

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield all metrics."""
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
        largest = nlargest(
            _MAX_CLUSTERS, self._nodes().items(), key=lambda pair: pair[1].problems.total()
        )
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
