"""What a shell completes: Clusters, Machines and keys of the management cluster.

tests/integration/test_operator_commands.py completes whole command lines.
"""

import time
from argparse import Namespace
from threading import Event

import pytest

from signer.kinds.attested_node import ATTESTED_NODES
from signer.kinds.cluster import ClusterKey
from signer.kinds.key_request import KEY_REQUESTS
from signer.kinds.policy import POLICIES
from signer.operator_cli import object_names
from signer.operator_cli.errors import ServerUnavailable
from tests.fakes.cluster_clients import management_api
from tests.fakes.cluster_objects import MACHINES
from tests.fakes.management_api import FakeManagement

KEY = "ab" * 32
FLAGS = {"kubeconfig": "admin.conf", "context": "production", "as_user": "alice"}


def typed(cluster: str | None = None) -> Namespace:
    """Return the arguments that were typed before."""
    key = None
    if cluster is not None:
        namespace, name = cluster.split("/")
        key = ClusterKey(namespace=namespace, name=name)
    return Namespace(cluster=key, **FLAGS)


@pytest.fixture
def management(monkeypatch: pytest.MonkeyPatch) -> FakeManagement:
    """Return the management cluster that is reached with the flags that were typed."""
    found = FakeManagement()
    found.put_capi("clusters", "team-a", "c1", "c2")
    found.put_capi("clusters", "team-b", "c1")
    for name, cluster in (("c1-md-0", "c1"), ("c2-md-0", "c2")):
        body = {"metadata": {"name": name}, "spec": {"clusterName": cluster}}
        found.put(MACHINES.collection_path("team-a"), body)
    found.put(KEY_REQUESTS.collection_path("team-a"), {"metadata": {"name": "c1-md-0"}})
    node = {"metadata": {"name": "n1.c1"}, "spec": {"clusterName": "c1", "nodeName": "n1"}}
    found.put(ATTESTED_NODES.collection_path("team-a"), node)
    found.put_key(KEY)
    found.put(POLICIES.collection_path(), {"metadata": {"name": "production"}})

    def connect(*flags: object) -> object:
        assert flags == tuple(FLAGS.values())
        return management_api(found)

    monkeypatch.setattr(object_names, "connect", connect)
    return found


@pytest.mark.usefixtures("management")
def test_names_are_those_that_the_commands_read() -> None:
    read = object_names.read_names
    assert read(typed(), object_names.clusters) == ["team-a/c1", "team-a/c2", "team-b/c1"]
    assert read(typed(), object_names.machines) == ["c1-md-0", "c2-md-0"]
    assert read(typed("team-a/c2"), object_names.machines) == ["c2-md-0"]
    assert read(typed("team-b/c1"), object_names.machines) == []
    assert read(typed(), object_names.waiting_machines) == ["team-a/c1-md-0"]
    assert read(typed(), object_names.keys) == [KEY, "team-a/c1/n1"]
    assert read(typed(), object_names.nodes) == ["team-a/c1/n1"]
    assert read(typed(), object_names.policies) == ["production"]


def test_name_that_a_shell_would_act_on_is_not_completed(management: FakeManagement) -> None:
    management.put_capi("clusters", "team-a", "c3;touch pwned")
    names = object_names.read_names(typed(), object_names.clusters)
    assert names == ["team-a/c1", "team-a/c2", "team-b/c1"]


def test_refused_request_completes_nothing(
    management: FakeManagement, capfd: pytest.CaptureFixture[str]
) -> None:
    management.intercept(403, "GET")
    assert object_names.read_names(typed(), object_names.clusters) == []
    assert capfd.readouterr().err == ""


def test_shell_does_not_wait_for_a_server_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = Event()

    def connect(*_: object) -> object:
        ended.wait(60)
        raise ServerUnavailable("the request has timed out")

    monkeypatch.setattr(object_names, "connect", connect)
    monkeypatch.setattr(object_names, "_WAIT_SECONDS", 0.1)
    before = time.monotonic()
    assert object_names.read_names(typed(), object_names.clusters) == []
    assert time.monotonic() - before < 30
    ended.set()
