"""`register` warns of Clusters and Machines that do not exist, and registers all the same.

It asks before it registers a key that another machine has.
"""

from pathlib import Path

import pytest

from signer.kinds.cluster import ClusterKey
from signer.operator_cli.commands.key_changes import register
from signer.operator_cli.errors import Rejected, ServerUnavailable
from tests.fakes.management_api import Console, FakeManagement

KEY, OTHER = "ab" * 32, "cd" * 32


def management() -> FakeManagement:
    """Return a management cluster with the Cluster team-a/c1 and its Machine c1-md-0."""
    found = FakeManagement()
    found.put_capi("clusters", "team-a", "c1")
    found.put_capi("machines", "team-a", "c1-md-0")
    return found


def call(
    management: FakeManagement, cluster: str, machine: str | None, **arguments: object
) -> Console:
    """Register a key, and return the console."""
    namespace, name = cluster.split("/")
    given = {
        "key": f"sha256:{KEY}",
        "inventory": None,
        "cluster": ClusterKey(namespace=namespace, name=name),
        "machine": machine,
        "provider_id": None,
        "node": None,
        **arguments,
    }
    console = Console(management, given)
    assert register.run(console.session()) == 0
    return console


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
    cluster_api = management()
    provider_id = None if machine else "metal3://host-7"
    console = call(cluster_api, cluster, machine, provider_id=provider_id)
    assert console.output == f"EndorsementKey {KEY}: created\n"
    assert KEY in str(cluster_api.writes)
    warning = f"warning: {absent} does not exist: correct the name, unless it is created later\n"
    assert console.complaint == ("" if absent is None else warning)


def test_user_who_may_not_list_clusters_registers_without_a_warning() -> None:
    cluster_api = management()
    cluster_api.intercept(403, "GET", "/clusters")
    console = call(cluster_api, "team-a/c11", "c1-md-0")
    assert (console.output, console.complaint) == (f"EndorsementKey {KEY}: created\n", "")


HOLDER = {
    "clusterNamespace": "team-b",
    "clusterName": "c1",
    "nodeName": "node-1",
    "providerID": "metal3://host-7",
    "basis": "Registered",
}
REGISTERED = {"clusterNamespace": "team-b", "clusterName": "c1", "machineName": "m"}
OWN = {"clusterNamespace": "team-a", "clusterName": "c1", "machineName": "c1-md-0"}


@pytest.mark.parametrize(
    ("spec", "whose"),
    [
        ({"heldBy": HOLDER}, "node node-1 of Cluster team-b/c1 holds the key"),
        ({"registeredFor": [OWN, REGISTERED]}, "is registered for m of Cluster team-b/c1"),
    ],
    ids=["held", "registered"],
)
def test_key_of_another_machine_is_registered_only_after_a_confirmation(
    spec: dict[str, object], whose: str
) -> None:
    """It was registered without a word, and the two machines could not be told apart."""
    cluster_api = management()
    cluster_api.put_key(KEY, **spec)
    with pytest.raises(Rejected, match="not confirmed"):
        call(cluster_api, "team-a/c1", "c1-md-0")
    assert not cluster_api.writes
    console = call(cluster_api, "team-a/c1", "c1-md-0", yes=True)
    assert whose in console.complaint


def test_key_of_the_same_machine_needs_no_confirmation() -> None:
    cluster_api = management()
    entry = {**OWN, "providerID": "metal3://host-7"}
    cluster_api.put_key(KEY, registeredFor=[entry], heldBy={**HOLDER, "clusterNamespace": "team-a"})
    assert call(cluster_api, "team-a/c1", "c1-md-0").output.endswith(": changed\n")


def test_keys_of_other_machines_in_an_inventory_are_one_question(tmp_path: Path) -> None:
    cluster_api = management()
    cluster_api.put_key(KEY, heldBy=HOLDER)
    file = tmp_path / "rack.csv"
    rows = (f"{key},team-a/c1,c1-md-0" for key in (OTHER, KEY))
    file.write_text("\n".join(("key,cluster,machine", *rows)))
    with pytest.raises(Rejected, match="not confirmed"):
        register.run(inventory_session(cluster_api, file).session())
    assert not cluster_api.writes


def test_key_of_several_machines_in_one_inventory_is_a_question(tmp_path: Path) -> None:
    """A row that was copied registered one TPM for two machines without a word."""
    file = tmp_path / "rack.csv"
    rows = (f"{KEY},team-a/c1,{machine}" for machine in ("c1-md-0", "c1-md-1", "c1-md-0"))
    file.write_text("\n".join(("key,cluster,machine", *rows)))
    console = inventory_session(management(), file)
    with pytest.raises(Rejected, match="not confirmed"):
        register.run(console.session())
    assert not console.management.writes
    places = "c1-md-0 of Cluster team-a/c1, c1-md-1 of Cluster team-a/c1"
    assert f"has the key {KEY} for several machines: {places}\n" in console.complaint


def inventory_session(cluster_api: FakeManagement, file: Path) -> Console:
    """Return the console of a command that registers an inventory."""
    names = ("key", "cluster", "machine", "provider_id", "node")
    return Console(cluster_api, {**dict.fromkeys(names), "inventory": file})


def inventory(cluster_api: FakeManagement, directory: Path, rows: int) -> Console:
    """Return the console of a command that registers an inventory of unknown Machines."""
    file = directory / "rack.csv"
    lines = (f"{number:064x},team-a/c1,c1-md-0{number:02}" for number in range(rows))
    file.write_text("\n".join(("key,cluster,machine", *lines)))
    return inventory_session(cluster_api, file)


def test_inventory_of_unknown_names_has_a_limited_number_of_warnings(tmp_path: Path) -> None:
    console = inventory(management(), tmp_path, rows=12)
    assert register.run(console.session()) == 0
    lines = console.complaint.splitlines()
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
    cluster_api = management()
    cluster_api.intercept(403, "POST PATCH", skip=written)
    console = inventory(cluster_api, tmp_path, rows=3)
    with pytest.raises(ServerUnavailable) as refused:
        register.run(console.session())
    assert console.complaint == warning
    # The first line is the header.
    row = f"{tmp_path / 'rack.csv'}: row {written + 2}"
    assert refused.value.message.startswith(f"{row}: permission is missing (403)")
