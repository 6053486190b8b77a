"""Reports the attestation of each Machine: the condition KubeletAttested, and Events.

Workers only enqueue what they decided; one thread writes it. So a verdict neither waits for these
writes nor depends on them. A request that is not proved, such as one with a stolen bootstrap token,
may name any Machine of its Cluster. So it never changes a Machine whose node has attested or was
banned, and one Machine is written at most every half a minute. The claim of a node and a ban are
proved, so unlike a request they may end a condition that is True.

What workers enqueue is lost when the process ends, and what exceeds a bound is dropped. So each
replica also derives the conditions from AttestedNodes (derived_conditions.py).
"""

import logging
import math
from collections import Counter, OrderedDict
from collections.abc import Callable
from datetime import datetime
from functools import partial
from threading import Lock
from typing import Final

from signer.fairness.outbox import Outbox
from signer.inventory.cluster_api.machine_status import MachineCondition, MachineStatusClient

_logger = logging.getLogger(__name__)

ATTESTED: Final = "Attested"
"""Reason of the condition KubeletAttested of a Machine, and of Approved of a CSR."""
_MIN_INTERVAL: Final = 30.0
"""Seconds between two writes to one Machine, unless its node attests or is banned."""
ATTESTED_MESSAGE: Final = "the TPM of the machine attested, and its node has a certificate"
_MAX_DUE: Final = 1000
"""Limit for each namespace, once for proved and once for unproved conditions that wait to be
written; above it, new ones are dropped."""
_MAX_WRITTEN: Final = 20_000
"""Machines of which the last condition is remembered. The one that was written longest ago is
forgotten first. Its next condition costs a read of the Machine, whose condition then decides."""


_Key = tuple[str, bool]
"""UID of a Machine, and whether only an Event is due. An Event never replaces a condition."""


class MachineReports:
    """The latest condition of each Machine; any thread may call `note`, one `flush`."""

    def __init__(
        self,
        writer: MachineStatusClient,
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
        self._counts: Counter[tuple[str, bool]] = Counter()
        """How many of them each namespace has, proved and not proved."""
        self._dropped: Counter[str] = Counter()
        """Conditions of each namespace that were dropped since they were logged."""
        self._written: OrderedDict[_Key, tuple[MachineCondition, float]] = OrderedDict()
        """What was written last, and when."""
        self._outboxes = {
            proved: Outbox("machine not reported", "namespace", monotonic)
            for proved in (True, False)
        }
        """One for conditions that are proved, so that no other write pauses their namespace."""

    def note(self, condition: MachineCondition) -> None:
        """Remember a condition, to be written by the next `flush`; never raises."""
        with self._lock:
            key = _key(condition)
            known = self._due.get(key)
            if known is None and key in self._written and not condition.event_only:
                # Events expire, so an alarm is repeated.
                known, when = self._written[key]
                if _is_proved(condition) and self._monotonic() - when >= _MIN_INTERVAL:
                    # The Machine may have lost it since. If not, the writer reads that.
                    known = None
            if known is not None and (known == condition or _stays(known, condition)):
                return
            due, kind = self._due.get(key), _kind(condition)
            if due is None or _kind(due) != kind:
                if self._counts[kind] >= _MAX_DUE:
                    self._dropped[condition.namespace] += 1
                    return
                self._counts[kind] += 1
                if due is not None:
                    self._counts[_kind(due)] -= 1
            self._due[key] = condition

    def flush(self) -> None:
        """Write the conditions that are due, a few of each namespace, those first that are proved.

        Otherwise requests that name many Machines would delay them.
        """
        self._flush(proved=True)
        self._flush(proved=False)

    def flush_last(self) -> None:
        """Write all conditions that are proved, before the signer ends; stop if that fails."""
        before = math.inf
        while 0 < (due := self._flush(proved=True)) < before:
            before = due

    def log_dropped(self) -> None:
        """Log for which namespaces conditions were dropped since the last call."""
        with self._lock:
            dropped, self._dropped = self._dropped, Counter()
        for namespace, count in dropped.items():
            fields = {"namespace": namespace, "count": count}
            _logger.warning("conditions of machines dropped", extra={"fields": fields})

    def _flush(self, *, proved: bool) -> int:
        """Write a batch; return how many conditions were due."""
        with self._lock:
            due = [c for c in self._due.values() if _is_proved(c) == proved and self._may_write(c)]
        self._outboxes[proved].write((c.namespace, partial(self._write, c)) for c in due)
        return len(due)

    def _may_write(self, condition: MachineCondition) -> bool:
        key = _key(condition)
        if key not in self._written:
            return True
        _, when = self._written[key]
        return _is_proved(condition) or self._monotonic() - when >= _MIN_INTERVAL

    def _write(self, condition: MachineCondition) -> None:
        self._writer.write(condition, self._now())
        with self._lock:
            key = _key(condition)
            self._written[key] = (condition, self._monotonic())
            self._written.move_to_end(key)
            if len(self._written) > _MAX_WRITTEN:
                self._written.popitem(last=False)
            if self._due.get(key) == condition:
                del self._due[key]
                self._counts[_kind(condition)] -= 1


def _key(condition: MachineCondition) -> _Key:
    return condition.uid, condition.event_only


def _kind(condition: MachineCondition) -> tuple[str, bool]:
    return condition.namespace, _is_proved(condition)


def _is_proved(condition: MachineCondition) -> bool:
    return bool(condition.attested) or condition.proved


def _stays(known: MachineCondition, condition: MachineCondition) -> bool:
    """Return whether a new condition, of a request that is not proved, must not replace another."""
    return _is_proved(known) and not _is_proved(condition)
