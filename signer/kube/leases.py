"""Leases (coordination.k8s.io/v1) of one namespace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from signer.kinds.decode import Fields, Labels, MaybeText, Name, Source, Text, decode
from signer.kinds.resources import LEASES
from signer.kube.pages import UNLIMITED, list_objects
from signer.kube.transport.client import MAY_BE_ABSENT, MAY_EXIST, MAY_HAVE_CHANGED, ApiClient


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
    name: Name
    uid: Text
    resource_version: Text
    labels: Labels = None


class _Spec(Fields):
    holder_identity: MaybeText = None
    renew_time: MaybeText = None


class _Lease(Fields):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)


class LeaseClient:
    """Reads and writes Leases. Raises `ApiServerUnavailable`."""

    def __init__(self, api: ApiClient, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._path = LEASES.collection_path(namespace)

    def all(self, selector: str) -> Sequence[Lease]:
        """Return the Leases whose labels the selector matches."""
        query = {"labelSelector": selector}
        return tuple(
            list_objects(self._api, self._path, read_lease, query=query, max_objects=UNLIMITED)
        )

    def renew(  # noqa: PLR0913 - the fields of a Lease
        self,
        name: str,
        *,
        holder: str,
        seconds: int,
        labels: Mapping[str, str],
        time: str,
        version: str | None,
    ) -> Lease | None:
        """Create the Lease, or renew this version of it; `None` if another one, or none, exists."""
        spec = {"holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": time}
        metadata: dict[str, Any] = {"labels": dict(labels)}
        if version is None:
            body = LEASES.manifest(metadata={**metadata, "name": name}, spec=spec)
            response = self._api.create(self._path, body, accepted=MAY_EXIST)
        else:
            body = {"metadata": {**metadata, "resourceVersion": version}, "spec": spec}
            response = self._api.merge_patch(self._one(name), body, accepted=MAY_HAVE_CHANGED)
        return response.read(read_lease) if response.succeeded else None

    def assign(self, name: str, *, holder: str, labels: Mapping[str, str]) -> None:
        """Write the holder of a Lease without end; create the Lease if it does not exist."""
        body: dict[str, Any] = {
            "metadata": {"labels": dict(labels)},
            "spec": {"holderIdentity": holder},
        }
        response = self._api.merge_patch(self._one(name), body, accepted=MAY_BE_ABSENT)
        if not response.succeeded:
            body["metadata"]["name"] = name
            self._api.create(self._path, LEASES.manifest(**body))

    def delete(self, name: str) -> None:
        """Delete a Lease in whatever state it is."""
        self._delete(name, {})

    def delete_unchanged(self, lease: Lease) -> None:
        """Delete a Lease, unless it has changed since it was read."""
        self._delete(lease.name, {"uid": lease.uid, "resourceVersion": lease.resource_version})

    def _delete(self, name: str, preconditions: Mapping[str, str]) -> None:
        self._api.delete(self._one(name), preconditions, accepted=MAY_HAVE_CHANGED)

    def _one(self, name: str) -> str:
        return LEASES.object_path(name, self._namespace)


def format_micro_time(now: datetime) -> str:
    """Return a time as the API server writes it into `renewTime`."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def read_lease(source: Source) -> Lease:
    """Read a Lease. Raises `ValueError`."""
    found = decode(source, _Lease)
    metadata, spec = found.metadata, found.spec
    return Lease(
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        labels=metadata.labels or {},
        holder=spec.holder_identity or "",
        renewed=spec.renew_time or "",
    )
