"""Metrics of the configured trust anchors: when they expire, and whether their files are valid."""

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from signer.settings.trust_bundles import TrustBundleFiles
from signer.verify.x509.distinguished_name import describe_name
from signer.verify.x509.trust_anchors import Crl, TrustAnchor

_PREFIX: Final = "node_attestation"
_FINGERPRINT: Final = 16
"""Hex digits of a certificate's SHA-256. They distinguish a root from its successor."""


def collect_trust_anchors(bundles: Callable[[], TrustBundleFiles | None]) -> Iterator[Metric]:
    """Yield when the trust anchors that are in use expire, and the state of their files."""
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
    files = bundles()
    for policy, anchors in sorted(files.current.items()) if files is not None else ():
        for anchor in (*anchors.roots, *anchors.intermediates):
            labels = (policy, describe_name(anchor.fields.subject), _fingerprint(anchor))
            expiry.add_metric(labels, anchor.fields.not_after.timestamp())
        for crl in anchors.revocation_lists:
            update.add_metric((policy, crl.source), _next_update(crl))
        invalid.add_metric((policy,), float(files is not None and policy in files.invalid))
        unmatched.add_metric((policy,), len(anchors.unmatched_lists))
    yield from (expiry, update, invalid, unmatched)


def _fingerprint(anchor: TrustAnchor) -> str:
    return sha256(anchor.fields.der).hexdigest()[:_FINGERPRINT]


def _next_update(crl: Crl) -> float:
    end = crl.loaded.next_update_utc
    return 0.0 if end is None else end.timestamp()
