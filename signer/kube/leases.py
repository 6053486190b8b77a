"""Leases (coordination.k8s.io/v1) of one namespace: each is renewed while its holder runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any, Final
from urllib.parse import quote

import msgspec

from common.errors import ApiServerUnavailable
from signer.kube.client import ApiClient
from signer.kube.decode import MAX_ENTRIES, Fields, Labels, MaybeText, Source, Text, decode

_MAX_LEASES: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One Lease."""

    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    holder: str
    renewed: str
    """`renewTime` as written. The clock of the holder may be wrong, so only a change counts."""


class _Meta(Fields):
    name: Text
    uid: Text
    resource_version: Text
    labels: Labels = None


class _Spec(Fields):
    holder_identity: MaybeText = None
    renew_time: MaybeText = None


class _Lease(Fields):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _ListMeta(Fields):
    continue_: MaybeText = msgspec.field(default=None, name="continue")


class _List(Fields):
    metadata: _ListMeta
    items: Annotated[list[_Lease], msgspec.Meta(max_length=MAX_ENTRIES)] | None = None


class LeaseClient:
    """Reads and writes Leases. Raises `ApiServerUnavailable`."""

    def __init__(self, api: ApiClient, namespace: str) -> None:
        self._api = api
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace, safe='')}/leases"

    def all(self, label: str) -> Sequence[Lease]:
        """Return the Leases that have this label, with any value."""
        query = {"labelSelector": label, "limit": str(_MAX_LEASES)}
        found = self._api.get(self._path, query).read(_read_list)
        if found.metadata.continue_:
            raise ApiServerUnavailable(f"the namespace has more than {_MAX_LEASES} Leases")
        return tuple(map(_lease, found.items or ()))

    def renew(
        self, name: str, *, holder: str, seconds: int, labels: Mapping[str, str], now: datetime
    ) -> None:
        """Write the time of renewal; create the Lease if it does not exist."""
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": seconds,
            "renewTime": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        body: dict[str, Any] = {"metadata": {"labels": dict(labels)}, "spec": spec}
        accepted = (HTTPStatus.OK, HTTPStatus.NOT_FOUND)
        response = self._api.merge_patch(self._one(name), body, accepted=accepted)
        if response.status == HTTPStatus.NOT_FOUND:
            body["metadata"]["name"] = name
            kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
            self._api.create(self._path, {**kind, **body})

    def delete(self, name: str) -> None:
        """Delete a Lease in whatever state it is."""
        self._delete(name, {})

    def delete_unchanged(self, lease: Lease) -> None:
        """Delete a Lease, unless it has changed since it was read."""
        self._delete(lease.name, {"uid": lease.uid, "resourceVersion": lease.resource_version})

    def _delete(self, name: str, preconditions: Mapping[str, str]) -> None:
        accepted = (HTTPStatus.OK, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
        self._api.delete(self._one(name), preconditions, accepted=accepted)

    def _one(self, name: str) -> str:
        return f"{self._path}/{quote(name, safe='')}"


def _read_list(source: Source) -> _List:
    return decode(source, _List)


def _lease(found: _Lease) -> Lease:
    metadata, spec = found.metadata, found.spec
    return Lease(
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        labels=metadata.labels or {},
        holder=spec.holder_identity or "",
        renewed=spec.renew_time or "",
    )
