"""Endorsement certificates: whether one certifies this very key, up to a configured authority."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from common.keys import PublicKey


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


def verify_endorsement_certificate(
    certificates: Sequence[bytes], key: PublicKey, *, anchors: TrustAnchors, now: datetime
) -> None:
    """Check that one certificate certifies this very key, up to a configured authority."""
    raise NotImplementedError
