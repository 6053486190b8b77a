"""Makes the challenge to an offer, and decides whether an existing one can stay.

The challenge is an annotation of the offer. No verdict depends on the annotation: to verify an
answer, the signer derives the secret again. Source: docs/protocol.md section 3.
"""

import hmac
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from common.challenge import Challenge, decode_challenge, encode_challenge
from common.errors import ChallengeMalformed
from common.formats.strict_json import format_time, parse_time
from common.requests.binding import (
    ChallengeInputs,
    challenge_key_id,
    challenge_secret,
    encode_fields,
    hmac_sha256,
    sha256,
)
from signer.errors import ChallengeKeyUnknown
from signer.issue.make_credential import make_credential
from signer.kinds.cluster import Cluster
from signer.kinds.csr import Csr
from signer.policy.policy import Policy
from signer.seams import ChallengeKeys
from signer.verify.answer import CHALLENGE_MAX_AGE, CHALLENGE_MAX_SKEW
from signer.verify.offer import VerifiedOffer

UNKNOWN_KEY_GRACE: Final = timedelta(seconds=60)
"""Keep a challenge under an unknown key for this long: during `clusterctl move`, the signers of two
management clusters may see the same offer."""

_NO_TAG: Final = "-"


class ChallengeState(Enum):
    """Whether the annotation of an offer can stay."""

    CURRENT = "current"
    """The signer made it, and it is still valid."""
    REWRITE = "rewrite"
    """It is absent, forged, too old or against the present policy: write a new one."""
    UNKNOWN_KEY = "unknown key"
    """It is fresh and under an unknown key: read the Secret of the keys; if the key stays unknown,
    reconcile later. After `UNKNOWN_KEY_GRACE` the state is REWRITE."""


def make_challenge(  # noqa: PLR0913 - everything that the challenge is bound to
    verified: VerifiedOffer,
    csr: Csr,
    *,
    cluster: Cluster,
    policy: Policy,
    challenge_keys: ChallengeKeys,
    now: datetime,
    random: Callable[[int], bytes],
) -> str:
    """Return the value of the `challenge` annotation of this offer, under the current key."""
    key = challenge_keys.current
    issued_at = format_time(now)
    inputs = ChallengeInputs(
        cluster_uid=cluster.uid,
        signer_name=csr.signer_name,
        username=csr.username,
        offer_uid=csr.uid,
        issued_at=issued_at,
        pkcs10_sha256=verified.offer.request.sha256,
        ek_spki_sha256=verified.endorsement_key.spki_sha256,
        ak_name=verified.attestation_key.tpm_name,
    )
    blob, encrypted_secret = make_credential(
        verified.endorsement_key.public,
        verified.attestation_key.tpm_name,
        challenge_secret(key, inputs),
        random=random,
    )
    challenge = Challenge(
        issued_at=issued_at,
        key=challenge_key_id(key),
        credential_blob=blob,
        encrypted_secret=encrypted_secret,
        pcrs=policy.pcrs.selection,
        event_log=policy.event_log is not None,
        pcr_signatures=bool(policy.pcrs.signed_by),
        tag=_NO_TAG,
    )
    tag = _tag(key, challenge, csr, cluster)
    return encode_challenge(replace(challenge, tag=tag))


def challenge_state(  # noqa: PLR0913 - as make_challenge
    annotation: str | None,
    csr: Csr,
    *,
    cluster: Cluster,
    policy: Policy,
    challenge_keys: ChallengeKeys,
    now: datetime,
) -> ChallengeState:
    """Return whether an annotation can stay on the offer, or is to be replaced."""
    try:
        challenge = decode_challenge(annotation or "")
        is_own_text = encode_challenge(challenge) == annotation
    except ChallengeMalformed:
        return ChallengeState.REWRITE
    age = now - parse_time(challenge.issued_at)
    try:
        key = challenge_keys.by_id(challenge.key)
    except ChallengeKeyUnknown:
        fresh = -CHALLENGE_MAX_SKEW <= age < UNKNOWN_KEY_GRACE
        return ChallengeState.UNKNOWN_KEY if fresh else ChallengeState.REWRITE
    current = (
        # The reader ignores what it does not know; others may add that, too.
        is_own_text
        and hmac.compare_digest(_tag(key, challenge, csr, cluster), challenge.tag)
        and -CHALLENGE_MAX_SKEW <= age <= CHALLENGE_MAX_AGE
        and dict(challenge.pcrs) == dict(policy.pcrs.selection)
        and challenge.event_log is (policy.event_log is not None)
        and challenge.pcr_signatures is bool(policy.pcrs.signed_by)
    )
    return ChallengeState.CURRENT if current else ChallengeState.REWRITE


def _tag(key: bytes, challenge: Challenge, csr: Csr, cluster: Cluster) -> str:
    """Return the HMAC over a challenge and the offer that it belongs to."""
    untagged = encode_challenge(replace(challenge, tag=_NO_TAG))
    message = encode_fields(
        "challenge-tag/v1",
        untagged,
        cluster.uid,
        csr.signer_name,
        csr.username,
        csr.uid,
        sha256(csr.request),
    )
    return hmac_sha256(key, message).hex()
