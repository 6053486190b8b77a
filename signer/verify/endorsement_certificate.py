"""Endorsement certificates: whether one certifies this very key, up to a configured authority."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustAnchors:
    """Configured authorities and revocation lists; `load_trust_anchors` makes it."""

    roots: tuple[bytes, ...]
    intermediates: tuple[bytes, ...]
    revocation_lists: tuple[bytes, ...]


NO_ANCHORS = TrustAnchors(roots=(), intermediates=(), revocation_lists=())
"""For policies that ask for no certificate; it validates nothing."""


def load_trust_anchors(
    authorities: Mapping[str, bytes], revocation_lists: Mapping[str, bytes]
) -> TrustAnchors:
    """Read files (name to content, PEM or DER, one or several certificates each) into anchors.

    Self-signed certificates are roots, the others intermediates.

    Raises:
        ValueError: all unreadable files at once, or no root in them.

    """
    raise NotImplementedError
