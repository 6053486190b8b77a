"""What Prometheus reads: verdicts by reason, and how long what was configured still counts.

Labels are words of ours, configured names and Clusters of the operator's own; nothing of a request
becomes a label, so that no requester can fill the memory with them.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import Final

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from signer.trust_bundles import TrustBundleFiles
from signer.verify.x509.lenient_der import Element, children, oid, single_element
from signer.verify.x509.trust_anchors import Crl, TrustAnchor

_PREFIX: Final = "node_attestation"
_FINGERPRINT: Final = 16
"""Hex digits of a certificate's SHA-256: tells a root from the one that takes its place."""
_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
}
"""RFC 4514, section 3; others are written as numbers."""

VERDICTS: Final = Counter(
    f"{_PREFIX}_verdicts",
    "Verdicts on certificate signing requests; a wait counts when it begins.",
    ("cluster", "kind", "outcome", "reason", "check"),
    registry=None,
)


def build_registry(files: TrustBundleFiles) -> CollectorRegistry:
    """Return everything that is measured, and nothing of other libraries."""
    made = CollectorRegistry()
    made.register(VERDICTS)
    made.register(_Anchors(files))
    return made


class _Anchors(Collector):
    """Trust anchors as they count at the moment."""

    def __init__(self, files: TrustBundleFiles) -> None:
        self._files = files

    def collect(self) -> Iterator[GaugeMetricFamily]:
        expiry = GaugeMetricFamily(
            f"{_PREFIX}_trust_anchor_not_after_seconds",
            "When a configured authority expires, as Unix time.",
            labels=("policy", "subject", "fingerprint"),
        )
        update = GaugeMetricFamily(
            f"{_PREFIX}_revocation_list_next_update_seconds",
            "Until when a configured revocation list counts, as Unix time; 0 where none is said.",
            labels=("policy", "source"),
        )
        invalid = GaugeMetricFamily(
            f"{_PREFIX}_trust_anchors_invalid",
            "1 while the files of a policy are no trust anchors, so that older ones count.",
            labels=("policy",),
        )
        unmatched = GaugeMetricFamily(
            f"{_PREFIX}_revocation_lists_unmatched",
            "Configured revocation lists of a policy that none of its authorities has signed.",
            labels=("policy",),
        )
        for policy, anchors in sorted(self._files.current.items()):
            for anchor in (*anchors.roots, *anchors.intermediates):
                labels = (policy, _subject(anchor), _fingerprint(anchor))
                expiry.add_metric(labels, anchor.fields.not_after.timestamp())
            for listed in anchors.revocation_lists:
                update.add_metric((policy, listed.source), _next_update(listed))
            invalid.add_metric((policy,), float(policy in self._files.invalid))
            unmatched.add_metric((policy,), len(anchors.unmatched_lists))
        yield from (expiry, update, invalid, unmatched)


def _subject(anchor: TrustAnchor) -> str:
    """Write a name for people, attribute by attribute; what cannot be read is left out."""
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


def _next_update(listed: Crl) -> float:
    end = listed.loaded.next_update_utc
    return 0.0 if end is None else end.timestamp()
