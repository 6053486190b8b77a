"""Reports the attestation of each Machine: the condition KubeletAttested, and Events.

Workers only note what they decided; one thread writes it. So a verdict neither waits for these
writes nor depends on them. A request that is not proved, such as one with a stolen bootstrap token,
may name any Machine of its Cluster. So it never changes a Machine whose node has attested or was
banned, and one Machine is written at most every half a minute.
"""

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from datetime import datetime
from threading import Lock
from typing import Final, Protocol

from common.errors import Unavailable
from signer.inventory.machine_status import MachineCondition

_logger = logging.getLogger(__name__)

ATTESTED: Final = "Attested"
"""Reason of the condition KubeletAttested of a Machine, and of Approved of a CSR."""
_MIN_INTERVAL: Final = 30.0
"""Seconds between two writes to one Machine, unless its node attests or is banned."""
_MAX_DUE: Final = 1000
"""Conditions of one namespace that wait to be written; above it, new ones are dropped."""
_MAX_WRITTEN: Final = 20_000
"""Machines of which the last condition is remembered. The one that was written longest ago is
forgotten first. Its next condition costs a read of the Machine, whose condition then decides."""
_BATCH_SIZE: Final = 20
"""Writes of one round for one namespace."""


_Key = tuple[str, bool]
"""UID of a Machine, and whether this is about its alarms: they do not replace its condition."""


class ConditionWriter(Protocol):
    """Writes conditions of Machines."""

    def write(self, condition: MachineCondition, now: datetime) -> None:
        """Write condition and Event. Raises `ApiServerUnavailable`."""


class MachineReports:
    """The latest condition of each Machine; any thread may call `note`, one `flush`."""

    def __init__(
        self,
        writer: ConditionWriter,
        *,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self._writer = writer
        self._now = now
        self._monotonic = monotonic
        self._lock = Lock()
        self._due: dict[_Key, MachineCondition] = {}
        """Noted and not yet written."""
        self._counts: Counter[str] = Counter()
        """How many of them each namespace has."""
        self._written: OrderedDict[_Key, tuple[MachineCondition | None, float]] = OrderedDict()
        """What was written last (`None` after a failure), and when that was tried."""

    def note(self, condition: MachineCondition) -> None:
        """Remember a condition, to be written by the next `flush`; never raises."""
        with self._lock:
            key = _key(condition)
            written, _ = self._written.get(key, (None, 0.0))
            if condition.event_only:
                written = None  # Events expire, so an alarm is repeated.
            known = self._due.get(key) or written
            if known is not None and (known == condition or _stays(known, condition)):
                return
            if key not in self._due:
                if self._counts[condition.namespace] >= _MAX_DUE:
                    return
                self._counts[condition.namespace] += 1
            self._due[key] = condition

    def flush(self) -> None:
        """Write the conditions that are due, a few of each namespace."""
        batch: Counter[str] = Counter()
        with self._lock:
            due = [condition for condition in self._due.values() if self._may_write(condition)]
        for condition in due:
            if batch[condition.namespace] < _BATCH_SIZE:
                batch[condition.namespace] += 1
                self._write(condition)

    def _may_write(self, condition: MachineCondition) -> bool:
        key = _key(condition)
        if key not in self._written:
            return True
        last, when = self._written[key]
        proved = (condition.attested or condition.by_operator) and last is not None
        return proved or self._monotonic() - when >= _MIN_INTERVAL

    def _write(self, condition: MachineCondition) -> None:
        written: MachineCondition | None = condition
        try:
            self._writer.write(condition, self._now())
        except Unavailable as e:
            written = None
            fields = {
                "namespace": condition.namespace,
                "machine": condition.name,
                "message": e.message,
                "detail": e.detail,
            }
            _logger.warning("machine not reported", extra={"fields": fields})
        with self._lock:
            key = _key(condition)
            self._written[key] = (written, self._monotonic())
            self._written.move_to_end(key)
            if len(self._written) > _MAX_WRITTEN:
                self._written.popitem(last=False)
            if written is not None and self._due.get(key) == condition:
                del self._due[key]
                self._counts[condition.namespace] -= 1


def _key(condition: MachineCondition) -> _Key:
    return condition.uid, condition.event_only


def _stays(known: MachineCondition, condition: MachineCondition) -> bool:
    """Return whether a new condition, of a request that is not proved, must not replace another."""
    is_unproved = not condition.attested and not condition.by_operator
    return is_unproved and (known.attested or known.by_operator)
