"""Where an API server keeps its kinds: versions of an API group come and go with upgrades."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Protocol

import msgspec

from signer.kinds.decode import MAX_ENTRIES, Fields, MaybeText, read_as
from signer.kinds.resources import Kind, Resource, build_path
from signer.kube.transport.client import Response


class DiscoveryClient(Protocol):
    """The part of an API server that discovery needs."""

    def find(self, path: str) -> Response | None:
        """Read one answer, `None` if the API server has none."""


class _Version(Fields):
    group_version: MaybeText = None


class _ApiGroup(Fields):
    preferred_version: _Version = msgspec.field(default_factory=_Version)
    versions: Annotated[list[_Version], msgspec.Meta(max_length=MAX_ENTRIES)] | None = None


class _Resource(Fields):
    name: MaybeText = None
    kind: MaybeText = None
    namespaced: bool = True


class _ResourceList(Fields):
    resources: Annotated[list[_Resource], msgspec.Meta(max_length=MAX_ENTRIES)] | None = None


def find_resource(client: DiscoveryClient, kind: Kind) -> Resource | None:
    """Return the resource of a kind, in the version that the server prefers.

    `None` when it has no such kind. Raises `ApiServerUnavailable`.
    """
    group, name = kind
    for version in _served_versions(client, group):
        resource = _resources_of_version(client, group, version).get(name)
        if resource is not None:
            return resource
    return None


def served_resources(client: DiscoveryClient, group: str) -> Mapping[str, Resource]:
    """Return the resource of each kind in a group, in the version that is preferred.

    Empty when the server has no such group. Raises `ApiServerUnavailable`.
    """
    resources: dict[str, Resource] = {}
    for version in _served_versions(client, group):
        resources = _resources_of_version(client, group, version) | resources
    return resources


def _served_versions(client: DiscoveryClient, group: str) -> Iterable[str]:
    """Return the versions of a group, the preferred one first."""
    response = client.find(build_path("apis", group))
    if response is None:
        return ()
    served = response.read(read_as(_ApiGroup))
    versions = (served.preferred_version, *(served.versions or ()))
    names = ((v.group_version or "").rpartition("/")[2] for v in versions)
    return dict.fromkeys(name for name in names if name)


def _resources_of_version(client: DiscoveryClient, group: str, version: str) -> dict[str, Resource]:
    response = client.find(build_path("apis", group, version))
    if response is None:
        return {}
    return {
        found.kind: Resource(group, version, found.kind, found.name, found.namespaced)
        for found in response.read(read_as(_ResourceList)).resources or ()
        # A name with a slash is a subresource.
        if found.kind and found.name and "/" not in found.name
    }
