"""The challenge to an offer: whether it is due, what it holds, and whether ours still stands.

Judged from caches only, and nothing but the offer's annotation comes of it. The annotation is
never an input to a verdict: an answer is judged by deriving the secret again.
Source: docs/protocol.md section 3.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from signer.model import Cluster, Csr, Records
from signer.parse import ParsedOffer
from signer.policy import Policy
from signer.recognise import Kind
from signer.verify.endorsement_certificate import TrustAnchors


@dataclass(frozen=True, slots=True, kw_only=True)
class Masters:
    """The master keys that count now, 32 bytes each; never shown."""

    current: bytes = field(repr=False)
    previous: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Challengeable:
    """An offer that passed R, P, A, M and E; only `judge_offer` makes one."""


class ChallengeState(Enum):
    """What to do with the annotation that an offer carries."""

    CURRENT = "current"
    """Ours, and valid as it stands: nothing to do."""
    REWRITE = "rewrite"
    """Absent, wrong, too old or against today's policy: write a new one under resourceVersion."""
    FOREIGN_KEY = "foreign key"
    """Under an unknown master key and fresh: read the Secret live; if still unknown, look again
    when it is over 60 s old (it is REWRITE from then on)."""


def judge_offer(
    csr: Csr,
    kind: Kind,
    offer: ParsedOffer,
    *,
    records: Records,
    policy: Policy,
    anchors: TrustAnchors,
    now: datetime,
) -> Challengeable:
    """Check R2, R3, A1, M and E from caches only.

    Raises:
        Denied, Waiting: with the reason.
        ApiServerUnavailable: a cache is not filled yet.

    """
    raise NotImplementedError


def make_challenge(
    challengeable: Challengeable,
    csr: Csr,
    kind: Kind,
    *,
    cluster: Cluster,
    policy: Policy,
    masters: Masters,
    now: datetime,
    random: Callable[[int], bytes],
) -> str:
    """Return the value of the `challenge` annotation for this offer, made under the current master."""
    raise NotImplementedError


def challenge_is_current(
    annotation: str | None,
    challengeable: Challengeable,
    csr: Csr,
    kind: Kind,
    *,
    cluster: Cluster,
    policy: Policy,
    masters: Masters,
    now: datetime,
) -> ChallengeState:
    """Tell whether the annotation found on the offer is the one that it should have."""
    raise NotImplementedError
