"""The challenge to an offer: whether it is due, what it holds, and whether ours still stands.

Judged from caches only, and nothing but the offer's annotation comes of it. The annotation is
never an input to a verdict: an answer is judged by deriving the secret again.
Source: docs/protocol.md section 3.
"""

import hmac
from collections.abc import Callable
from dataclasses import dataclass, field, replace
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
from common.errors import ChallengeKeyUnknown, ChallengeMalformed
from common.evidence import Challenge, decode_challenge, encode_challenge
from common.strict_json import format_time, parse_time
from signer.issue.make_credential import make_credential
from signer.model import Cluster, Csr, Inventory, KeyHolder
from signer.policy import Policy
from signer.verify.attestation_key import AttestationKey, verify_attestation_key
from signer.verify.claims import verify_no_conflicting_claim
from signer.verify.endorsement_key import EndorsementKey, verify_endorsement_key
from signer.verify.endorsement_trust import verify_endorsement_trust
from signer.verify.machine import verify_machine
from signer.verify.parse import ParsedOffer
from signer.verify.recognize import CsrKind
from signer.verify.request import verify_requester, verify_version
from signer.verify.trace import CheckTrace, no_trace
from signer.verify.x509.endorsement_certificate import TrustAnchors

CHALLENGE_MAX_AGE: Final = timedelta(minutes=15)
CHALLENGE_MAX_SKEW: Final = timedelta(seconds=60)
"""How old a challenge may be when its answer is judged, and how far ahead another replica's clock
may have been (C1)."""
UNKNOWN_KEY_GRACE: Final = timedelta(seconds=60)
"""How long a challenge under an unknown key is left alone: two signers may meet during a move."""

_NO_TAG: Final = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChallengeKeys:
    """The master keys that count now, 32 bytes each; never shown."""

    current: bytes = field(repr=False)
    previous: bytes | None = field(repr=False)

    def by_id(self, identity: str) -> bytes:
        """Return the master with this key ID.

        Raises:
            ChallengeKeyUnknown: neither has it.

        """
        for master in (self.current, self.previous):
            if master is not None and hmac.compare_digest(challenge_key_id(master), identity):
                return master
        raise ChallengeKeyUnknown("the challenge was made under a key that is not known here")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedOffer:
    """An offer that passed R, P, A, M and E; only `judge_offer` makes one."""

    offer: ParsedOffer
    endorsement_key: EndorsementKey
    attestation_key: AttestationKey


class ChallengeState(Enum):
    """What to do with the annotation that an offer carries."""

    CURRENT = "current"
    """Ours, and valid as it stands: nothing to do."""
    REWRITE = "rewrite"
    """Absent, wrong, too old or against today's policy: write a new one under resourceVersion."""
    UNKNOWN_KEY = "foreign key"
    """Under an unknown master key and fresh: read the Secret live; if still unknown, look again
    when it is over 60 s old (it is REWRITE from then on)."""


def verify_offer(  # noqa: PLR0913 - each by name, and each a thing of its own
    csr: Csr,
    kind: CsrKind,
    offer: ParsedOffer,
    *,
    records: Inventory,
    policy: Policy,
    anchors: TrustAnchors,
    now: datetime,
    told: CheckTrace = no_trace,
) -> VerifiedOffer:
    """Check R2, R3, A1, M and E from caches only.

    Raises:
        Denied, Waiting: with the reason.
        ApiServerUnavailable: a cache is not filled yet.

    """
    requester = told("R2 R3", verify_requester(csr, kind, policy))
    verify_version(policy)
    evidence, name = offer.evidence, offer.request.node_name
    attestation_key = told("A1", verify_attestation_key(evidence.ak_public, policy))
    machine = verify_machine(
        records=records,
        provider_id=offer.provider_id,
        node_name=name,
        requester=requester,
        policy=policy,
    )
    told("M5 M1 M2 M3 M4 M6", machine)
    endorsement_key = told("E1", verify_endorsement_key(evidence.ek_public))
    basis = verify_endorsement_trust(
        endorsement_key,
        evidence.ek_certificates,
        machine,
        requester=requester,
        records=records,
        policy=policy,
        anchors=anchors,
        now=now,
    )
    told("E2", basis)
    wanted = KeyHolder(
        cluster=records.cluster().key,
        node_name=name,
        provider_id=offer.provider_id,
        basis=basis,
    )
    verify_no_conflicting_claim(endorsement_key.name, wanted, records)
    told("E3", wanted)
    return VerifiedOffer(
        offer=offer, endorsement_key=endorsement_key, attestation_key=attestation_key
    )


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
