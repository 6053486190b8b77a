"""Writes the condition KubeletAttested of Machines, and Events about them.

In v1beta2 it is in `status.conditions`. A management cluster that prefers v1beta1 has the same list
in `status.v1beta2.conditions` (Cluster API's proposal for v1beta2 conditions). The list is replaced
under the resource version that was read, so the conditions of Cluster API stay as they are. Its own
controllers write conditions in the same way.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from http import HTTPStatus
from typing import Annotated, Any, Final

import msgspec

from common.errors import ApiServerUnavailable
from common.formats.strict_json import format_time
from signer.inventory.cluster_api.machine_object import CONDITION, MAX_MESSAGE
from signer.kinds.decode import MAX_ENTRIES, Fields, Text, read_as
from signer.kinds.resources import MACHINE, Resource
from signer.kube.discovery import find_resource
from signer.kube.events import EventRecorder, ObjectReference
from signer.kube.transport.client import MAY_HAVE_CHANGED, ApiClient

_logger = logging.getLogger(__name__)

_OLD_VERSION: Final = "v1beta1"
_MAX_ATTEMPTS: Final = 3
"""Cluster API may write the Machine between a read and a write."""


_Conditions = Annotated[list[dict[str, Any]], msgspec.Meta(max_length=MAX_ENTRIES)] | None


class _NewStatus(Fields):
    conditions: _Conditions = None


class _Status(Fields):
    conditions: _Conditions = None
    v1beta2: _NewStatus | None = None


class _Meta(Fields):
    uid: Text
    resource_version: Text
    generation: int | None = None


class _Machine(Fields):
    metadata: _Meta
    status: _Status | None = None


class _Write(Enum):
    """What one attempt to write did."""

    CHANGED = "changed"
    NOTHING = "nothing that a user has to know"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCondition:
    """Whether the node of a Machine has attested, and if not, why."""

    namespace: str
    name: str
    uid: str
    attested: bool | None
    """`None`: unknown."""
    reason: str
    message: str
    proved: bool = False
    """Whether the claim of the node or an operator's object is the cause, so that it may end a
    condition that is True. Otherwise the cause of one that is not is a request, perhaps unproved.
    """
    event_only: bool = False
    """An alarm: it becomes an Event and changes no condition."""

    @property
    def status(self) -> str:
        """Return the status of the condition."""
        return "Unknown" if self.attested is None else str(self.attested)


class MachineStatusClient:
    """Writes the condition and its Events to the management cluster."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._events = EventRecorder(api)
        self._machines: Resource | None = None
        """Discovered again after a 404, since an upgrade ends a version."""

    def write(self, condition: MachineCondition, now: datetime) -> None:
        """Write the condition and an Event, unless the Machine has this condition or is gone.

        A condition that is true stays, unless what ends it is proved: its node has attested, and a
        request that is not proved may name any Machine. If only `observedGeneration` is written,
        there is no Event. Raises `ApiServerUnavailable` if the
        condition, or the Event of an alarm, is not written.
        """
        machines = self._machines = self._machines or find_resource(self._api, MACHINE)
        if machines is None:
            return
        if condition.event_only:
            self._record_event(condition, machines, now)
            return
        for _ in range(_MAX_ATTEMPTS):
            status = self._write_once(machines, condition, now)
            if status == _Write.CHANGED:
                self._try_to_record_event(condition, machines, now)
            if status != _Write.CONFLICT:
                return
        raise ApiServerUnavailable("the Machine changes too often")

    def _write_once(
        self, machines: Resource, condition: MachineCondition, now: datetime
    ) -> "_Write":
        """Write the condition if the Machine lacks it."""
        response = self._api.find(machines.object_path(condition.name, condition.namespace))
        if response is None:
            self._machines = None
            return _Write.NOTHING
        old = machines.version == _OLD_VERSION
        machine = response.read(read_as(_Machine))
        conditions = _conditions(machine, old=old)
        earlier = next((c for c in conditions if c.get("type") == CONDITION), {})
        if machine.metadata.uid != condition.uid or _ends_attested(earlier, condition):
            return _Write.NOTHING
        entry = _entry(condition, machine.metadata.generation, _since(earlier, condition, now))
        differing = {key for key in entry if earlier.get(key) != entry[key]}
        if not differing:
            return _Write.NOTHING
        others = [c for c in conditions if c.get("type") != CONDITION]
        written = {"conditions": [*others, entry]}
        body = {
            "metadata": {"resourceVersion": machine.metadata.resource_version},
            "status": {"v1beta2": written} if old else written,
        }
        path = machines.object_path(condition.name, condition.namespace, subresource="status")
        status = self._api.merge_patch(path, body, accepted=MAY_HAVE_CHANGED).status
        if status == HTTPStatus.CONFLICT:
            return _Write.CONFLICT
        if status == HTTPStatus.NOT_FOUND or differing == {"observedGeneration"}:
            return _Write.NOTHING
        return _Write.CHANGED

    def _try_to_record_event(
        self, condition: MachineCondition, machines: Resource, now: datetime
    ) -> None:
        """Create an Event about a condition, or log why not: a quota may refuse all Events."""
        try:
            self._record_event(condition, machines, now)
        except ApiServerUnavailable as error:
            fields = {"namespace": condition.namespace, "machine": condition.name}
            fields |= {"message": error.message, "detail": error.detail}
            _logger.warning("event about a machine not written", extra={"fields": fields})

    def _record_event(self, condition: MachineCondition, machines: Resource, now: datetime) -> None:
        regarding = ObjectReference(
            api_version=machines.api_version,
            kind=machines.kind,
            namespace=condition.namespace,
            name=condition.name,
            uid=condition.uid,
        )
        self._events.record(
            regarding, condition.reason, condition.message, now, warning=not condition.attested
        )


def _conditions(machine: _Machine, *, old: bool) -> list[dict[str, Any]]:
    status = machine.status or _Status()
    if old:
        return (status.v1beta2.conditions if status.v1beta2 else None) or []
    return status.conditions or []


def _ends_attested(earlier: Mapping[str, Any], condition: MachineCondition) -> bool:
    """Return whether a condition that is not proved would replace one that is True."""
    is_unproved = not condition.attested and not condition.proved
    return earlier.get("status") == "True" and is_unproved


def _since(earlier: Mapping[str, Any], condition: MachineCondition, now: datetime) -> str:
    since = earlier.get("lastTransitionTime")
    if isinstance(since, str) and earlier.get("status") == condition.status:
        return since
    return format_time(now)


def _entry(condition: MachineCondition, generation: int | None, since: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "type": CONDITION,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message[:MAX_MESSAGE],
        "lastTransitionTime": since,
    }
    # The Machine of which the condition tells; every object of an API server has a generation.
    return entry if generation is None else {**entry, "observedGeneration": generation}
