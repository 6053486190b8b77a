"""Metrics for Prometheus: verdicts, queue, Clusters, policies, and the state of this replica.

A label is a constant, a configured name, a namespace or a Cluster of the management cluster. No
content of a request is a label. A tenant may create Clusters without limit, so the number of
clusters that get a label of their own is limited.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import nlargest
from threading import Lock
from typing import Final, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from signer.controller.observability.node_metrics import collect_nodes
from signer.controller.observability.trust_metrics import collect_trust_anchors
from signer.controller.policies.object_reader import PolicyState
from signer.controller.queue.workqueue import QueueState
from signer.controller.reports.cluster_state import ClusterReport, in_order
from signer.controller.reports.derived_conditions import CountsByCluster
from signer.fairness.memory_budget import MemoryBudget
from signer.fairness.turns import in_turn
from signer.inventory.custom_resources.policy_object import PolicyObject
from signer.kinds.cluster import ClusterKey
from signer.settings.trust_bundles import TrustBundleFiles

V = TypeVar("V", int, float)
_PREFIX: Final = "node_attestation"
_MAX_CLUSTERS: Final = 1000
"""Clusters that get a label of their own: the first ones to have a verdict, or not to be served."""
_MAX_TENANTS: Final = 100
"""Clusters and namespaces in the metrics of the queue, those with the largest values."""
VERDICTS: Final = Counter(
    f"{_PREFIX}_verdicts",
    "Verdicts on certificate signing requests; a wait counts once for each reason.",
    ("cluster", "kind", "outcome", "reason", "check"),
    registry=None,
)

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
VERDICT_SECONDS: Final = Histogram(
    f"{_PREFIX}_verdict_duration_seconds",
    "Time of a worker for one verdict, with all calls to API servers.",
    ("kind",),
    registry=None,
    buckets=_SECONDS,
)
QUEUE_SECONDS: Final = Histogram(
    f"{_PREFIX}_queue_duration_seconds",
    "Time for which a request that was ready waited for a worker.",
    registry=None,
    buckets=_SECONDS,
)


class _ClusterLabels:
    """The clusters that got a label of their own."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._labels: set[str] = set()
        self._held: Tally[str] = Tally()
        """How many of them each namespace has."""

    def label(self, cluster: ClusterKey) -> str:
        name = str(cluster)
        with self._lock:
            free = _MAX_CLUSTERS - len(self._labels)
            if name not in self._labels and self._held[cluster.namespace] < free:
                self._labels.add(name)
                self._held[cluster.namespace] += 1
            return name if name in self._labels else "(other)"


cluster_label: Final = _ClusterLabels().label
"""Returns the label of a cluster, `(other)` when there are too many. A namespace gets one more only
while it has fewer than are free (signer/fairness/turns.py), so one alone has half of them."""


def build_registry(  # noqa: PLR0913 - the sources of all metrics
    bundles: Callable[[], TrustBundleFiles | None],
    queue_state: Callable[[], QueueState],
    budget: MemoryBudget,
    clusters: Callable[[], Iterable[ClusterReport]] = tuple,
    *,
    version: str = "",
    ready: Callable[[], bool] = bool,
    policies: Callable[[], Sequence[tuple[PolicyObject, PolicyState]]] = tuple,
    nodes: Callable[[], CountsByCluster] = dict,
    replicas: Callable[[], int] = int,
    clock_skew: Callable[[], float] = float,
    lost_lines: Callable[[], Mapping[str, int]] = dict,
    waits: Callable[[], Mapping[str, float]] = dict,
    unreadable: Callable[[], Mapping[tuple[str, str, str], int]] = dict,
    failing_kinds: Callable[[], Mapping[str, float]] = dict,
) -> CollectorRegistry:
    """Return the registry of all metrics of the signer, without those of the Python process."""
    # A series with the time of creation would double the number of series and shows nothing.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    for metric in (VERDICTS, VERDICT_SECONDS, QUEUE_SECONDS):
        registry.register(metric)
    for collect in (
        partial(_replica, version, ready, replicas, clock_skew),
        partial(_policies, policies),
        partial(_queue, queue_state),
        partial(_budget, budget),
        partial(collect_trust_anchors, bundles),
        partial(collect_clusters, clusters),
        partial(collect_nodes, nodes),
        partial(_lost_lines, lost_lines),
        partial(_waits, waits),
        partial(collect_unreadable, unreadable),
        partial(_failing_kinds, failing_kinds),
    ):
        registry.register(_Collected(collect))
    return registry


class _Collected(Collector):
    """Calls a function whenever the metrics are read."""

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        return self._collect()


def _queue(queue_state: Callable[[], QueueState]) -> Iterator[Metric]:
    """Yield the state of the work queue: which tenant and which cluster keep the signer busy."""
    state = queue_state()
    pending = GaugeMetricFamily(
        f"{_PREFIX}_pending_requests",
        "Requests of a cluster that are neither decided nor challenged.",
        labels=("namespace", "cluster"),
    )
    for key, count in _largest_in_turn(state.pending):
        pending.add_metric(_cluster_labels(key), count)
    busy = GaugeMetricFamily(
        f"{_PREFIX}_busy_workers",
        "Workers that reconcile requests of a namespace's clusters.",
        labels=("namespace",),
    )
    for namespace, workers in state.busy_workers.items():
        busy.add_metric((namespace,), workers)
    breakers = GaugeMetricFamily(
        f"{_PREFIX}_circuit_breaker_open",
        "1 while the API server of a cluster does not answer, so that it gets one worker at most.",
        labels=("namespace", "cluster"),
    )
    for key, _ in _largest_in_turn(dict.fromkeys(sorted(state.open_breakers, key=str), 1.0)):
        breakers.add_metric(_cluster_labels(key), 1.0)
    slow = GaugeMetricFamily(
        f"{_PREFIX}_slow_call_seconds",
        "How long calls to a cluster's API server take, where it gets fewer workers for that.",
        labels=("namespace", "cluster"),
    )
    for key, seconds in _largest_in_turn(state.slow_clusters):
        slow.add_metric(_cluster_labels(key), seconds)
    depth = GaugeMetricFamily(
        f"{_PREFIX}_queue_depth",
        "Requests that are ready and wait for a worker.",
        value=state.ready,
    )
    yield from (pending, busy, breakers, slow, depth)


def _waits(waits: Callable[[], Mapping[str, float]]) -> Iterator[Metric]:
    """Yield how long tasks have waited for what tenants share."""
    oldest = GaugeMetricFamily(
        f"{_PREFIX}_oldest_task_wait_seconds",
        "Time for which the oldest task has waited for what tenants share.",
        labels=("shared",),
    )
    for shared, seconds in waits().items():
        oldest.add_metric((shared,), seconds)
    yield oldest


def _budget(budget: MemoryBudget) -> Iterator[Metric]:
    """Yield the memory of the caches, for the tenants with the largest values."""
    used = GaugeMetricFamily(
        f"{_PREFIX}_cache_bytes",
        "Memory of cached objects of a namespace's clusters.",
        labels=("namespace",),
    )
    refused = CounterMetricFamily(
        f"{_PREFIX}_cache_refused_objects",
        "Objects of a namespace that its memory budget refused.",
        labels=("namespace",),
    )
    for namespace, value in _largest(budget.used()):
        used.add_metric((namespace,), value)
    for namespace, value in _largest(budget.refused()):
        refused.add_metric((namespace,), value)
    yield from (used, refused)


def _largest(values: Mapping[str, int]) -> list[tuple[str, int]]:
    return nlargest(_MAX_TENANTS, values.items(), key=lambda pair: pair[1])


def _largest_in_turn(values: Mapping[ClusterKey, V]) -> list[tuple[ClusterKey, V]]:
    """Return the largest value of each namespace, then the second of each, and so on."""
    largest = sorted(values.items(), key=lambda pair: pair[1], reverse=True)
    return in_turn(largest, lambda pair: pair[0].namespace)[:_MAX_TENANTS]


def _cluster_labels(key: ClusterKey) -> tuple[str, str]:
    return key.namespace, str(key)


def collect_clusters(reports: Callable[[], Iterable[ClusterReport]]) -> Iterator[Metric]:
    """Yield which Clusters are served; of very many, those first that are not, in turn."""
    served = GaugeMetricFamily(
        f"{_PREFIX}_cluster_served",
        "1 if requests of a Cluster of this replica, selected or opted in, are decided.",
        labels=("namespace", "cluster", "reason"),
    )
    reachable = GaugeMetricFamily(
        f"{_PREFIX}_cluster_reachable",
        "1 if the API server of an opted-in Cluster of this replica answers it.",
        labels=("namespace", "cluster"),
    )
    expiry = GaugeMetricFamily(
        f"{_PREFIX}_kubeconfig_not_after_seconds",
        "When the client certificate of a Cluster's kubeconfig Secret expires, as Unix time.",
        labels=("namespace", "cluster"),
    )
    for report in in_order(reports())[:_MAX_CLUSTERS]:
        labels = _cluster_labels(report.key)
        if report.credential_expiry is not None:
            expiry.add_metric(labels, report.credential_expiry.timestamp())
        served.add_metric((*labels, "" if report.served else report.state), report.served)
        reachable.add_metric(labels, report.reachable)
    yield from (served, reachable, expiry)


def _policies(states: Callable[[], Sequence[tuple[PolicyObject, PolicyState]]]) -> Iterator[Metric]:
    """Yield whether the policies that were read last are in force."""
    valid = GaugeMetricFamily(
        f"{_PREFIX}_policy_valid",
        "1 if the present content of the policy object is valid.",
        labels=("policy",),
    )
    for policy, state in states():
        valid.add_metric((policy.name,), not state.problems)
    yield valid


def _replica(
    version: str,
    ready: Callable[[], bool],
    replicas: Callable[[], int],
    clock_skew: Callable[[], float],
) -> Iterator[Metric]:
    """Yield the state of this replica."""
    info = GaugeMetricFamily(
        f"{_PREFIX}_build_info", "Always 1; the version of the signer.", labels=("version",)
    )
    info.add_metric((version,), 1.0)
    yield info
    yield GaugeMetricFamily(
        f"{_PREFIX}_ready", "1 if this replica serves Clusters, as /readyz says.", value=ready()
    )
    yield GaugeMetricFamily(
        f"{_PREFIX}_replicas",
        "Replicas that share the Clusters; 0 while this replica serves every Cluster.",
        value=replicas(),
    )
    yield GaugeMetricFamily(
        f"{_PREFIX}_clock_skew_seconds",
        "By how much the clock of this machine is ahead of the management API server's.",
        value=clock_skew(),
    )


def collect_unreadable(
    counts: Callable[[], Mapping[tuple[str, str, str], int]],
) -> Iterator[Metric]:
    """Yield how many objects cannot be read; first those of no namespace, which concern all."""
    objects = GaugeMetricFamily(
        f"{_PREFIX}_unreadable_objects",
        "Objects of a namespace, or of a Cluster's workload cluster, that cannot be read.",
        labels=("namespace", "cluster", "objects"),
    )
    largest = sorted(counts().items(), key=lambda pair: (pair[0][0] != "", -pair[1]))
    in_turns = in_turn(largest, lambda pair: pair[0][0] or pair[0][2])
    for labels, count in in_turns[:_MAX_TENANTS]:
        objects.add_metric(labels, count)
    yield objects


def _lost_lines(lost: Callable[[], Mapping[str, int]]) -> Iterator[Metric]:
    """Yield how many lines of the log could not be written."""
    lines = CounterMetricFamily(
        f"{_PREFIX}_log_lines_lost",
        "Lines of the log that were lost because it could not be written.",
        labels=("kind",),
    )
    for kind, count in lost().items():
        lines.add_metric((kind,), count)
    yield lines


def _failing_kinds(seconds: Callable[[], Mapping[str, float]]) -> Iterator[Metric]:
    """Yield for how long kinds of the management cluster could not be read."""
    failing = GaugeMetricFamily(
        f"{_PREFIX}_kind_failing_seconds",
        "Since when a kind of the management cluster can be neither listed nor watched; else 0.",
        labels=("objects",),
    )
    for plural, value in seconds().items():
        failing.add_metric((plural,), value)
    yield failing
