"""The Lease of this replica, which shows when the management cluster was restored from a backup.

Each renewal carries the resourceVersion of the renewal before. Only this replica writes the Lease.
If the API server has another version, or none, then its state is an earlier one, or a user
changed the Lease. In both cases, everything has to be listed again.
"""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime

from signer.kube.leases import Lease, LeaseClient, format_micro_time

_logger = logging.getLogger(__name__)


class OwnLease:
    """The Lease of this replica; for one thread."""

    def __init__(  # noqa: PLR0913 - the fields of a Lease, and what depends on it
        self,
        leases: LeaseClient,
        name: str,
        *,
        holder: str,
        seconds: int,
        now: Callable[[], datetime],
        restored: Callable[[], None],
    ) -> None:
        """Call `restored` when the API server does not have the Lease as it was written last."""
        self._leases = leases
        self._name = name
        self._holder = holder
        self._seconds = seconds
        self._now = now
        self._restored = restored
        self._written: Lease | None = None
        self._time = ""
        """The time of a renewal whose outcome is unknown; empty if there is none."""

    def renew(self, labels: Mapping[str, str], selector: str) -> bool:
        """Write the Lease; return whether the API server had it as it was written last.

        `selector` finds the Lease by its labels.
        """
        # The same time again: a request without an answer may have been performed.
        self._time = self._time or format_micro_time(self._now())
        written = self._leases.renew(
            self._name,
            holder=self._holder,
            seconds=self._seconds,
            labels=labels,
            time=self._time,
            version=None if self._written is None else self._written.resource_version,
        )
        if written is not None:
            self._written, self._time = written, ""
            return True
        present = next((e for e in self._leases.all(selector) if e.name == self._name), None)
        if present is not None and present.renewed == self._time:
            self._written, self._time = present, ""
            return True
        if self._written is not None:
            self._report(present)
            self._restored()
        # The next renewal is based on what there is.
        self._written = present
        return False

    def delete(self) -> None:
        """Delete the Lease."""
        self._leases.delete(self._name)
        self._written, self._time = None, ""

    def _report(self, present: Lease | None) -> None:
        fields = {
            "message": "the Lease of this replica is not as it was written: the management cluster"
            " was restored from a backup, or somebody changed the Lease",
            "written": "" if self._written is None else self._written.renewed,
            "present": "" if present is None else present.renewed,
            "alarm": True,
        }
        _logger.warning("management cluster is listed again", extra={"fields": fields})
