"""`register` warns of Clusters and Machines that do not exist, and registers all the same."""

import io
import json
from argparse import Namespace
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from signer.kube.client import Response
from signer.model import ClusterKey
from signer.operator_cli.commands import register
from signer.operator_cli.errors import ServerUnavailable
from signer.operator_cli.management import ManagementApi
from signer.operator_cli.session import Session

KEY = "ab" * 32
GROUP = "/apis/cluster.x-k8s.io"
VERSION = {"groupVersion": "cluster.x-k8s.io/v1beta2"}
KINDS = {"clusters": "Cluster", "machines": "Machine"}
DISCOVERY: Mapping[str, object] = {
    GROUP: {"preferredVersion": VERSION, "versions": [VERSION]},
    f"{GROUP}/v1beta2": {"resources": [{"name": n, "kind": k} for n, k in KINDS.items()]},
}


@dataclass
class Management:
    """A management cluster with the Cluster team-a/c1 and its Machine c1-md-0."""

    may_list: bool = True
    capacity: int = 100
    """Keys after which nothing can be created."""
    created: list[dict[str, Any]] = field(default_factory=list)

    def get(self, path: str, *, accepted: Container[int] = (200,)) -> Response:
        assert 200 in accepted
        return Response(status=200, content=json.dumps(DISCOVERY[path]).encode())

    def find(self, _: str) -> None:
        """Return no EndorsementKey."""

    def create(self, _: str, body: dict[str, Any], *, accepted: Container[int]) -> Response:
        assert 201 in accepted
        if len(self.created) == self.capacity:
            raise ServerUnavailable("permission is missing (403)")
        self.created.append(body)
        return Response(status=201, content=b"{}")

    def list_objects(self, path: str) -> list[dict[str, Any]]:
        if not self.may_list:
            raise ServerUnavailable("permission is missing (403)")
        name = {
            f"{GROUP}/v1beta2/namespaces/team-a/clusters": "c1",
            f"{GROUP}/v1beta2/namespaces/team-a/machines": "c1-md-0",
        }.get(path)
        return [] if name is None else [{"metadata": {"name": name}}]


def call(
    management: Management, cluster: str, machine: str | None, provider_id: str | None = None
) -> tuple[str, str]:
    """Register a key; return what is on stdout and on stderr."""
    namespace, name = cluster.split("/")
    arguments = Namespace(
        key=f"sha256:{KEY}",
        inventory=None,
        cluster=ClusterKey(namespace=namespace, name=name),
        machine=machine,
        provider_id=provider_id,
        node=None,
    )
    streams = io.StringIO(), io.StringIO(), io.StringIO()
    api = cast("ManagementApi", management)
    assert register.run(Session(arguments, lambda: api, datetime.now(UTC), *streams)) == 0
    return streams[1].getvalue(), streams[2].getvalue()


@pytest.mark.parametrize(
    ("cluster", "machine", "absent"),
    [
        ("team-a/c1", "c1-md-0", None),
        ("team-a/c1", None, None),
        ("team-a/c11", "c1-md-0", "Cluster team-a/c11"),
        ("team-b/c1", "c1-md-0", "Cluster team-b/c1"),
        ("team-a/c1", "c1-md-O", "Machine team-a/c1-md-O"),
    ],
)
def test_name_that_no_object_has_is_a_warning(
    cluster: str, machine: str | None, absent: str | None
) -> None:
    """A typing error was registered without a word, and the node waited."""
    management = Management()
    provider_id = None if machine else "metal3://host-7"
    output, complaint = call(management, cluster, machine, provider_id)
    assert output == f"EndorsementKey {KEY}: created\n"
    [body] = management.created
    assert body["metadata"]["name"] == KEY
    warning = f"warning: {absent} does not exist: correct the name, unless it is created later\n"
    assert complaint == ("" if absent is None else warning)


def test_user_who_may_not_list_clusters_registers_without_a_warning() -> None:
    management = Management(may_list=False)
    assert call(management, "team-a/c11", "c1-md-0") == (f"EndorsementKey {KEY}: created\n", "")


def inventory(management: Management, directory: Path, rows: int) -> Session:
    """Return the session of a command that registers an inventory of unknown Machines."""
    file = directory / "rack.csv"
    lines = (f"{KEY},team-a/c1,c1-md-0{number:02}" for number in range(rows))
    file.write_text("\n".join(("key,cluster,machine", *lines)))
    arguments = Namespace(
        key=None, inventory=file, cluster=None, machine=None, provider_id=None, node=None
    )
    streams = io.StringIO(), io.StringIO(), io.StringIO()
    return Session(
        arguments, lambda: cast("ManagementApi", management), datetime.now(UTC), *streams
    )


def test_inventory_of_unknown_names_has_a_limited_number_of_warnings(tmp_path: Path) -> None:
    session = inventory(Management(), tmp_path, rows=12)
    assert register.run(session) == 0
    lines = cast("io.StringIO", session.stderr).getvalue().splitlines()
    assert len(lines) == 11
    assert lines[-1] == "warning: 2 more Clusters and Machines do not exist"


@pytest.mark.parametrize(
    ("written", "warning"),
    [
        (0, ""),
        (
            2,
            "warning: 2 of 3 registrations are written: solve the error and repeat\n",
        ),
    ],
)
def test_inventory_that_is_interrupted_says_how_much_was_written(
    tmp_path: Path, written: int, warning: str
) -> None:
    session = inventory(Management(capacity=written), tmp_path, rows=3)
    with pytest.raises(ServerUnavailable):
        register.run(session)
    assert cast("io.StringIO", session.stderr).getvalue() == warning
