"""Secrets of the management cluster, read one at a time: no watch keeps them in memory."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Final
from urllib.parse import quote

import msgspec

from signer.kube.client import ApiClient
from signer.kube.decode import MAX_ENTRIES, Fields, Labels, MaybeText, Source, Text, Time, decode

_MAX_DATA: Final = 1 << 20
"""Bytes of one entry: what Kubernetes allows for all data of a Secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerReference:
    """An owner of an object, in the same namespace."""

    api_version: str
    kind: str
    uid: str


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


class _Owner(Fields):
    api_version: Text
    kind: Text
    uid: Text


class _Meta(Fields):
    name: Text
    namespace: Text
    resource_version: Text
    uid: MaybeText = None
    creation_timestamp: Time | None = None
    labels: Labels = None
    owner_references: Annotated[list[_Owner], msgspec.Meta(max_length=MAX_ENTRIES)] | None = None


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
        response = self._api.get(_path(namespace, name), accepted=(200, 404))
        return None if response.status == HTTPStatus.NOT_FOUND else response.read(read_secret)

    def create(self, namespace: str, name: str, data: Mapping[str, bytes]) -> Secret | None:
        """Create the Secret; `None` when it exists already."""
        body = _body(namespace, name, data)
        response = self._api.create(_path(namespace), body, accepted=(201, 409))
        return None if response.status == HTTPStatus.CONFLICT else response.read(read_secret)

    def replace(self, current: Secret, data: Mapping[str, bytes]) -> Secret | None:
        """Write all data under the resource version of `current`; `None` for a lost race."""
        body = _body(current.namespace, current.name, data)
        body["metadata"]["resourceVersion"] = current.resource_version
        path = _path(current.namespace, current.name)
        response = self._api.replace(path, body, accepted=(200, 404, 409))
        return response.read(read_secret) if response.status == HTTPStatus.OK else None


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
        owners=tuple(
            OwnerReference(api_version=o.api_version, kind=o.kind, uid=o.uid)
            for o in metadata.owner_references or ()
        ),
        data=secret.data or {},
    )


def _path(namespace: str, name: str = "") -> str:
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/secrets"
    return f"{path}/{quote(name, safe='')}" if name else path


def _body(namespace: str, name: str, data: Mapping[str, bytes]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {"namespace": namespace, "name": name},
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }
