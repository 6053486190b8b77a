"""How far the clock of this machine is from the clock of the management API server.

A signer whose clock is 20 minutes ahead ignores each offer as expired (docs/decisions/0046), and
nodes refuse a certificate that is not valid yet. So a replica with such a clock leaves the Clusters
to the others. Only the management API server counts: the API server of a tenant could stop all
replicas with a false time.
"""

import logging
from collections import deque
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from threading import Lock
from typing import Final

_logger = logging.getLogger(__name__)

_ALARM_SECONDS: Final = 60.0
_MAX_SECONDS: Final = 240.0
"""A certificate is valid from five minutes before its issue (I1). A minute is for the node."""
_OBSERVATIONS: Final = 4
"""Answers that must agree. One of several API servers behind an address may have a wrong clock."""
_RESOLUTION: Final = 1.0
"""Seconds of the header `Date` (RFC 9110, section 6.6.1)."""


class ClockSkew:
    """The skew as the last answers show it; for any number of threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._recent: deque[float] = deque(maxlen=_OBSERVATIONS)
        self._alarmed = False

    @property
    def seconds(self) -> float:
        """Return by how many seconds this clock is ahead; negative if it is behind."""
        with self._lock:
            return min(self._recent, key=abs, default=0.0)

    @property
    def is_trusted(self) -> bool:
        """Return whether this replica can serve with this clock; not before it was compared."""
        with self._lock:
            return any(abs(seconds) <= _MAX_SECONDS for seconds in self._recent)

    def observe(self, date: bytes, sent: datetime, received: datetime) -> None:
        """Compare the header `Date` of an answer with the times of the request and the answer."""
        try:
            server = parsedate_to_datetime(date.decode("ascii"))
        except ValueError:
            return
        if server.tzinfo is None:
            server = server.replace(tzinfo=UTC)
        with self._lock:
            self._recent.append(_skew(server, sent, received))
        self._report(self.seconds)

    def _report(self, seconds: float) -> None:
        """Log an alarm when the skew exceeds its limit, and when it no longer does."""
        alarmed = abs(seconds) > _ALARM_SECONDS
        with self._lock:
            changed, self._alarmed = alarmed != self._alarmed, alarmed
        fields: dict[str, object] = {"seconds": round(seconds)}
        if changed and alarmed:
            fields["message"] = "correct the clock of this machine, or of the API server"
            fields["alarm"] = True
            _logger.warning(
                "clock differs from the management API server's", extra={"fields": fields}
            )
        elif changed:
            _logger.info("clock agrees with the management API server's", extra={"fields": fields})


def _skew(server: datetime, sent: datetime, received: datetime) -> float:
    """Return the least skew that the times allow: the server wrote its time between both."""
    most = (received - server).total_seconds()
    least = (sent - server).total_seconds() - _RESOLUTION
    return max(least, 0.0) + min(most, 0.0)
