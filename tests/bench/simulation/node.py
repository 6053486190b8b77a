"""When a node begins an exchange: by the functions of the node's program."""

import math
from typing import Final

from authenticator.errors import ExchangeExpired, OfferUnanswered
from authenticator.model import KeyPair
from authenticator.state import cooldown
from authenticator.state.credential import STALE_EXPIRATION_SECONDS, Credential
from common.errors import ApiServerUnavailable, AttestationError

CALL_SPREAD: Final = 10.0
"""Seconds until the kubelet sends its next request, which makes client-go call the plugin."""
_NO_PAIR: Final = KeyPair(certificate=b"", key=b"")

UNANSWERED: Final = OfferUnanswered("")
EXPIRED: Final = ExchangeExpired("")
UNAVAILABLE: Final = ApiServerUnavailable("")


def renewal_delay(name: str, lifetime: int) -> float:
    """Return the seconds from the receipt of a certificate to its renewal point."""
    credential = Credential(
        node_name=name,
        key_pair=_NO_PAIR,
        not_before=0,
        not_after=lifetime,
        received_at=0,
        exec_info=b"",
        arguments=(),
        api_version="",
        provider_id="",
    )
    return credential.renew_at


def retry_delay(error: AttestationError, failures: int, jitter: float) -> float:
    """Return the seconds from a failed run to the next one.

    client-go asks again when the credential that it got expires; a call within the cooldown starts
    no exchange.
    """
    pause = cooldown.duration_after(error, failures, jitter)
    calls = max(1, math.ceil(pause / STALE_EXPIRATION_SECONDS))
    return calls * STALE_EXPIRATION_SECONDS
