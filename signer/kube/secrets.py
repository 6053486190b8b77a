"""Secrets of the management cluster, read one at a time: no watch keeps them in memory."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec

from signer.kinds.decode import (
    MAX_ENTRIES,
    Fields,
    Labels,
    MaybeText,
    Name,
    Namespace,
    Source,
    Text,
    Time,
    decode,
)
from signer.kinds.resources import SECRETS
from signer.kube.transport.client import MAY_EXIST, MAY_HAVE_CHANGED, ApiClient

_MAX_DATA: Final = 1 << 20
"""Bytes of one entry: what Kubernetes allows for all data of a Secret."""


class OwnerReference(Fields):
    """An owner of an object, in the same namespace."""

    api_version: Text
    kind: Text
    uid: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """One Secret."""

    namespace: str
    name: str
    resource_version: str
    data: Mapping[str, bytes] = field(repr=False)
    uid: str = ""
    created: datetime | None = None
    type: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    owners: tuple[OwnerReference, ...] = ()


class _Meta(Fields):
    name: Name
    namespace: Namespace
    resource_version: Text
    uid: MaybeText = None
    creation_timestamp: Time | None = None
    labels: Labels = None
    owner_references: (
        Annotated[list[OwnerReference], msgspec.Meta(max_length=MAX_ENTRIES)] | None
    ) = None


class _Secret(Fields):
    metadata: _Meta
    type: MaybeText = None
    data: (
        Annotated[
            dict[str, Annotated[bytes, msgspec.Meta(max_length=_MAX_DATA)]],
            msgspec.Meta(max_length=MAX_ENTRIES),
        ]
        | None
    ) = None


class SecretClient:
    """Reads and writes single Secrets. Raises `ApiServerUnavailable`."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def read(self, namespace: str, name: str) -> Secret | None:
        """Return the Secret, `None` if it does not exist."""
        response = self._api.find(SECRETS.object_path(name, namespace))
        return None if response is None else response.read(read_secret)

    def create(self, namespace: str, name: str, data: Mapping[str, bytes]) -> Secret | None:
        """Create the Secret; `None` when it exists already."""
        body = _body(namespace, name, data)
        path = SECRETS.collection_path(namespace)
        response = self._api.create(path, body, accepted=MAY_EXIST)
        return response.read(read_secret) if response.succeeded else None

    def replace(self, current: Secret, data: Mapping[str, bytes]) -> Secret | None:
        """Write all data under the resource version of `current`; `None` for a lost race."""
        body = _body(current.namespace, current.name, data)
        body["metadata"]["resourceVersion"] = current.resource_version
        path = SECRETS.object_path(current.name, current.namespace)
        response = self._api.replace(path, body, accepted=MAY_HAVE_CHANGED)
        return response.read(read_secret) if response.succeeded else None


def read_secret(source: Source) -> Secret:
    """Read a Secret. Raises `ValueError`."""
    secret = decode(source, _Secret)
    metadata = secret.metadata
    return Secret(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid or "",
        resource_version=metadata.resource_version,
        created=metadata.creation_timestamp,
        type=secret.type or "",
        labels=metadata.labels or {},
        owners=tuple(metadata.owner_references or ()),
        data=secret.data or {},
    )


def _body(namespace: str, name: str, data: Mapping[str, bytes]) -> dict[str, Any]:
    return SECRETS.manifest(
        type="Opaque",
        metadata={"namespace": namespace, "name": name},
        data={key: base64.b64encode(value).decode() for key, value in data.items()},
    )
