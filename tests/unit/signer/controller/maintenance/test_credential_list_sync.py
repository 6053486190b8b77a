"""The credential list follows the claims, and does not go back with the management cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from common.errors import ApiServerUnavailable, AttestationError
from signer.controller.maintenance.credential_list_sync import (
    CredentialListSync,
    sync_credential_list,
)
from signer.errors import ClaimConflict, ClaimsOutOfDate, CredentialListFull
from signer.inventory.credential_list import ClaimReader, cluster_of_changed_key
from signer.model import (
    AttestedNodeObject,
    EndorsementKeyObject,
    MachineState,
    Release,
    credential_id,
)
from tests.builders.attested_nodes import entry_text
from tests.builders.scenario import HOME, NODE, Scenario
from tests.fakes.claims import FakeClaimStore
from tests.fakes.credential_lists import FakeCredentialLists

A, B, C, D = (credential_id(name) for name in (b"a", b"b", b"c", b"d"))
SAME = int((Scenario().now - timedelta(days=6)).timestamp())
"""Order of the claim that `put_claim` stores."""
LATER = SAME + 1


@dataclass(slots=True)
class Lists:
    """The list of a cluster, and the claims of its nodes."""

    texts: dict[str, str] | None
    size: int = 0
    scenario: Scenario = field(default_factory=Scenario)
    lists: FakeCredentialLists = field(init=False)
    gone: set[str] = field(default_factory=set)
    """Nodes without Machine and Node, as the caches show."""
    present: set[str] = field(default_factory=set)
    """Those of them that the API servers have."""
    reads: list[str] = field(default_factory=list)
    alarms: Sequence[AttestationError] = ()

    def __post_init__(self) -> None:
        self.lists = FakeCredentialLists(self.texts, self.size)

    def sync(
        self,
        cached: AttestedNodeObject | None = None,
        cached_key: EndorsementKeyObject | None = None,
    ) -> Mapping[str, str] | None:
        """Sync the list with the claims, or with older caches; return the list."""
        store, claims = self.scenario.store, FakeClaimStore(store=self.scenario.store)
        self.alarms = sync_credential_list(
            self.lists,
            lambda: [node.node_name for node in store.nodes.values()],
            cached=ClaimReader(
                node=lambda name: cached or store.find_node(HOME, name),
                key=lambda name: cached_key or store.keys.get(name),
                is_gone=lambda name, _: name in self.gone,
            ),
            live=ClaimReader(
                node=partial(claims.attested_node, HOME),
                key=claims.endorsement_key,
                is_gone=lambda name, _: name in self.gone - self.present,
            ),
        )
        self.reads = claims.reads
        return self.lists.texts

    @property
    def reasons(self) -> list[type[AttestationError]]:
        return [type(alarm) for alarm in self.alarms]


def test_node_is_listed_with_its_certificates() -> None:
    at = Lists({})
    at.scenario.put_claim(credential_ids=(A, B))
    assert at.sync() == {NODE: entry_text(A, B, order=SAME)}
    assert len(at.lists.published) == 1


def test_list_that_is_right_costs_no_write() -> None:
    at = Lists({NODE: entry_text(A, order=SAME)})
    at.scenario.put_claim(credential_ids=(A,))
    at.sync()
    assert (at.lists.published, at.reads, at.alarms) == ([], [], [])


def test_ban_ends_all_certificates() -> None:
    at = Lists({NODE: entry_text(A, B, order=SAME)})
    at.scenario.put_claim(credential_ids=(A, B), banned=True)
    assert at.sync() == {NODE: entry_text(order=SAME)}


def test_certificates_are_as_before_after_the_end_of_a_ban() -> None:
    at = Lists({NODE: entry_text(order=SAME)})
    at.scenario.put_claim(credential_ids=(A, B))
    assert at.sync() == {NODE: entry_text(A, B, order=SAME)}


def test_ban_does_not_wait_for_the_nodes_of_a_new_list() -> None:
    """A round makes 100 changes, in the order of the names: the others got theirs minutes later."""
    at = Lists({NODE: entry_text(A)})
    _, banned = at.scenario.put_claim(credential_ids=(A,), banned=True)
    for number in range(200):
        name = f"{NODE[0]}-{number}"
        other = replace(banned, name=name, node_name=name, endorsement_key="f" * 64)
        at.scenario.store.nodes[HOME.namespace, name] = other
    listed = at.sync()
    assert listed is not None
    assert len(listed) == 100
    assert listed[NODE] == entry_text(order=SAME)


def test_certificate_that_a_newer_claim_does_not_name_leaves_the_list() -> None:
    at = Lists({NODE: entry_text(A, B, order=SAME - 1)})
    at.scenario.put_claim(credential_ids=(B,))
    assert at.sync() == {NODE: entry_text(B, order=SAME)}


# The management cluster was restored from a backup


def test_claim_from_a_backup_does_not_end_the_certificates_issued_since() -> None:
    """Each node that had renewed since the backup lost its right to write."""
    stored = {NODE: entry_text(C, D, order=LATER)}
    at = Lists(dict(stored))
    at.scenario.put_claim(credential_ids=(A, B))
    assert at.sync() == stored
    assert at.reasons == [ClaimsOutOfDate]
    assert at.alarms[0].detail == NODE


def test_claim_that_the_backup_lacks_does_not_end_the_restriction_of_its_node() -> None:
    stored = {NODE: entry_text(A, order=LATER)}
    at = Lists(dict(stored))
    assert at.sync() == stored
    assert at.reasons == [ClaimsOutOfDate]


@pytest.mark.parametrize(
    "ends", [{"banned": True}, {"released_from": (Release(cluster=HOME, provider_id=None),)}]
)
def test_key_that_is_banned_or_released_after_a_restore_loses_its_certificates(
    ends: Mapping[str, object],
) -> None:
    at = Lists({NODE: entry_text(C, D, order=LATER)})
    key, _ = at.scenario.put_claim(credential_ids=(A, B))
    at.scenario.put_key(key.name, held_by=key.held_by, **ends)
    assert at.sync() == {NODE: entry_text(order=LATER)}
    assert at.reasons == []


def test_ban_that_the_backup_lacks_stays_in_the_list_if_the_claim_is_older() -> None:
    stored = {NODE: entry_text(order=LATER)}
    at = Lists(dict(stored))
    at.scenario.put_claim(credential_ids=(A, B))
    assert at.sync() == stored
    assert at.reasons == [ClaimsOutOfDate]


def test_old_cache_is_no_restored_store() -> None:
    """Another replica has published the certificate, and the watch has not delivered its claim."""
    at = Lists({NODE: entry_text(A, B, order=LATER)})
    _, old = at.scenario.put_claim(credential_ids=(A,))
    at.scenario.put_node(
        old.endorsement_key,
        at.scenario.holder(),
        credential_ids=(A, B),
        last_attested=old.last_attested + timedelta(seconds=1),
    )
    at.sync(old)
    assert (at.lists.published, at.alarms) == ([], [])


# Other writers


def test_ban_that_the_cache_lacks_stays() -> None:
    """Another replica has written it into the list; this one brought the certificates back."""
    at = Lists({NODE: entry_text(order=SAME)})
    key, _ = at.scenario.put_claim(credential_ids=(A,))
    at.scenario.put_key(key.name, held_by=key.held_by, banned=True)
    at.sync(cached_key=key)
    assert at.lists.published == []


def test_ban_during_the_write_is_written_next() -> None:
    at = Lists({NODE: entry_text(A)})
    key, _ = at.scenario.put_claim(credential_ids=(A, B))
    at.lists.meanwhile = lambda: at.scenario.put_key(key.name, held_by=key.held_by, banned=True)
    assert at.sync() == {NODE: entry_text(order=SAME)}
    assert len(at.lists.published) == 2


def test_claims_that_change_without_end_fail_the_round() -> None:
    """The next round follows after ten seconds."""
    at = Lists({NODE: entry_text(A)})
    _, node = at.scenario.put_claim(credential_ids=(B,))

    def renew() -> None:
        later = node.last_attested + timedelta(seconds=1 + len(at.lists.published))
        at.scenario.store.put_node(replace(node, last_attested=later))

    at.lists.meanwhile = renew
    with pytest.raises(ClaimConflict):
        at.sync()
    assert len(at.lists.published) == 5


# Nodes without claims


def test_node_that_is_gone_leaves_the_list() -> None:
    at = Lists({NODE: entry_text(A, order=SAME)}, gone={NODE})
    at.scenario.put_claim(credential_ids=(A,))
    assert at.sync() == {}
    assert at.sync() == {}
    assert len(at.lists.published) == 1


def test_node_that_is_gone_leaves_the_list_after_its_claim() -> None:
    assert Lists({NODE: entry_text(A), "banned": entry_text()}, gone={NODE, "banned"}).sync() == {}


def test_node_that_the_api_servers_have_stays() -> None:
    stored = {NODE: entry_text(A, order=SAME)}
    at = Lists(dict(stored), gone={NODE}, present={NODE})
    at.scenario.put_claim(credential_ids=(A,))
    assert at.sync() == stored


def test_banned_node_that_is_gone_cannot_write() -> None:
    """Its certificates are valid until they expire."""
    at = Lists({NODE: entry_text(A, order=SAME)}, gone={NODE})
    at.scenario.put_claim(credential_ids=(A,), banned=True)
    assert at.sync() == {NODE: entry_text(order=SAME)}


def test_nodes_that_are_gone_make_space_before_others_need_it() -> None:
    texts = {f"gone-{number}": entry_text(A) for number in range(100)}
    at = Lists(texts, gone=set(texts))
    at.scenario.put_claim(credential_ids=(A,))
    assert at.sync() == {}
    assert at.sync() == {NODE: entry_text(A, order=SAME)}


def test_node_without_recorded_certificates_is_not_restricted() -> None:
    at = Lists({})
    at.scenario.put_claim()
    assert at.sync() == {}


def test_entry_that_no_signer_wrote_is_replaced() -> None:
    at = Lists({NODE: f"{A} {B}", "other": ""}, gone={"other"})
    at.scenario.put_claim(credential_ids=(A, B))
    assert at.sync() == {NODE: entry_text(A, B, order=SAME)}


def test_lost_endorsement_key_ends_no_certificate() -> None:
    """After a restore without EndorsementKeys, the nodes stay in service."""
    stored = {NODE: entry_text(A, order=SAME)}
    at = Lists(dict(stored))
    key, _ = at.scenario.put_claim(credential_ids=(A,))
    del at.scenario.store.keys[key.name]
    assert at.sync() == stored


def test_cluster_without_the_list_gets_none() -> None:
    at = Lists(None)
    at.scenario.put_claim(credential_ids=(A,))
    assert at.sync() is None


# Space


def filled(used: float) -> dict[str, str]:
    """Return entries that use a part of the space for values."""
    text = entry_text(A, B, order=LATER)
    return {f"other-{number}": text for number in range(int(used * 2**20 / len(text)))}


@pytest.mark.parametrize(("used", "alarms"), [(0.79, []), (0.8, [CredentialListFull])])
def test_list_that_is_nearly_full_raises_an_alarm(
    used: float, alarms: list[type[AttestationError]]
) -> None:
    at = Lists({}, size=int(used * 1.5 * 2**20) + 1)
    at.sync()
    assert at.reasons == alarms


@pytest.mark.parametrize("banned", [False, True])
def test_list_without_space_takes_bans_only(*, banned: bool) -> None:
    at = Lists(filled(0.95))
    at.scenario.put_claim(credential_ids=(A,), banned=banned)
    listed = at.sync()
    assert listed is not None
    assert listed.get(NODE) == (entry_text(order=SAME) if banned else None)


# What makes a list out of date


def test_ban_and_its_end_make_the_list_out_of_date() -> None:
    """Otherwise a ban would end the certificates only with the next round of maintenance."""
    key, _ = Scenario().put_claim(credential_ids=(A,))
    banned = replace(key, banned=True)
    released = replace(key, released_from=(Release(cluster=HOME, provider_id=None),))
    for before, after in ((key, banned), (banned, key), (key, released)):
        assert cluster_of_changed_key(before, after) == HOME


def test_writes_of_the_signer_do_not_make_the_list_out_of_date() -> None:
    key, _ = Scenario().put_claim(credential_ids=(A,))
    unheld = replace(key, held_by=None)
    renewed = replace(key, resource_version="8")
    banned = replace(unheld, banned=True)
    for before, after in ((None, key), (key, None), (key, renewed), (unheld, banned)):
        assert cluster_of_changed_key(before, after) is None


# Which nodes are gone


@dataclass(slots=True)
class Clusters:
    """The caches of both clusters, of which one may be incomplete or empty."""

    synced: bool = True
    node: object = None
    machine: bool = False
    incomplete: str = ""

    def is_gone(self, claim: AttestedNodeObject | None, *, live: MachineState) -> tuple[bool, bool]:
        """Return whether a node is gone, as the caches and as the API server say."""
        nodes = SimpleNamespace(
            has_synced=self.synced,
            get=self.read_node,
            require_complete=lambda _: self.require("Nodes"),
        )
        management = SimpleNamespace(
            keys={},
            has_machine=lambda _: self.machine,
            require_complete=lambda _: self.require("Machines"),
        )
        claims = SimpleNamespace(
            machine_state=lambda *_: live, attested_node=print, endorsement_key=None
        )
        sync = CredentialListSync(cast("Any", management), cast("Any", claims))
        workload = cast("Any", SimpleNamespace(nodes=nodes, key=HOME))
        cached, asked = sync.readers(workload)
        return cached.is_gone(NODE, claim), asked.is_gone(NODE, claim)

    def read_node(self, _: str) -> object:
        self.require("the Node")
        return self.node

    def require(self, what: str) -> None:
        if what == self.incomplete:
            raise ApiServerUnavailable("incomplete")


CLAIM = Scenario().put_claim()[1]


@pytest.mark.parametrize(
    ("clusters", "claim", "live", "gone"),
    [
        (Clusters(), CLAIM, MachineState.ABSENT, (True, True)),
        (Clusters(), None, MachineState.PRESENT, (True, True)),
        (Clusters(node="Node"), CLAIM, MachineState.ABSENT, (False, False)),
        (Clusters(machine=True), CLAIM, MachineState.ABSENT, (False, True)),
        (Clusters(), CLAIM, MachineState.PRESENT, (True, False)),
        (Clusters(), CLAIM, MachineState.DELETING, (True, False)),
        (Clusters(synced=False), CLAIM, MachineState.ABSENT, (False, False)),
        (Clusters(incomplete="the Node"), None, MachineState.ABSENT, (False, False)),
        (Clusters(incomplete="Nodes"), None, MachineState.ABSENT, (False, False)),
        (Clusters(incomplete="Machines"), None, MachineState.ABSENT, (False, False)),
    ],
)
def test_node_is_gone_if_both_clusters_are_known_to_lack_it(
    clusters: Clusters,
    claim: AttestedNodeObject | None,
    live: MachineState,
    gone: tuple[bool, bool],
) -> None:
    """A restore without Machines, or an incomplete cache, must not look like the end of a node."""
    assert clusters.is_gone(claim, live=live) == gone
