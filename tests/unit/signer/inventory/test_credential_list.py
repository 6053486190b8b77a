"""Reads and writes of the ConfigMap with the credential list, and its space."""

import pytest

from common.errors import ApiServerUnavailable
from signer.claims.credential_entry import CredentialEntry
from signer.inventory.credential_list import CredentialList, CredentialListClient
from signer.model import credential_id
from tests.builders.attested_nodes import entry_text
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient

PATH = "/api/v1/namespaces/kube-system/configmaps"
NAME = "node-attestation-credentials"
A, B = credential_id(b"a"), credential_id(b"b")
TWO = CredentialEntry(7, ("0" * 32, "1" * 32))
ENDED = CredentialEntry(7, ())


def workload(**body: object) -> FakeCluster:
    """Return a workload cluster with the ConfigMap."""
    cluster = FakeCluster()
    cluster.put(PATH, {"metadata": {"name": NAME}, **body})
    return cluster


def client(cluster: FakeCluster) -> CredentialListClient:
    return CredentialListClient(FakeClient(cluster))


def test_entries_are_read() -> None:
    listed = client(workload(data={"node-1": entry_text(A)})).read()
    assert listed is not None
    assert listed.texts == {"node-1": entry_text(A)}
    present = listed.entry("node-1")
    assert present is not None
    assert present.names(A)
    assert listed.entry("node-2") is None


def test_new_config_map_has_no_entries() -> None:
    listed = client(workload()).read()
    assert listed is not None
    assert listed.texts == {}


def test_cluster_without_the_config_map_has_no_list() -> None:
    cluster = FakeCluster()
    assert client(cluster).read() is None
    client(cluster).publish({"node-1": ENDED})
    assert cluster.objects == {}


def test_list_with_a_name_that_no_api_server_stores_is_unreadable() -> None:
    """A hostile API server gave the names of 4 MiB that alarms then wrote into the log."""
    assert client(workload(data={"n" * 253: "7"})).read() is not None
    with pytest.raises(ApiServerUnavailable, match="the API server's answer cannot be read"):
        client(workload(data={"n" * 254: "7"})).read()


def test_ban_does_not_wait_until_no_other_node_renews() -> None:
    """Under the version that was read, each renewal of any node delayed it by a minute."""
    cluster = workload(data={"node-2": "7", "node-4": "7"})
    client(cluster).publish({"node-1": ENDED, "node-2": None, "node-3": TWO})
    texts = {"node-1": "7", "node-3": f"7 {'0' * 32} {'1' * 32}", "node-4": "7"}
    assert cluster.objects[f"{PATH}/{NAME}"]["data"] == texts
    [body] = cluster.bodies
    assert "metadata" not in body


def test_entries_of_other_nodes_are_not_held_and_their_space_counts() -> None:
    listed = CredentialList({"a": "1" * (1 << 19), "b": "7"}, 0)
    for name, texts in (("b", {"b": "7"}), ("c", {})):
        held = listed.of_node(name)
        assert held.texts == texts
        assert held.used() == listed.used() > 0.5


# space

SPACE = 3 << 19
"""Bytes of an object in etcd."""


def of_size(used: float, **texts: str) -> CredentialList:
    """Return a list whose object uses this part of its space."""
    return CredentialList(texts, int(used * SPACE))


def test_space_is_that_of_the_values_and_of_the_object() -> None:
    """API servers limit the values of a ConfigMap, and etcd the object with all its names."""
    assert CredentialList({"a": "1" * (1 << 19)}, 0).used() == 0.5
    assert CredentialList({"a": "1"}, SPACE // 2).used() == 0.5


@pytest.mark.parametrize(
    ("listed", "entry", "fits"),
    [
        (of_size(0.94), TWO, True),
        (of_size(0.95), TWO, False),
        (of_size(0.95), ENDED, True),
        (of_size(0.99, node=TWO.encode()), TWO, True),
        (of_size(0.99, node=ENDED.encode()), TWO, False),
        (CredentialList({"other": "1" * int(0.95 * 2**20)}, 0), TWO, False),
    ],
    ids=["space", "none", "ban", "renewal", "end of a ban", "no space for values"],
)
def test_entry_fits_if_the_list_grows_by_no_more_than_its_space(
    listed: CredentialList, entry: CredentialEntry, *, fits: bool
) -> None:
    assert listed.fits("node", entry) is fits


def test_name_of_a_node_takes_space_twice() -> None:
    size = int(0.95 * SPACE) - len(TWO.encode()) - 300
    assert CredentialList({}, size).fits("n" * 100, TWO)
    assert not CredentialList({}, size).fits("n" * 200, TWO)
