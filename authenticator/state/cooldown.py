"""The pause after a failure, kept on disk: a node that cannot succeed floods nobody.

It lies between exchanges only, and ends early with the boot or when anything changes that the
failure may have come from. It counts by the boot clock, so a clock that is set changes nothing.
"""

import logging
from typing import Final

from authenticator.errors import (
    BootstrapCredentialUnusable,
    ConfigurationInvalid,
    CoolingDown,
    DeadlinePassed,
    ExchangeExpired,
    Forbidden,
    Invalid,
    OfferUnanswered,
    StateDirectoryUnwritable,
    Unauthorized,
    VersionRefused,
)
from authenticator.model import Clock, Cooldown
from authenticator.state.run_record import describe_error
from authenticator.state.store import Store
from common.errors import StartOver

INITIAL_COOLDOWN_SECONDS: Final = 2.0
MAX_OUTAGE_COOLDOWN_SECONDS: Final = 30.0
MAX_REFUSAL_COOLDOWN_SECONDS: Final = 600.0
VERSION_COOLDOWN_SECONDS: Final = 3600.0

_NO_COOLDOWN: Final = (
    BootstrapCredentialUnusable,
    ConfigurationInvalid,
    CoolingDown,
    DeadlinePassed,
    ExchangeExpired,
    OfferUnanswered,
)
"""Nothing was sent, or what was sent took its time: the next exchange may begin at once."""

_REFUSALS: Final = (Unauthorized, Forbidden, Invalid, StartOver)
_logger = logging.getLogger(__name__)


def duration_after(error: Exception, failures: int, jitter: float) -> float:
    """Return the seconds until the next exchange may begin, after so many failures in a row.

    `jitter` from 0 to 1 takes off up to half; from the hour after a version was refused, little.
    """
    if isinstance(error, _NO_COOLDOWN):
        return 0.0
    if isinstance(error, VersionRefused):
        return VERSION_COOLDOWN_SECONDS * (1 - jitter / 10)
    spread = 1 - jitter / 2
    limit = (
        MAX_REFUSAL_COOLDOWN_SECONDS
        if isinstance(error, _REFUSALS)
        else MAX_OUTAGE_COOLDOWN_SECONDS
    )
    return min(limit, INITIAL_COOLDOWN_SECONDS * 2.0 ** min(failures, 10)) * spread


def check(store: Store, clock: Clock, made_for: str) -> None:
    """Raise CoolingDown when the last exchange for the same failed not long ago."""
    last = store.load_cooldown()
    left = 0.0 if last is None else remaining(last, clock)
    if last is not None and last.fingerprint == made_for and left > 0:
        raise CoolingDown(
            f"the next attempt begins in {round(left)} s (where a node has joined,"
            " kubelet-authenticator-tpm renew does not wait);"
            f" the last one failed: {last.reason}: {last.message}"
        )


def start(error: Exception, store: Store, clock: Clock, made_for: str, jitter: float) -> None:
    """Keep a cooldown after an error that deserves one, longer with each in a row."""
    last = store.load_cooldown()
    same = last is not None and (last.fingerprint, last.boot_id) == (made_for, clock.boot_id())
    failures = last.failures + 1 if same and last is not None else 0
    pause = duration_after(error, failures, jitter)
    if pause == 0:
        return
    told = describe_error(error)
    cooldown = Cooldown(
        boot_id=clock.boot_id(),
        until=clock.boottime() + pause,
        failures=failures,
        reason=str(told["reason"]),
        message=str(told["message"]),
        fingerprint=made_for,
    )
    try:
        store.save_cooldown(cooldown)
    except StateDirectoryUnwritable as unwritable:
        _logger.warning("no cooldown kept: %s", unwritable)


def remaining(cooldown: Cooldown, clock: Clock) -> float:
    """Return the seconds that a cooldown still lasts; none after a reboot."""
    return (
        max(0.0, cooldown.until - clock.boottime()) if cooldown.boot_id == clock.boot_id() else 0.0
    )
