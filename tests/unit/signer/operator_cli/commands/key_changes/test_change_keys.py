"""`ban`, `ban --lift`, `release` and `replace`: whose key they change, and that they ask."""

from collections.abc import Callable, Mapping
from dataclasses import replace as replace_fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from signer.kinds.attested_node import ATTESTED_NODES, encode_attested_node
from signer.kinds.cluster import ClusterKey
from signer.kinds.endorsement_key import ENDORSEMENT_KEYS
from signer.kube.transport.client import Request
from signer.operator_cli.commands.key_changes import ban, release, replace
from signer.operator_cli.errors import InputInvalid, Rejected
from signer.operator_cli.session import Session
from tests.builders.attested_nodes import attested_node
from tests.fakes.management_api import Console, FakeManagement

NOW = datetime(2026, 11, 22, tzinfo=UTC)
VICTIM, NEW = "aa" * 32, "cc" * 32
TEAM_A, TEAM_B = (ClusterKey(namespace=name, name="c1") for name in ("team-a", "team-b"))
VICTIM_NODE, FORGED_NODE = "team-a/c1/node-1", "team-b/c1/mine"


def holder(cluster: ClusterKey, node: str) -> dict[str, str]:
    return {
        "clusterNamespace": cluster.namespace,
        "clusterName": cluster.name,
        "nodeName": node,
        "providerID": f"metal3://{node}",
        "basis": "Registered",
    }


def registration(cluster: ClusterKey, machine: str) -> dict[str, str]:
    return {
        "clusterNamespace": cluster.namespace,
        "clusterName": cluster.name,
        "machineName": machine,
    }


def management(**victim: object) -> FakeManagement:
    """Return a cluster in which team-b has written team-a's key into its own AttestedNode."""
    found = FakeManagement()
    spec = {
        "heldBy": holder(TEAM_A, "node-1"),
        "registeredFor": [registration(TEAM_A, "machine-1")],
        **victim,
    }
    found.put_key(VICTIM, **spec)
    forged = attested_node(TEAM_B, node_name="mine", key=VICTIM, last_attested=NOW)
    found.put(ATTESTED_NODES.collection_path("team-b"), encode_attested_node(forged, ""))
    found.put_capi("clusters", "team-a", "c1")
    found.put_capi("machines", "team-a", "machine-1")
    return found


COMMANDS: Mapping[str, Callable[[Session], int]] = {
    "ban": ban.run,
    "lift": ban.run,
    "release": release.run,
    "replace": replace.run,
}


def call(management: FakeManagement, command: str, key: str, **arguments: Any) -> Console:  # noqa: ANN401 - arguments of any type
    """Run a command on a key, and return the console."""
    given = {
        "key": key,
        "new_key": NEW,
        "reason": None if command == "lift" else "stolen",
        "now": False,
        "node": None,
        "lift": command == "lift",
        "certificates_too": False,
        "cluster": TEAM_B,
        "provider_id": None,
        **arguments,
    }
    console = Console(management, given)
    assert COMMANDS[command](console.session()) == 0
    return console


@pytest.mark.parametrize("command", COMMANDS)
def test_attested_node_of_a_tenant_does_not_name_the_key_of_another(command: str) -> None:
    """The AttestedNode was believed: team-a's TPM was banned, and team-b's registered for it."""
    cluster = management()
    with pytest.raises(Rejected, match="node mine of Cluster team-b/c1 holds no endorsement key"):
        call(cluster, command, FORGED_NODE, yes=True)
    assert not cluster.writes


@pytest.mark.parametrize("command", COMMANDS)
def test_key_of_another_node_is_left_alone_if_the_api_server_ignores_the_selector(
    command: str,
) -> None:
    """It does so where the CRD is older than its selectable fields."""
    cluster = management()
    collection = ENDORSEMENT_KEYS.collection_path()
    cluster.intercept(lambda r: cluster.answer(replace_fields(r, query={})), "GET", collection)
    with pytest.raises(Rejected, match="node mine of Cluster team-b/c1 holds no endorsement key"):
        call(cluster, command, FORGED_NODE, yes=True)
    assert not cluster.writes


@pytest.mark.parametrize("name", [VICTIM, VICTIM_NODE])
@pytest.mark.parametrize("command", COMMANDS)
def test_command_shows_whose_key_it_changes_and_asks(command: str, name: str) -> None:
    cluster = management(**({"banned": {"reason": "stolen"}} if command == "lift" else {}))
    before = cluster.key(VICTIM)
    with pytest.raises(Rejected, match="nothing was changed") as refused:
        call(cluster, command, name)
    assert refused.value.hint == "add --yes to confirm"
    assert cluster.key(VICTIM) == before
    console = call(cluster, command, name, yes=True)
    assert cluster.writes
    assert (
        f"EndorsementKey {VICTIM}: node node-1 of Cluster team-a/c1 holds this key, and it is"
        " registered for Machine machine-1 of Cluster team-a/c1"
    ) in console.complaint


@pytest.mark.parametrize("command", ["ban", "replace"])
@pytest.mark.parametrize(
    ("days", "key", "message"),
    [
        (3, VICTIM, "the present one stays valid until 2026-11-25T00:00:00Z (for 3d)."),
        (-3, VICTIM, "certificate of node node-1 expired 2026-11-19T00:00:00Z."),
        (3, NEW, "for reads, the present one stays valid until it expires."),
    ],
    ids=["valid", "expired", "of another key"],
)
def test_command_says_until_when_the_present_certificate_is_valid(
    command: str, days: int, key: str, message: str
) -> None:
    """The help said that the command ends all certificates."""
    cluster = management()
    end = NOW + timedelta(days=days)
    node = attested_node(TEAM_A, node_name="node-1", key=key, not_after=end, last_attested=NOW)
    cluster.put(ATTESTED_NODES.collection_path("team-a"), encode_attested_node(node, ""))
    assert message in call(cluster, command, VICTIM, yes=True).complaint


def test_ban_that_ends_no_certificate_says_so() -> None:
    """As after a restore that lost the claim: then the operator names the node."""
    cluster = management(heldBy=None)
    assert "the ban ends no certificate" in call(cluster, "ban", VICTIM, yes=True).complaint
    console = call(cluster, "ban", VICTIM, node=(TEAM_A, "node-1"), yes=True)
    assert "the certificates of node node-1 end within seconds" in console.complaint
    named = {"clusterNamespace": "team-a", "clusterName": "c1", "nodeName": "node-1"}
    assert cluster.key(VICTIM)["banned"]["node"] == named
    assert cluster.key(VICTIM)["banned"]["reason"] == "stolen"


SINCE = "2026-11-22T00:00:00Z"
LIFTED: dict[str, tuple[dict[str, object], bool, dict[str, object]]] = {
    "what was ended stays ended": ({"banned": {"reason": "x"}}, False, {"term": 2}),
    "a false alarm": ({"banned": {"reason": "x"}}, True, {"certificatesToo": True}),
    "the second lift": ({"banned": {"reason": "x"}, "term": 2}, False, {"term": 3}),
    "after a false alarm": (
        {"banned": {"reason": "x"}, "banLifted": {"at": SINCE, "certificatesToo": True}},
        False,
        {"term": 2, "at": "2026-11-22T00:00:01Z"},
    ),
    "in the same second": (
        {"banned": {"reason": "x", "since": SINCE}},
        False,
        {"term": 2, "at": "2026-11-22T00:00:01Z"},
    ),
    "a ban that only the list has": ({}, False, {}),
}


@pytest.mark.parametrize(("spec", "too", "expected"), LIFTED.values(), ids=LIFTED)
def test_lift_says_when_and_adds_to_the_term(
    spec: dict[str, object],
    too: bool,  # noqa: FBT001 - a parameter of the case
    expected: dict[str, object],
) -> None:
    cluster = management(**spec)
    call(cluster, "lift", VICTIM, certificates_too=too, yes=True)
    key = cluster.key(VICTIM)
    assert key.get("banned") is None
    lifted = {"at": SINCE, "by": key["banLifted"]["by"]}
    given = {k: v for k, v in expected.items() if k != "term"}
    assert {k: v for k, v in key["banLifted"].items() if v is not None} == lifted | given
    assert key.get("term") == expected.get("term")


def test_lift_exceeds_the_term_of_the_claim() -> None:
    cluster = management(banned={"reason": "x"})
    node = attested_node(TEAM_A, node_name="node-1", key=VICTIM, term=5, last_attested=NOW)
    cluster.put(ATTESTED_NODES.collection_path("team-a"), encode_attested_node(node, ""))
    call(cluster, "lift", VICTIM, yes=True)
    assert cluster.key(VICTIM)["term"] == 6


def test_lift_of_a_key_without_an_object_creates_it() -> None:
    """A restore lost the object, and the list of a workload cluster has the ban."""
    cluster = management()
    call(cluster, "lift", NEW, yes=True)
    assert cluster.key(NEW)["banLifted"]["at"] == SINCE


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("ban", {"reason": None}),
        ("ban", {"certificates_too": True}),
        ("lift", {"reason": "stolen"}),
        ("lift", {"now": True}),
        ("lift", {"node": (TEAM_A, "node-1")}),
    ],
)
def test_flags_that_do_not_belong_together_are_refused(
    command: str, arguments: dict[str, object]
) -> None:
    with pytest.raises(InputInvalid):
        call(management(), command, VICTIM, yes=True, **arguments)


def test_node_with_a_new_tpm_names_its_new_key() -> None:
    """The replaced key still names the node: only `ban --lift` is for it."""
    for command, key in (("ban", NEW), ("lift", VICTIM)):
        cluster = management(banned={"reason": "replaced"})
        cluster.put_key(NEW, heldBy=holder(TEAM_A, "node-1"))
        assert key in call(cluster, command, VICTIM_NODE, yes=True).output


def test_node_with_two_keys_names_none_of_them() -> None:
    cluster = management()
    cluster.put_key(NEW, heldBy=holder(TEAM_A, "node-1"))
    with pytest.raises(Rejected, match=f"several endorsement keys: {VICTIM}, {NEW}$"):
        call(cluster, "ban", VICTIM_NODE, yes=True)


@pytest.mark.parametrize("name", ["team-a/c1/", "team-a/c1/node-1,spec.x=y", "team-a/c1/a/b"])
def test_name_that_no_node_can_have_is_refused(name: str) -> None:
    """It would be a part of a field selector."""
    with pytest.raises(InputInvalid, match="must be a key or NAMESPACE/CLUSTER/NODE"):
        call(management(), "ban", name, yes=True)


@pytest.mark.parametrize(
    ("holding", "warned"),
    [({}, True), ({"heldBy": holder(TEAM_B, "mine")}, False), ({"heldBy": None}, False)],
    ids=["another Cluster", "the Cluster", "no holder"],
)
def test_release_from_another_cluster_than_the_holders_is_a_warning(
    holding: dict[str, object],
    warned: bool,  # noqa: FBT001 - a parameter of the case
) -> None:
    """The next owner of the hardware waited, and nothing said why."""
    cluster = management(**holding)
    console = call(cluster, "release", VICTIM, yes=True)
    released = {"clusterNamespace": "team-b", "clusterName": "c1"}
    assert cluster.key(VICTIM)["releasedFrom"] == [released]
    warning = "node node-1 of Cluster team-a/c1 holds this key: a release from Cluster team-b/c1"
    assert (warning in console.complaint) is warned


def test_replace_moves_no_registration_of_another_cluster() -> None:
    """A key that team-a's Machine is registered with, and that a node of team-b holds."""
    cluster = management(heldBy=holder(TEAM_B, "mine"))
    with pytest.raises(Rejected, match=r"registered for team-b/c1 alone; it is .* for team-a/c1$"):
        call(cluster, "replace", FORGED_NODE, yes=True)
    assert not cluster.writes


def test_replace_moves_no_registrations_of_two_clusters() -> None:
    both = [registration(TEAM_A, "machine-1"), registration(TEAM_B, "machine-1")]
    cluster = management(registeredFor=both)
    with pytest.raises(Rejected, match=r"for one Cluster; it is .* for team-a/c1, team-b/c1$"):
        call(cluster, "replace", VICTIM, yes=True)
    assert not cluster.writes


def test_replace_shows_whose_the_new_key_is() -> None:
    cluster = management()
    cluster.put_key(NEW, heldBy=holder(TEAM_B, "mine"))
    console = call(cluster, "replace", VICTIM_NODE, yes=True)
    assert f"gets the key {NEW} (node mine of Cluster team-b/c1 holds this key)" in (
        console.complaint
    )


def test_replace_ends_no_registration_that_it_has_not_shown() -> None:
    """Another operator registers the old key for one more machine meanwhile."""
    cluster = management()

    def meanwhile(_: Request) -> None:
        entries = [*cluster.key(VICTIM)["registeredFor"], registration(TEAM_A, "machine-2")]
        cluster.key(VICTIM)["registeredFor"] = entries

    cluster.intercept(meanwhile, "POST")
    with pytest.raises(Rejected, match="has changed since it was shown"):
        call(cluster, "replace", VICTIM_NODE, yes=True)
    assert len(cluster.key(VICTIM)["registeredFor"]) == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_key_that_changes_while_the_operator_is_asked_is_not_written(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write was made under a version that the operator had not seen."""
    banned = {"banned": {"reason": "lost"}}
    cluster = management(**(banned if command == "lift" else {}))

    def confirm(*_: object, **__: object) -> None:
        if command == "lift":
            cluster.key(VICTIM)["banned"] = {"reason": "stolen"}
        else:
            cluster.key(VICTIM)["heldBy"] = holder(TEAM_B, "mine")

    monkeypatch.setattr(Session, "confirm", confirm)
    with pytest.raises(Rejected, match=r"has changed since it was shown: node .* holds this key"):
        call(cluster, command, VICTIM)
    assert not cluster.writes


@pytest.mark.parametrize("command", COMMANDS)
def test_renewal_while_the_operator_is_asked_stops_no_change(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = management(**({"banned": {"reason": "lost"}} if command == "lift" else {}))

    def confirm(*_: object, **__: object) -> None:
        cluster.key(VICTIM)["heldBy"]["lastClaimed"] = "2026-11-22T00:00:00Z"

    monkeypatch.setattr(Session, "confirm", confirm)
    call(cluster, command, VICTIM)
    assert cluster.writes
