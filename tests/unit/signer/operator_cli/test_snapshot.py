"""Reading the objects of the management cluster for the commands of operators."""

import json
from collections.abc import Container
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import cast

import pytest

from signer.inventory.machine import Reference
from signer.kube.client import Response
from signer.operator_cli.management import ManagementApi
from signer.operator_cli.snapshot import find_referenced

GROUP = "infrastructure.cluster.x-k8s.io"
VERSION = f"{GROUP}/v1beta1"


@dataclass
class Api:
    """A management cluster with one kind of infrastructure; it records what is read."""

    paths: list[str] = field(default_factory=list)

    def get(self, path: str, *, accepted: Container[int]) -> Response:
        """Answer discovery."""
        assert HTTPStatus.OK in accepted
        documents = {
            f"/apis/{GROUP}": {"preferredVersion": {"groupVersion": VERSION}},
            f"/apis/{VERSION}": {"resources": [{"name": "testclusters", "kind": "TestCluster"}]},
        }
        return Response(status=HTTPStatus.OK, content=json.dumps(documents[path]).encode())

    def find(self, path: str) -> None:
        """Record the path; no object exists."""
        self.paths.append(path)


@pytest.mark.parametrize(
    ("name", "segment"),
    [
        ("blue", "blue"),
        ("../../other/testclusters/green", "..%2F..%2Fother%2Ftestclusters%2Fgreen"),
        ("blue?watch=true", "blue%3Fwatch%3Dtrue"),
    ],
)
def test_name_in_a_reference_of_a_tenant_led_to_another_path(name: str, segment: str) -> None:
    """An object of another namespace was read with the operator's rights, and replayed as this."""
    api = Api()
    reference = Reference(group=GROUP, kind="TestCluster", namespace="team-a", name=name)
    assert find_referenced(cast("ManagementApi", api), reference) is None
    assert api.paths == [f"/apis/{VERSION}/namespaces/team-a/testclusters/{segment}"]
