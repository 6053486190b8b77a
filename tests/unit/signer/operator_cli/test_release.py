"""`release` warns if the key is not held in the Cluster that it names."""

import io
import json
from argparse import Namespace
from collections.abc import Container
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from signer.kube.client import Response
from signer.model import ClusterKey
from signer.operator_cli.commands import release
from signer.operator_cli.management import ManagementApi
from signer.operator_cli.session import Session

KEY = "ab" * 32
HOLDER = {"clusterNamespace": "team-a", "clusterName": "c1", "nodeName": "node-1"}


@dataclass
class Management:
    """A management cluster with one EndorsementKey."""

    spec: dict[str, Any]
    patches: list[dict[str, Any]] = field(default_factory=list)

    def find(self, _: str) -> Response:
        body = {"metadata": {"name": KEY, "resourceVersion": "1"}, "spec": self.spec}
        return Response(status=200, content=json.dumps(body).encode())

    def merge_patch(self, _: str, body: dict[str, Any], *, accepted: Container[int]) -> Response:
        assert 200 in accepted
        self.patches.append(body)
        return Response(status=200, content=b"{}")


@pytest.mark.parametrize(
    ("spec", "cluster", "warned"),
    [
        ({"heldBy": HOLDER}, "c1", False),
        ({}, "c1", False),
        ({"heldBy": HOLDER}, "c11", True),
    ],
    ids=["holder", "no holder", "typing error"],
)
def test_release_from_another_cluster_than_the_holders_is_a_warning(
    spec: dict[str, Any],
    cluster: str,
    warned: bool,  # noqa: FBT001 - a parameter of the case
) -> None:
    """The next owner of the hardware waited, and nothing said why."""
    management = Management(spec)
    arguments = Namespace(
        key=KEY,
        cluster=ClusterKey(namespace="team-a", name=cluster),
        provider_id=None,
        yes=True,
    )
    streams = io.StringIO(), io.StringIO(), io.StringIO()
    api = cast("ManagementApi", management)
    assert release.run(Session(arguments, lambda: api, datetime.now(UTC), *streams)) == 0
    released = {"clusterNamespace": "team-a", "clusterName": cluster}
    assert [patch["spec"] for patch in management.patches] == [{"releasedFrom": [released]}]
    warning = "node node-1 of Cluster team-a/c1 holds this key: a release from Cluster team-a/c11"
    assert (warning in streams[2].getvalue()) is warned
    assert bool(streams[2].getvalue()) is warned
