"""Offers: verifies one from caches only, and writes a challenge unless it has a valid one."""

import contextlib
from datetime import datetime, timedelta
from typing import Final

from common.errors import Unavailable
from common.names import CHALLENGE_ANNOTATION
from signer.controller.queue.workqueue import DONE, Requeue, Result
from signer.controller.reconcile.csr_state import CsrState
from signer.errors import OfferExpired
from signer.issue.challenge import ChallengeState, challenge_state, make_challenge
from signer.seams import ChallengeKeys
from signer.verify.offer import VerifiedOffer, verify_offer
from signer.verify.requests.credentials import find_unknown_credential
from signer.verify.requests.parse import ParsedOffer
from signer.verify.requests.recognize import CsrKind

MAX_OFFER_AGE: Final = timedelta(minutes=20)
"""Time after which an offer gets no challenge: its node discards the exchange after 15 minutes
(docs/protocol.md section 3). The rest is for clocks that differ. Only the age counts, which the
requester cannot choose: a newer offer for the node may be from another holder of the same bootstrap
token."""


def challenge_offer(current: CsrState, kind: CsrKind, offer: ParsedOffer) -> Result:
    """Verify an offer, and write a challenge unless it has a valid one."""
    dependencies, csr = current.dependencies, current.csr
    now = dependencies.now()
    if now - csr.created > MAX_OFFER_AGE:
        raise OfferExpired("the node has discarded this offer")
    verified = verify_offer(csr, kind, offer, current.context(now))
    challenge_keys = dependencies.challenge_keys.cached()
    state = _challenge_state(current, challenge_keys, now)
    if state is ChallengeState.UNKNOWN_KEY:
        # Another replica may have made a new key.
        challenge_keys = dependencies.challenge_keys.refresh()
        state = _challenge_state(current, challenge_keys, now)
    if state is ChallengeState.UNKNOWN_KEY:
        return Result(requeue=Requeue.ON_CHANGE)
    if state is ChallengeState.CURRENT:
        current.reports.clear_pending_reason()
        return DONE
    dependencies.rate_limiter.acquire((current.cluster.key, csr.username))
    _check_credential(current, verified)
    challenge = make_challenge(
        verified,
        csr,
        cluster=current.cluster.inventory.cluster(),
        policy=current.policy,
        challenge_keys=challenge_keys,
        now=now,
        random=dependencies.random,
    )
    values = {CHALLENGE_ANNOTATION: challenge} | current.reports.without_pending_reason()
    current.cluster.csrs.annotate(csr, values)
    current.record("challenged")
    return DONE


def _challenge_state(
    current: CsrState, challenge_keys: ChallengeKeys, now: datetime
) -> ChallengeState:
    return challenge_state(
        current.csr.annotations.get(CHALLENGE_ANNOTATION),
        current.csr,
        cluster=current.cluster.inventory.cluster(),
        policy=current.policy,
        challenge_keys=challenge_keys,
        now=now,
    )


def _check_credential(current: CsrState, verified: VerifiedOffer) -> None:
    """K4: raise the alarm for an offer that was filed with an unknown credential.

    An attacker that copied a node's key can file an offer and cannot answer the challenge, so no
    answer would raise this alarm. The answer decides: a failure to read changes nothing.
    """
    with contextlib.suppress(Unavailable):
        alarm = find_unknown_credential(
            verified.requester_credential,
            verified.offer.request.node_name,
            current.cluster.inventory,
            current.dependencies.claims,
        )
        if alarm is not None:
            current.raise_alarm(alarm, verified.machine)
