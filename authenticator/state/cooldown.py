"""The pause after a failed exchange, stored on disk: a node that cannot succeed sends little.

Only new exchanges wait for it. It ends early with the boot, or when settings, server or requester
change. It counts boot time, so setting the clock changes nothing but `ClockSkewTooLarge`.
"""

import logging
from typing import Final

from authenticator.errors import (
    BootstrapCredentialUnusable,
    ClockSkewTooLarge,
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
from authenticator.model import Clock, Cooldown, backoff
from authenticator.state.run_record import describe_error
from authenticator.state.store import FileStore
from common.errors import StartOver

INITIAL_COOLDOWN_SECONDS: Final = 2.0
MAX_OUTAGE_COOLDOWN_SECONDS: Final = 30.0
MAX_REFUSAL_COOLDOWN_SECONDS: Final = 600.0
MAX_UNANSWERED_COOLDOWN_SECONDS: Final = 1800.0
"""After offers that no signer answered: each of them was already open for ten minutes."""

VERSION_COOLDOWN_SECONDS: Final = 3600.0
CLOCK_COOLDOWN_SECONDS: Final = 3600.0
CLOCK_STEP_SECONDS: Final = 60.0
"""A clock that moved by more than this against the boot clock was set."""

_NO_COOLDOWN: Final = (
    BootstrapCredentialUnusable,
    ConfigurationInvalid,
    CoolingDown,
    DeadlinePassed,
    ExchangeExpired,
)
"""Nothing was sent, or the exchange itself took its time: the next one may begin immediately."""

_REFUSALS: Final = (Unauthorized, Forbidden, Invalid, StartOver)
_logger = logging.getLogger(__name__)


def duration_after(error: Exception, failures: int, jitter: float) -> float:
    """Return the seconds until the next exchange may begin, after so many failures in a row.

    `jitter` (0 to 1) shortens the pause by up to 50 %, or 10 % where the pause is an hour.
    """
    if isinstance(error, _NO_COOLDOWN):
        return 0.0
    if isinstance(error, VersionRefused):
        return VERSION_COOLDOWN_SECONDS * (1 - jitter / 10)
    if isinstance(error, ClockSkewTooLarge):
        return CLOCK_COOLDOWN_SECONDS * (1 - jitter / 10)
    return backoff(failures, INITIAL_COOLDOWN_SECONDS, _longest(error)) * (1 - jitter / 2)


def _longest(error: Exception) -> float:
    if isinstance(error, OfferUnanswered):
        return MAX_UNANSWERED_COOLDOWN_SECONDS
    if isinstance(error, _REFUSALS):
        return MAX_REFUSAL_COOLDOWN_SECONDS
    return MAX_OUTAGE_COOLDOWN_SECONDS


def check(store: FileStore, clock: Clock, fingerprint: str) -> None:
    """Raise CoolingDown while the cooldown of this fingerprint lasts."""
    last = store.load_cooldown(fingerprint)
    left = 0.0 if last is None else remaining(last, clock)
    if last is not None and left > 0:
        raise CoolingDown(
            f"the next attempt begins in {round(left)} s (on a node that has joined,"
            " `kubelet-authenticator-tpm renew` does not wait);"
            f" the last one failed: {last.reason}: {last.message}"
        )


def start(
    error: Exception, store: FileStore, clock: Clock, fingerprint: str, jitter: float
) -> None:
    """Store the cooldown that this error calls for, longer after each failure in a row."""
    last = store.load_cooldown(fingerprint)
    same_boot = last is not None and last.boot_id == clock.boot_id()
    failures = last.failures + 1 if last is not None and same_boot else 0
    pause = duration_after(error, failures, jitter)
    if pause == 0:
        return
    description = describe_error(error)
    cooldown = Cooldown(
        boot_id=clock.boot_id(),
        until=clock.boottime() + pause,
        failures=failures,
        reason=str(description["reason"]),
        message=str(description["message"]),
        fingerprint=fingerprint,
        clock_offset=clock.now() - clock.boottime(),
    )
    try:
        store.save_cooldown(cooldown)
    except StateDirectoryUnwritable as unwritable:
        _logger.warning("the cooldown is not stored: %s", unwritable)


def remaining(cooldown: Cooldown, clock: Clock) -> float:
    """Return the seconds that a cooldown still lasts: 0 after a reboot or a corrected clock.

    No cooldown is longer than an hour, so one that seems so is damaged, and is over.
    """
    moved = abs(clock.now() - clock.boottime() - cooldown.clock_offset)
    corrected = cooldown.reason == ClockSkewTooLarge.reason and moved > CLOCK_STEP_SECONDS
    if cooldown.boot_id != clock.boot_id() or corrected:
        return 0.0
    left = cooldown.until - clock.boottime()
    return left if 0 < left <= VERSION_COOLDOWN_SECONDS else 0.0
