"""Where an API server keeps a kind: API groups' versions come and go with its upgrades."""

from collections.abc import Container
from http import HTTPStatus
from typing import Protocol
from urllib.parse import quote

from signer.kube.client import Response
from signer.kube.fields import get_objects, get_str

_FOUND = (HTTPStatus.OK, HTTPStatus.NOT_FOUND)


class Reader(Protocol):
    """The part of an API server that this needs."""

    def get(self, path: str, *, accepted: Container[int]) -> Response:
        """Read one answer."""


def collection_path(reader: Reader, group: str, kind: str) -> str | None:
    """Return the path of all objects of a kind, in the version that the server prefers.

    `None` when it has no such kind. Raises `ApiServerUnavailable`.
    """
    answer = reader.get(f"/apis/{quote(group, safe='.')}", accepted=_FOUND)
    if answer.status == HTTPStatus.NOT_FOUND:
        return None
    preferred = get_str(answer.body, "preferredVersion", "groupVersion")
    served = [get_str(v, "groupVersion") for v in get_objects(answer.body, "versions")]
    for version in dict.fromkeys([preferred, *served]):
        plural = None if version is None else _plural(reader, version, kind)
        if plural is not None:
            return f"/apis/{version}/{plural}"
    return None


def _plural(reader: Reader, version: str, kind: str) -> str | None:
    answer = reader.get(f"/apis/{version}", accepted=_FOUND)
    for resource in get_objects(answer.body, "resources"):
        name = get_str(resource, "name")
        if get_str(resource, "kind") == kind and name is not None and "/" not in name:
            return name
    return None
