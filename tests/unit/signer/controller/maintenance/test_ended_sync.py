"""The list of ended certificates follows bans, releases, lifts and takeovers, and rebuilds itself.

`tests/model/test_ended.py` has the rules that decide between an entry and the claims.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from common.node_identity import attested_group
from signer.controller.maintenance.ended_sync import EndedSync, clusters_of_changed_key
from signer.inventory.ended_certificates import EndedCertificatesClient
from signer.kinds.endorsement_key import Ban, BannedNode, EndorsementKeyObject, LiftedBan, Release
from tests.builders.endorsement_keys import BAN, endorsement_key, key_holder
from tests.builders.scenario import ABROAD, HOME, NODE, NOW, Scenario, key_name
from tests.builders.software_tpm import endorsement_key as tpm_key
from tests.fakes.caches import FakeCaches
from tests.fakes.claims import FakeClaimStore
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient

LIFETIME = timedelta(days=7)
BANNED = NOW - timedelta(hours=1)
OTHER = key_name(tpm_key(0))


@dataclass
class Lists:
    """A node with a claim, and the list of its workload cluster."""

    scenario: Scenario = field(default_factory=Scenario)
    cluster: FakeCluster = field(default_factory=FakeCluster)
    reads: list[str] = field(default_factory=list)
    calls: int = 0

    def __post_init__(self) -> None:
        self.scenario.put_claim()
        self.scenario.change_claim(term=1, since=NOW - timedelta(days=1))

    def ban(self, since: datetime | None = BANNED) -> None:
        self.scenario.change_key(banned=Ban(reason="lost", since=since))

    def lift(self, *, too: bool = False) -> None:
        lifted = LiftedBan(at=NOW, certificates_too=too)
        self.scenario.change_key(banned=None, ban_lifted=lifted, term=1 if too else 2)

    def sync(self, cached: Scenario | None = None) -> dict[str, str]:
        """Run a round, whose caches may be older; return the first words of the entries."""
        store, caches = (cached or self.scenario).store, FakeCaches()
        caches.nodes.replace({node.name: node for node in store.nodes.values()})
        caches.keys.replace(dict(store.keys))
        claims = FakeClaimStore(store=self.scenario.store)
        ended = EndedCertificatesClient(FakeClient(self.cluster))
        workload = cast("Any", SimpleNamespace(key=HOME, ended=ended))
        EndedSync(cast("Any", caches), cast("Any", claims)).sync(workload, LIFETIME, NOW)
        self.reads, self.calls = claims.reads, len(self.cluster.requests)
        listed = ended.read()
        entries = {name: listed.entry(name) for name in listed.names}
        return {name: entry.encode().split(" ")[0] for name, entry in entries.items() if entry}

    @property
    def key(self) -> str:
        return key_name(self.scenario.ek)

    def group(self, term: int, key: str = "") -> str:
        return attested_group(key or self.key, term)

    def none(self, term: int = 1) -> str:
        return self.group(term).replace("attested", "none")


def test_node_of_which_nothing_has_ended_costs_one_read() -> None:
    lists = Lists()
    assert lists.sync() == {}
    assert (lists.calls, lists.reads) == (1, [])


@pytest.mark.parametrize("since", [BANNED, None], ids=["with a time", "without"])
def test_ban_ends_what_the_node_has(since: datetime | None) -> None:
    lists = Lists()
    lists.ban(since)
    assert lists.sync() == {NODE: lists.none()}


def test_ban_ends_certificates_also_without_an_attested_node() -> None:
    lists = Lists()
    lists.ban()
    lists.scenario.store.nodes.clear()
    assert lists.sync() == {NODE: lists.none()}


def test_ban_ends_certificates_of_the_node_that_the_operator_names() -> None:
    lists = Lists()
    lists.scenario.store.nodes.clear()
    ban = Ban(reason="lost", since=BANNED, node=BannedNode.of(HOME, node_name="named"))
    lists.scenario.change_key(banned=ban, held_by=None)
    assert lists.sync() == {"named": lists.none()}
    lists.scenario.change_key(
        banned=Ban(reason="lost", since=BANNED, node=BannedNode.of(ABROAD, node_name="named"))
    )
    lists.cluster.objects.clear()
    assert lists.sync() == {}


def test_ban_of_a_key_that_lost_the_name_leaves_the_present_one() -> None:
    """It could otherwise be used to stop the node that has the name."""
    lists = Lists()
    ban = Ban(reason="lost", since=BANNED)
    lists.scenario.put_key(OTHER, held_by=key_holder(HOME, node_name=NODE), banned=ban)
    assert lists.sync() == {NODE: lists.group(1)}


def test_release_ends_what_the_node_has() -> None:
    lists = Lists()
    lists.scenario.change_key(released_from=(Release.of(HOME, provider_id=None),))
    assert lists.sync() == {NODE: lists.none()}


def test_lift_lets_the_next_term_write() -> None:
    lists = Lists()
    lists.ban()
    lists.sync()
    lists.lift()
    assert lists.sync() == {NODE: lists.group(2)}


def test_lift_with_the_certificates_removes_the_entry() -> None:
    lists = Lists()
    lists.ban()
    lists.sync()
    lists.lift(too=True)
    assert lists.sync() == {}
    assert lists.cluster.objects == {}


def test_ban_that_is_merely_absent_removes_nothing() -> None:
    """The management cluster was restored, or a prune removed the field."""
    lists = Lists()
    lists.ban()
    lists.sync()
    lists.scenario.change_key(banned=None)
    assert lists.sync() == {NODE: lists.none()}
    lists.scenario.store.keys.clear()
    lists.scenario.store.nodes.clear()
    assert lists.sync() == {NODE: lists.none()}


def test_entry_ends_with_the_certificates() -> None:
    lists = Lists()
    lists.scenario.change_claim(others_end_at=NOW + timedelta(seconds=1))
    assert lists.sync() == {NODE: lists.group(1)}
    lists.scenario.change_claim(others_end_at=NOW)
    # The entry says it, too.
    [policy] = [v for k, v in lists.cluster.objects.items() if "policies/" in k]
    expression = policy["spec"]["variables"][1]["expression"]
    end = str(int(NOW.timestamp()))
    policy["spec"]["variables"][1]["expression"] = expression.replace(str(int(end) + 1), end)
    assert lists.sync() == {}


def test_node_without_a_client_certificate_of_the_signer_needs_no_group() -> None:
    """In a Cluster of the mode ServingOnly, no certificate has one."""
    lists = Lists()
    lists.scenario.change_claim(term=0, others_end_at=NOW + LIFETIME)
    assert lists.sync() == {}
    lists.ban()
    assert lists.sync() == {NODE: lists.none()}
    lists.lift()
    assert lists.sync() == {}


def test_old_cache_changes_no_entry() -> None:
    """It showed the ban whose lift the list already had, and ended the next term, too."""
    lists, old = Lists(), Lists()
    for each in (lists, old):
        each.ban()
    lists.sync()
    lists.lift()
    assert lists.sync() == {NODE: lists.group(2)}
    assert lists.sync(cached=old.scenario) == {NODE: lists.group(2)}
    assert lists.reads


def test_list_that_was_deleted_is_rebuilt() -> None:
    lists = Lists()
    lists.ban()
    before = lists.sync()
    lists.cluster.objects.clear()
    assert lists.sync() == before


def test_object_that_cannot_be_read_changes_nothing() -> None:
    """The ban of a key that had the name before would end what the node has."""
    lists = Lists()
    lists.scenario.put_key(OTHER, held_by=key_holder(HOME, node_name=NODE), banned=BAN)
    lists.scenario.store.nodes.clear()
    lists.scenario.store.unreadable_nodes.add((HOME, NODE))
    assert lists.sync() == {}
    lists.scenario.store.unreadable_nodes.clear()
    assert lists.sync() == {NODE: attested_group(OTHER, 1).replace("attested", "none")}


KEY = endorsement_key("aa" * 32, held_by=key_holder(HOME))
CHANGED: dict[str, tuple[EndorsementKeyObject | None, EndorsementKeyObject | None, set[Any]]] = {
    "ban": (KEY, KEY.replace(banned=BAN), {HOME}),
    "ban of a new object": (None, KEY.replace(banned=BAN), {HOME}),
    "named node": (
        KEY,
        KEY.replace(banned=Ban(reason="lost", node=BannedNode.of(ABROAD, node_name="n"))),
        {HOME, ABROAD},
    ),
    "release": (
        KEY,
        KEY.replace(released_from=(Release.of(HOME, provider_id=None),)),
        {HOME},
    ),
    "lift": (KEY.replace(banned=BAN), KEY.replace(term=2), {HOME}),
    "renewal": (KEY, KEY.replace(creation_timestamp=NOW), set()),
    "first claim": (None, KEY, set()),
    "deletion": (KEY, None, set()),
    "deletion of a banned key": (KEY.replace(banned=BAN), None, {HOME}),
}


@pytest.mark.parametrize(("before", "after", "clusters"), CHANGED.values(), ids=CHANGED)
def test_change_of_a_ban_brings_the_next_round_forward(
    before: EndorsementKeyObject | None, after: EndorsementKeyObject | None, clusters: set[Any]
) -> None:
    assert clusters_of_changed_key(before, after) == clusters
