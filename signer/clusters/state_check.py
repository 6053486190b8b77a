"""Whether the management cluster still has the state that the caches show.

After a restore of its etcd, versions of objects may exceed the versions that the caches know, and
a watch goes on as if nothing had happened. A replica notices the restore by its own Lease, which it
alone writes. So verdicts wait from the moment when a connection is lost until the Lease was found
as this replica wrote it. Source: docs/decisions/0058-restores-show-in-the-lease.md.
"""

import math
from collections.abc import Callable
from threading import Lock

from common.errors import ApiServerUnavailable


class StateCheck:
    """The last interruption and the last confirmation; for any number of threads."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = Lock()
        self._interrupted_at = -math.inf
        self._confirmed_at = math.inf
        """Infinite until this replica has written its Lease once: nothing can be compared."""

    def note_interruption(self) -> None:
        """Note that a connection was lost: the API server may have been restored."""
        with self._lock:
            self._interrupted_at = self._monotonic()

    def confirm(self, since: float) -> None:
        """Note that a request that was sent at this time found the Lease unchanged."""
        with self._lock:
            self._confirmed_at = since

    def stop(self) -> None:
        """Wait for no confirmation: this replica has no Lease."""
        self.confirm(math.inf)

    def require_confirmed(self) -> None:
        """Raise `ApiServerUnavailable` if a connection was lost since the last confirmation."""
        with self._lock:
            if self._interrupted_at >= self._confirmed_at:
                raise ApiServerUnavailable(
                    "the connection to the management cluster was lost: whether it was restored"
                    " from a backup is not known yet"
                )
