"""Discovery of the path of a kind."""

import json
from collections.abc import Container, Mapping

import pytest

from signer.kube.client import Response
from signer.kube.decode import Json
from signer.kube.discovery import collection_path

GROUP = "cluster.x-k8s.io"


class Server:
    """Serves groups and their versions' resources."""

    def __init__(self, paths: Mapping[str, Json]) -> None:
        self._paths = paths

    def get(self, path: str, *, accepted: Container[int]) -> Response:
        if path in self._paths:
            return Response(status=200, content=json.dumps(self._paths[path]).encode())
        assert 404 in accepted
        return Response(status=404, content=b"{}")


def group(*versions: str) -> Json:
    served = [{"groupVersion": f"{GROUP}/{version}"} for version in versions]
    return {"versions": served, "preferredVersion": served[0]}


def resources(*names: str, kind: str = "Machine") -> Json:
    return {"resources": [{"name": name, "kind": kind} for name in names]}


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        ({}, None),
        (
            {
                f"/apis/{GROUP}": group("v1beta2", "v1beta1"),
                f"/apis/{GROUP}/v1beta2": resources("machines/status", "machines"),
                f"/apis/{GROUP}/v1beta1": resources("machines"),
            },
            f"/apis/{GROUP}/v1beta2/machines",
        ),
        (
            {
                f"/apis/{GROUP}": group("v1beta2", "v1beta1"),
                f"/apis/{GROUP}/v1beta2": resources("others", kind="Other"),
                f"/apis/{GROUP}/v1beta1": resources("machines"),
            },
            f"/apis/{GROUP}/v1beta1/machines",
        ),
        (
            {
                f"/apis/{GROUP}": group("v1beta2"),
                f"/apis/{GROUP}/v1beta2": resources("machines/status"),
            },
            None,
        ),
    ],
)
def test_kind_is_found_in_the_preferred_version_that_serves_it(
    paths: Mapping[str, Json], found: str | None
) -> None:
    assert collection_path(Server(paths), GROUP, "Machine") == found
