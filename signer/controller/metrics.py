"""Metrics for Prometheus: verdicts, queue, and expiry of the configured trust anchors.

A label is a constant, a configured name, a namespace or a Cluster of the management cluster. No
content of a request is a label. A tenant may create Clusters without limit, so the number of
clusters that get a label of their own is limited.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from heapq import nlargest, nsmallest
from threading import Lock
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from signer.controller.cluster_report import ClusterReport
from signer.controller.workqueue import QueueState
from signer.kube.budget import MemoryBudget
from signer.model import ClusterKey
from signer.trust_bundles import TrustBundleFiles
from signer.verify.x509.lenient_der import Element, children, oid, single_element
from signer.verify.x509.trust_anchors import Crl, TrustAnchor

_PREFIX: Final = "node_attestation"
_FINGERPRINT: Final = 16
"""Hex digits of a certificate's SHA-256. They distinguish a root from its successor."""
_MAX_CLUSTERS: Final = 1000
"""Clusters that get a label of their own: the first ones to have a verdict, or not to be served."""
_MAX_OWNERS: Final = 100
"""Clusters and namespaces in the metrics of the queue, those with the largest values."""
_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
}
"""Attribute types of RFC 4514, section 3. Others are shown as OID."""

VERDICTS: Final = Counter(
    f"{_PREFIX}_verdicts",
    "Verdicts on certificate signing requests; a wait counts once for each reason.",
    ("cluster", "kind", "outcome", "reason", "check"),
    registry=None,
)


class _ClusterLabels:
    """The clusters that got a label of their own."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._labels: set[str] = set()

    def label(self, cluster: ClusterKey) -> str:
        name = f"{cluster.namespace}/{cluster.name}"
        with self._lock:
            if len(self._labels) < _MAX_CLUSTERS:
                self._labels.add(name)
            return name if name in self._labels else "(other)"


cluster_label: Final = _ClusterLabels().label
"""Returns the label of a cluster, `(other)` for all clusters after the first thousand."""


def build_registry(
    bundles: Callable[[], TrustBundleFiles | None],
    queue_state: Callable[[], QueueState],
    budget: MemoryBudget,
    clusters: Callable[[], Iterable[ClusterReport]] = tuple,
    replicas: Callable[[], int] = int,
) -> CollectorRegistry:
    """Return the registry of all metrics of the signer, without those of the Python process."""
    registry = CollectorRegistry()
    registry.register(VERDICTS)
    registry.register(_Queue(queue_state))
    registry.register(_Budget(budget))
    registry.register(_Anchors(bundles))
    registry.register(_Clusters(clusters))
    registry.register(_replicas(replicas))
    return registry


class _Queue(Collector):
    """State of the work queue: it names the owner and the cluster that keep the signer busy."""

    def __init__(self, state: Callable[[], QueueState]) -> None:
        self._state = state

    def collect(self) -> Iterator[GaugeMetricFamily]:
        state = self._state()
        pending = GaugeMetricFamily(
            f"{_PREFIX}_pending_requests",
            "Requests of a cluster that are neither decided nor challenged.",
            labels=("namespace", "cluster"),
        )
        for key, count in nlargest(_MAX_OWNERS, state.pending.items(), key=lambda pair: pair[1]):
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
            "1 while the API server of a cluster is so slow that it gets one worker at most.",
            labels=("namespace", "cluster"),
        )
        for key in sorted(state.open_breakers, key=_cluster_labels)[:_MAX_OWNERS]:
            breakers.add_metric(_cluster_labels(key), 1.0)
        yield from (pending, busy, breakers)


class _Budget(Collector):
    """Memory of the caches by owner, for the owners with the largest values."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget

    def collect(self) -> Iterator[Metric]:
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
        for namespace, value in _largest(self._budget.used()):
            used.add_metric((namespace,), value)
        for namespace, value in _largest(self._budget.refused()):
            refused.add_metric((namespace,), value)
        yield from (used, refused)


def _largest(values: Mapping[str, int]) -> list[tuple[str, int]]:
    return nlargest(_MAX_OWNERS, values.items(), key=lambda pair: pair[1])


def _cluster_labels(key: ClusterKey) -> tuple[str, str]:
    return key.namespace, f"{key.namespace}/{key.name}"


class _Clusters(Collector):
    """Which Clusters are served; of very many, those first that are not."""

    def __init__(self, reports: Callable[[], Iterable[ClusterReport]]) -> None:
        self._reports = reports

    def collect(self) -> Iterator[GaugeMetricFamily]:
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
        for report in nsmallest(_MAX_CLUSTERS, self._reports(), key=_unserved_first):
            labels = _cluster_labels(report.key)
            if report.credential_expiry is not None:
                expiry.add_metric(labels, report.credential_expiry.timestamp())
            served.add_metric((*labels, "" if report.served else report.state), report.served)
            reachable.add_metric(labels, report.reachable)
        yield from (served, reachable, expiry)


def _replicas(count: Callable[[], int]) -> Gauge:
    gauge = Gauge(
        f"{_PREFIX}_replicas",
        "Replicas that share the Clusters; 0 while this replica serves every Cluster.",
        registry=None,
    )
    gauge.set_function(count)
    return gauge


def _unserved_first(report: ClusterReport) -> tuple[bool, str, str]:
    return report.served, *_cluster_labels(report.key)


class _Anchors(Collector):
    """Expiry of the trust anchors that are in use."""

    def __init__(self, bundles: Callable[[], TrustBundleFiles | None]) -> None:
        self._bundles = bundles

    def collect(self) -> Iterator[GaugeMetricFamily]:
        expiry = GaugeMetricFamily(
            f"{_PREFIX}_trust_anchor_not_after_seconds",
            "When a configured authority expires, as Unix time.",
            labels=("policy", "subject", "fingerprint"),
        )
        update = GaugeMetricFamily(
            f"{_PREFIX}_revocation_list_next_update_seconds",
            "nextUpdate of a configured revocation list, as Unix time; 0 if the list has none.",
            labels=("policy", "source"),
        )
        invalid = GaugeMetricFamily(
            f"{_PREFIX}_trust_anchors_invalid",
            "1 while the files of a policy are invalid and their last valid content is in use.",
            labels=("policy",),
        )
        unmatched = GaugeMetricFamily(
            f"{_PREFIX}_revocation_lists_unmatched",
            "Configured revocation lists of a policy that none of its authorities has signed.",
            labels=("policy",),
        )
        files = self._bundles()
        for policy, anchors in sorted(files.current.items()) if files is not None else ():
            for anchor in (*anchors.roots, *anchors.intermediates):
                labels = (policy, _subject(anchor), _fingerprint(anchor))
                expiry.add_metric(labels, anchor.fields.not_after.timestamp())
            for crl in anchors.revocation_lists:
                update.add_metric((policy, crl.source), _next_update(crl))
            invalid.add_metric((policy,), float(files is not None and policy in files.invalid))
            unmatched.add_metric((policy,), len(anchors.unmatched_lists))
        yield from (expiry, update, invalid, unmatched)


def _subject(anchor: TrustAnchor) -> str:
    """Return the subject in a readable form, empty if it cannot be parsed."""
    try:
        relative_names = [
            children(part) for part in children(single_element(anchor.fields.subject))
        ]
        parts = [children(attribute) for name in relative_names for attribute in name]
        return ", ".join(_attribute(kind, value) for kind, value, *_ in parts)
    except ValueError:
        return ""


def _attribute(kind: Element, value: Element) -> str:
    _, content, _ = value
    return f"{_NAMES.get(oid(kind), oid(kind))}={content.decode('utf-8', errors='replace')}"


def _fingerprint(anchor: TrustAnchor) -> str:
    return sha256(anchor.fields.der).hexdigest()[:_FINGERPRINT]


def _next_update(crl: Crl) -> float:
    end = crl.loaded.next_update_utc
    return 0.0 if end is None else end.timestamp()
