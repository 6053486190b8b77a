"""Writes the condition KubeletAttested of Machines, and Events about them.

In v1beta2 it is in `status.conditions`. A management cluster that prefers v1beta1 has the same list
in `status.v1beta2.conditions` (Cluster API's proposal for v1beta2 conditions). Server-side apply
owns this one condition, so those of Cluster API stay as they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Final
from urllib.parse import quote

import msgspec

from signer.kube.client import ApiClient
from signer.kube.decode import MAX_ENTRIES, Fields, MaybeText, Source, Text, decode
from signer.kube.discovery import collection_path
from signer.kube.events import EventRecorder, ObjectReference

CONDITION: Final = "KubeletAttested"
_CAPI: Final = "cluster.x-k8s.io"
_MANAGER: Final = "node-attestation-signer"
_OLD_VERSION: Final = "v1beta1"
_MAX_MESSAGE: Final = 1024


class _Condition(Fields):
    type: MaybeText = None
    status: MaybeText = None
    reason: MaybeText = None
    message: Annotated[str, msgspec.Meta(max_length=32 << 10)] | None = None
    last_transition_time: MaybeText = None


_Conditions = Annotated[list[_Condition], msgspec.Meta(max_length=MAX_ENTRIES)] | None


class _NewStatus(Fields):
    conditions: _Conditions = None


class _Status(Fields):
    conditions: _Conditions = None
    v1beta2: _NewStatus | None = None


class _Meta(Fields):
    uid: Text


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


class MachineStatusClient:
    """Writes the condition and its Events to the management cluster."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._events = EventRecorder(api)

    def write(self, condition: MachineCondition, now: datetime) -> None:
        """Write the condition and an Event, unless the Machine has this condition or is gone.

        A condition that is true stays: its node has attested, and a request that is not proved may
        name any Machine. Raises `ApiServerUnavailable`.
        """
        collection = collection_path(self._api, _CAPI, "Machine")
        if collection is None:
            return
        version, _, plural = collection.removeprefix("/apis/").rpartition("/")
        path = (
            f"/apis/{version}/namespaces/{quote(condition.namespace, safe='')}"
            f"/{plural}/{quote(condition.name, safe='')}"
        )
        response = self._api.get(path, accepted=(200, 404))
        if response.status == HTTPStatus.NOT_FOUND:
            return
        machine = response.read(_read_machine)
        earlier = _earlier(machine, old=version.endswith(_OLD_VERSION))
        if machine.metadata.uid != condition.uid or _stays(earlier, condition):
            return
        body = _body(condition, version, _since(earlier, condition, now))
        self._api.apply(f"{path}/status", body, manager=_MANAGER, accepted=(200, 404, 409))
        self._record_event(condition, version, now)

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


def _earlier(machine: _Machine, *, old: bool) -> _Condition:
    status = machine.status or _Status()
    conditions = status.conditions
    if old:
        conditions = status.v1beta2.conditions if status.v1beta2 else None
    return next((c for c in conditions or () if c.type == CONDITION), _Condition())


def _stays(earlier: _Condition, condition: MachineCondition) -> bool:
    """Return whether nothing has to be written."""
    if earlier.status == "True" and not condition.attested:
        return True
    new = (str(condition.attested), condition.reason, condition.message[:_MAX_MESSAGE])
    return (earlier.status, earlier.reason, earlier.message) == new


def _since(earlier: _Condition, condition: MachineCondition, now: datetime) -> str:
    if earlier.status == str(condition.attested) and earlier.last_transition_time:
        return earlier.last_transition_time
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def _body(condition: MachineCondition, version: str, since: str) -> Mapping[str, Any]:
    conditions: dict[str, Any] = {
        "conditions": [
            {
                "type": CONDITION,
                "status": str(condition.attested),
                "reason": condition.reason,
                "message": condition.message[:_MAX_MESSAGE],
                "lastTransitionTime": since,
            }
        ]
    }
    return {
        "apiVersion": version,
        "kind": "Machine",
        "metadata": {"name": condition.name, "uid": condition.uid},
        "status": {"v1beta2": conditions} if version.endswith(_OLD_VERSION) else conditions,
    }
