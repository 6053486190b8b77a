"""From an answer and what is known to what may be certified: the checks in their order.

Nothing is asked of anybody on behalf of bytes that are not proved: R, P, C, A and Q come before
M, E and S, and those before the claims. Source: docs/protocol.md section 5.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from signer.challenge import Masters
from signer.model import Boot, Claims, ClusterKey, Csr, Ground, Machine, Records
from signer.parse import ParsedAnswer, ParsedServing
from signer.policy import Policy
from signer.recognise import Kind
from signer.verify.endorsement_certificate import TrustAnchors


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What an answer proved; only `judge_answer` makes one."""

    kind: Kind
    cluster: ClusterKey
    node_name: str
    provider_id: str
    machine: Machine
    endorsement_key: str
    """Name of its EndorsementKey: hex SHA-256 of the canonical SubjectPublicKeyInfo."""
    endorsement_key_pem: str
    ground: Ground
    boot: Boot
    pcrs: Mapping[str, Mapping[int, bytes]]
    """The quoted values, bank to index to digest: for the audit record, not for the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A verified answer whose key and name are claimed; only `claim` makes one (K1 to K3)."""

    verified: Verified
    not_after: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedServing:
    """A request to the built-in serving signer that may be approved."""

    cluster: ClusterKey
    node_name: str
    machine: Machine


def judge_answer(
    csr: Csr,
    kind: Kind,
    answer: ParsedAnswer,
    *,
    records: Records,
    policy: Policy,
    anchors: TrustAnchors,
    masters: Masters,
    now: datetime,
) -> Verified:
    """Check R2, R3, C, A, Q, then M, E (and S for serving), from caches only.

    Raises:
        Denied, Waiting: with the reason.
        ChallengeKeyUnknown: read the Secret live and judge again before believing it.
        ApiServerUnavailable: a cache is not filled yet.

    """
    raise NotImplementedError


def claim(
    verified: Verified,
    *,
    claims: Claims,
    policy: Policy,
    now: datetime,
    not_after: datetime,
) -> Claimed:
    """Make the node's claims, live (K1 to K3); a lost race begins again from K1, a few times.

    Raises:
        Denied, Waiting: somebody else's claim stands.
        ClaimConflict: raced too often; retry with backoff.
        ApiServerUnavailable: from the seam.

    """
    raise NotImplementedError


def judge_builtin_serving(
    csr: Csr, serving: ParsedServing, *, records: Records, policy: Policy
) -> VerifiedServing:
    """Check R2, R3, M5 and S of a request to `kubernetes.io/kubelet-serving`, from caches only."""
    raise NotImplementedError
