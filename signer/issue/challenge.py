"""The challenge to an offer: whether it is due, what it holds, and whether ours still stands.

Judged from caches only, and nothing but the offer's annotation comes of it. The annotation is
never an input to a verdict: an answer is judged by deriving the secret again.
Source: docs/protocol.md section 3.
"""

import hmac
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from common.binding import (
    ChallengeInputs,
    challenge_key_id,
    challenge_secret,
    encode_fields,
    hmac_sha256,
    sha256,
)
from common.errors import ChallengeMalformed
from common.evidence import Challenge, decode_challenge, encode_challenge
from common.strict_json import format_time, parse_time
from signer.errors import ChallengeKeyUnknown
from signer.issue.make_credential import make_credential
from signer.model import ChallengeKeys, Cluster, Csr
from signer.policy import Policy
from signer.verify.answer import CHALLENGE_MAX_AGE, CHALLENGE_MAX_SKEW
from signer.verify.offer import VerifiedOffer

UNKNOWN_KEY_GRACE: Final = timedelta(seconds=60)
"""How long a challenge under an unknown key is left alone: two signers may meet during a move."""

_NO_TAG: Final = "-"


class ChallengeState(Enum):
    """What to do with the annotation that an offer carries."""

    CURRENT = "current"
    """Ours, and valid as it stands: nothing to do."""
    REWRITE = "rewrite"
    """Absent, wrong, too old or against today's policy: write a new one under resourceVersion."""
    UNKNOWN_KEY = "foreign key"
    """Under an unknown master key and fresh: read the Secret live; if still unknown, look again
    when it is over 60 s old (it is REWRITE from then on)."""


def make_challenge(  # noqa: PLR0913 - as above
    challengeable: VerifiedOffer,
    csr: Csr,
    *,
    cluster: Cluster,
    policy: Policy,
    masters: ChallengeKeys,
    now: datetime,
    random: Callable[[int], bytes],
) -> str:
    """Return the value of the `challenge` annotation for this offer, under the current master."""
    issued_at = format_time(now)
    inputs = ChallengeInputs(
        cluster_uid=cluster.uid,
        signer_name=csr.signer_name,
        username=csr.username,
        offer_uid=csr.uid,
        issued_at=issued_at,
        pkcs10_sha256=challengeable.offer.request.sha256,
        ek_spki_sha256=challengeable.endorsement_key.spki_sha256,
        ak_name=challengeable.attestation_key.name,
    )
    blob, encrypted_secret = make_credential(
        challengeable.endorsement_key.public,
        challengeable.attestation_key.name,
        challenge_secret(masters.current, inputs),
        random=random,
    )
    challenge = Challenge(
        issued_at=issued_at,
        key=challenge_key_id(masters.current),
        credential_blob=blob,
        encrypted_secret=encrypted_secret,
        pcrs=policy.pcr_selection,
        event_log=policy.event_log is not None,
        tag=_NO_TAG,
    )
    tag = _tag(masters.current, challenge, csr, cluster)
    return encode_challenge(replace(challenge, tag=tag))


def challenge_state(  # noqa: PLR0913 - as above
    annotation: str | None,
    csr: Csr,
    *,
    cluster: Cluster,
    policy: Policy,
    masters: ChallengeKeys,
    now: datetime,
) -> ChallengeState:
    """Tell whether the annotation found on the offer is the one that it should have."""
    try:
        challenge = decode_challenge(annotation or "")
    except ChallengeMalformed:
        return ChallengeState.REWRITE
    age = now - parse_time(challenge.issued_at)
    try:
        master = masters.by_id(challenge.key)
    except ChallengeKeyUnknown:
        fresh = -CHALLENGE_MAX_SKEW <= age < UNKNOWN_KEY_GRACE
        return ChallengeState.UNKNOWN_KEY if fresh else ChallengeState.REWRITE
    stands = (
        hmac.compare_digest(_tag(master, challenge, csr, cluster), challenge.tag)
        and -CHALLENGE_MAX_SKEW <= age <= CHALLENGE_MAX_AGE
        and dict(challenge.pcrs) == dict(policy.pcr_selection)
        and challenge.event_log is (policy.event_log is not None)
    )
    return ChallengeState.CURRENT if stands else ChallengeState.REWRITE


def _tag(master: bytes, challenge: Challenge, csr: Csr, cluster: Cluster) -> str:
    """Mark a challenge as ours: over everything in it, and everything that it was made for."""
    untagged = encode_challenge(replace(challenge, tag=_NO_TAG))
    made_for = encode_fields(
        "challenge-tag/v1",
        untagged,
        cluster.uid,
        csr.signer_name,
        csr.username,
        csr.uid,
        sha256(csr.request),
    )
    return hmac_sha256(master, made_for).hex()
