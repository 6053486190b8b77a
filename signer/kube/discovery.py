"""Where an API server keeps its kinds: versions of an API group come and go with upgrades."""

from collections.abc import Container, Iterable, Mapping
from http import HTTPStatus
from typing import Annotated, Final, Protocol
from urllib.parse import quote

import msgspec

from signer.kube.client import Response
from signer.kube.decode import MAX_ENTRIES, Fields, MaybeText, Source, decode

_FOUND: Final = (HTTPStatus.OK, HTTPStatus.NOT_FOUND)


class Reader(Protocol):
    """The part of an API server that discovery needs."""

    def get(self, path: str, *, accepted: Container[int]) -> Response:
        """Read one answer."""


class _Version(Fields):
    group_version: MaybeText = None


class _ApiGroup(Fields):
    preferred_version: _Version = msgspec.field(default_factory=_Version)
    versions: Annotated[list[_Version], msgspec.Meta(max_length=MAX_ENTRIES)] | None = None


class _Resource(Fields):
    name: MaybeText = None
    kind: MaybeText = None


class _ResourceList(Fields):
    resources: Annotated[list[_Resource], msgspec.Meta(max_length=MAX_ENTRIES)] | None = None


def collection_path(reader: Reader, group: str, kind: str) -> str | None:
    """Return the path of all objects of a kind, in the version that the server prefers.

    `None` when it has no such kind. Raises `ApiServerUnavailable`.
    """
    for version in _served_versions(reader, group):
        path = _paths_of_version(reader, version).get(kind)
        if path is not None:
            return path
    return None


def namespaced_path(collection: str, namespace: str) -> str:
    """Return the path of the objects of one namespace."""
    version, _, plural = collection.rpartition("/")
    return f"{version}/namespaces/{quote(namespace, safe='')}/{plural}"


def collection_paths(reader: Reader, group: str) -> Mapping[str, str]:
    """Return the path of all objects of each kind in a group, in the version that is preferred.

    Empty when the server has no such group. Raises `ApiServerUnavailable`.
    """
    paths: dict[str, str] = {}
    for version in _served_versions(reader, group):
        paths = _paths_of_version(reader, version) | paths
    return paths


def _served_versions(reader: Reader, group: str) -> Iterable[str]:
    """Return the versions of a group, the preferred one first."""
    response = reader.get(f"/apis/{quote(group, safe='.')}", accepted=_FOUND)
    if response.status == HTTPStatus.NOT_FOUND:
        return ()
    served = response.read(_read_group)
    versions = (served.preferred_version, *(served.versions or ()))
    return dict.fromkeys(v.group_version for v in versions if v.group_version)


def _paths_of_version(reader: Reader, version: str) -> dict[str, str]:
    response = reader.get(f"/apis/{version}", accepted=_FOUND)
    if response.status == HTTPStatus.NOT_FOUND:
        return {}
    return {
        resource.kind: f"/apis/{version}/{resource.name}"
        for resource in response.read(_read_resources).resources or ()
        # A name with a slash is a subresource.
        if resource.kind and resource.name and "/" not in resource.name
    }


def _read_group(source: Source) -> _ApiGroup:
    return decode(source, _ApiGroup)


def _read_resources(source: Source) -> _ResourceList:
    return decode(source, _ResourceList)
