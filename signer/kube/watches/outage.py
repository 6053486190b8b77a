"""Which failures of a watch are logged: the first, fewer and fewer later ones, and the end."""

import math
from typing import Final

_STEADY_SECONDS: Final = 30.0
"""Seconds without a failure after which an outage is over. A watch that fails each few seconds has
one outage."""
_CHANGE_SECONDS: Final = 30.0
"""Seconds between two lines because of another message: a hostile API server may choose one for
each failure."""


class Outage:
    """The failures of one watch in a row, none at first."""

    def __init__(self) -> None:
        self._failures = 0
        self._failed_at = -math.inf
        self._message = ""
        self._logged_at = -math.inf

    def add_failure(self, message: str, now: float) -> bool:
        """Count a failure; return whether to log it.

        It is the first, the second, the fourth and so on, or has another message.
        """
        self._failures += 1
        self._failed_at = now
        is_power_of_two = self._failures & (self._failures - 1) == 0
        is_changed = message != self._message and now - self._logged_at > _CHANGE_SECONDS
        if not is_power_of_two and not is_changed:
            return False
        self._message, self._logged_at = message, now
        return True

    def end(self, now: float) -> int:
        """Return the number of failures if the outage is over now, 0 if not or without one."""
        if not self._failures or now - self._failed_at <= _STEADY_SECONDS:
            return 0
        failures, self._failures = self._failures, 0
        return failures
