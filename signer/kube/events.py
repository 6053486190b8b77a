"""Events: what an operator sees with `kubectl describe`, for any object of one API server.

An Event for one object, reason and message has one name, so several replicas write one Event.
"""

from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Final

from common.formats.strict_json import format_time
from signer.kinds.resources import EVENTS
from signer.kube.transport.client import MAY_EXIST, ApiClient

COMPONENT: Final = "node-attestation-signer"
_MAX_MESSAGE: Final = 1024
"""Characters that Kubernetes allows in an Event's message (core/v1 validation)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectReference:
    """The object that an Event is about."""

    api_version: str
    kind: str
    namespace: str
    """Empty for an object without one; its Events are in the namespace `default`."""
    name: str
    uid: str


class EventRecorder:
    """Writes Events to one API server."""

    def __init__(self, api: ApiClient, *, component: str = COMPONENT) -> None:
        """Name `component` as the source of the Events."""
        self._api = api
        self._component = component

    def record(
        self,
        regarding: ObjectReference,
        reason: str,
        message: str,
        now: datetime,
        *,
        warning: bool = True,
    ) -> None:
        """Create an Event, unless the same one exists. Raises `ApiServerUnavailable`."""
        namespace = regarding.namespace or "default"
        digest = sha256(f"{regarding.uid}/{reason}/{message}".encode()).hexdigest()
        when = format_time(now)
        reference = {
            "apiVersion": regarding.api_version,
            "kind": regarding.kind,
            "name": regarding.name,
            "uid": regarding.uid,
        }
        if regarding.namespace:
            reference["namespace"] = regarding.namespace
        event = EVENTS.manifest(
            metadata={"name": f"attestation.{digest[:40]}", "namespace": namespace},
            involvedObject=reference,
            type="Warning" if warning else "Normal",
            reason=reason,
            message=message[:_MAX_MESSAGE],
            source={"component": self._component},
            reportingComponent=self._component,
            firstTimestamp=when,
            lastTimestamp=when,
            count=1,
        )
        self._api.create(EVENTS.collection_path(namespace), event, accepted=MAY_EXIST)
