"""Reports the objects that cannot be read: Events, and a count for the metrics.

The Event of an object of the management cluster is on that object. Objects of a workload cluster
are in the report on their Cluster.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Final

from signer.fairness.outbox import Outbox
from signer.inventory.unreadable_kinds import REASON
from signer.kube.events import EventRecorder, ObjectReference
from signer.kube.unreadable import Unreadable, UnreadableObject

_REPEAT_SECONDS: Final = 3600.0
"""Seconds until an Event is written again. The API server keeps Events for an hour."""


class UnreadableReporter:
    """Only one thread may call `update`."""

    def __init__(
        self,
        objects: Callable[[], Iterable[UnreadableObject]],
        events: EventRecorder,
        *,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self.counts: Mapping[tuple[str, str, str], int] = {}
        """By namespace, Cluster and plural."""
        self._objects = objects
        self._events = events
        self._now = now
        self._monotonic = monotonic
        self._outbox = Outbox("event about an object not written", "namespace", monotonic)
        self._written: dict[Unreadable, float] = {}

    def update(self) -> None:
        """Count the objects, and write Events about those of the management cluster."""
        objects = list(self._objects())
        self.counts = Counter(each[:3] for each in objects)
        own = {each.unreadable: each.namespace for each in objects if not each.cluster}
        now = self._monotonic()
        self._written = {
            u: at for u, at in self._written.items() if u in own and now - at < _REPEAT_SECONDS
        }
        self._outbox.write(
            (namespace, partial(self._record, unreadable))
            for unreadable, namespace in own.items()
            if unreadable not in self._written and unreadable.kind
        )

    def _record(self, unreadable: Unreadable) -> None:
        namespace, _, name = unreadable.key.rpartition("/")
        regarding = ObjectReference(
            api_version=unreadable.api_version,
            kind=unreadable.kind,
            namespace=namespace,
            name=name,
            uid=unreadable.uid,
        )
        message = (
            f"the signer cannot read this object ({unreadable.problem}), and decides nothing that"
            " may depend on it: correct or delete it"
        )
        self._events.record(regarding, REASON, message, self._now())
        self._written[unreadable] = self._monotonic()
