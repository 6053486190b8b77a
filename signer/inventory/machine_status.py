"""Writes the condition KubeletAttested of Machines, and Events about them.

In v1beta2 it is in `status.conditions`. A management cluster that prefers v1beta1 has the same list
in `status.v1beta2.conditions` (Cluster API's proposal for v1beta2 conditions). The list is replaced
under the resource version that was read, so the conditions of Cluster API stay as they are. Its own
controllers write conditions in the same way.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Final
from urllib.parse import quote

import msgspec

from common.errors import ApiServerUnavailable
from common.strict_json import format_time
from signer.kube.client import ApiClient
from signer.kube.decode import MAX_ENTRIES, Fields, Source, Text, decode
from signer.kube.discovery import collection_path, namespaced_path
from signer.kube.events import EventRecorder, ObjectReference

CONDITION: Final = "KubeletAttested"
_CAPI: Final = "cluster.x-k8s.io"
_OLD_VERSION: Final = "v1beta1"
_MAX_MESSAGE: Final = 1024
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


class _Machine(Fields):
    metadata: _Meta
    status: _Status | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCondition:
    """Whether the node of a Machine has attested, and if not, why."""

    namespace: str
    name: str
    uid: str
    attested: bool
    reason: str
    message: str
    by_operator: bool = False
    """Whether an operator's object is the cause. Otherwise it is a request, perhaps unproved."""
    event_only: bool = False
    """An alarm: it becomes an Event and changes no condition."""


class MachineStatusClient:
    """Writes the condition and its Events to the management cluster."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._events = EventRecorder(api)
        self._collection: str | None = None
        """Path of the Machines; discovered again after a 404, since an upgrade ends a version."""

    def write(self, condition: MachineCondition, now: datetime) -> None:
        """Write the condition and an Event, unless the Machine has this condition or is gone.

        A condition that is true stays, unless an operator ends it: its node has attested, and a
        request that is not proved may name any Machine. Raises `ApiServerUnavailable`.
        """
        self._collection = self._collection or collection_path(self._api, _CAPI, "Machine")
        if self._collection is None:
            return
        version, _, _ = self._collection.removeprefix("/apis/").rpartition("/")
        if condition.event_only:
            self._record_event(condition, version, now)
            return
        collection = namespaced_path(self._collection, condition.namespace)
        path = f"{collection}/{quote(condition.name, safe='')}"
        for _ in range(_MAX_ATTEMPTS):
            status = self._write_once(path, condition, now, old=version.endswith(_OLD_VERSION))
            if status == HTTPStatus.OK:
                self._record_event(condition, version, now)
            if status != HTTPStatus.CONFLICT:
                return
        raise ApiServerUnavailable("the Machine changes too often")

    def _write_once(
        self, path: str, condition: MachineCondition, now: datetime, *, old: bool
    ) -> int | None:
        """Write the condition; return the status of the write, `None` without a write."""
        response = self._api.get(path, accepted=(200, 404))
        if response.status == HTTPStatus.NOT_FOUND:
            self._collection = None
            return None
        machine = response.read(_read_machine)
        conditions = _conditions(machine, old=old)
        earlier = next((c for c in conditions if c.get("type") == CONDITION), {})
        if machine.metadata.uid != condition.uid or _stays(earlier, condition):
            return None
        others = [c for c in conditions if c.get("type") != CONDITION]
        written = {"conditions": [*others, _entry(condition, _since(earlier, condition, now))]}
        body = {
            "metadata": {"resourceVersion": machine.metadata.resource_version},
            "status": {"v1beta2": written} if old else written,
        }
        return self._api.merge_patch(f"{path}/status", body, accepted=(200, 404, 409)).status

    def _record_event(self, condition: MachineCondition, version: str, now: datetime) -> None:
        regarding = ObjectReference(
            api_version=version,
            kind="Machine",
            namespace=condition.namespace,
            name=condition.name,
            uid=condition.uid,
        )
        self._events.record(
            regarding, condition.reason, condition.message, now, warning=not condition.attested
        )


def _read_machine(source: Source) -> _Machine:
    return decode(source, _Machine)


def _conditions(machine: _Machine, *, old: bool) -> list[dict[str, Any]]:
    status = machine.status or _Status()
    if old:
        return (status.v1beta2.conditions if status.v1beta2 else None) or []
    return status.conditions or []


def _stays(earlier: Mapping[str, Any], condition: MachineCondition) -> bool:
    """Return whether nothing has to be written."""
    is_unproved = not condition.attested and not condition.by_operator
    if earlier.get("status") == "True" and is_unproved:
        return True
    keys = ("type", "status", "reason", "message")
    new = _entry(condition, "")
    return all(earlier.get(key) == new[key] for key in keys)


def _since(earlier: Mapping[str, Any], condition: MachineCondition, now: datetime) -> str:
    since = earlier.get("lastTransitionTime")
    if isinstance(since, str) and earlier.get("status") == str(condition.attested):
        return since
    return format_time(now)


def _entry(condition: MachineCondition, since: str) -> dict[str, str]:
    return {
        "type": CONDITION,
        "status": str(condition.attested),
        "reason": condition.reason,
        "message": condition.message[:_MAX_MESSAGE],
        "lastTransitionTime": since,
    }
