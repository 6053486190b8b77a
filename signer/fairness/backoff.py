"""Exponential backoff with jitter: how long the signer pauses between two attempts."""

from dataclasses import dataclass
from typing import Final

_MAX_DOUBLINGS: Final = 32
"""More would overflow a float in the end, and no pause is that long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Doubles the pause with each failure, from `initial` to `maximum` seconds."""

    initial: float
    maximum: float

    def delay(self, failures: int, jitter: float) -> float:
        """Return the seconds to pause after `failures` earlier failures in a row (0 for the first).

        `jitter` is a random number from 0 to 1. It shortens the pause by up to half, so that what
        failed together does not come again together.
        """
        pause: float = self.initial * 2.0 ** min(failures, _MAX_DOUBLINGS)
        return min(self.maximum, pause) * (1.0 - jitter / 2.0)
