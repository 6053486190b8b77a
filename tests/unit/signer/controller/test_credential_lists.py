"""The credential list follows the claims, and is never older than what was published."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from signer.controller.credential_lists import (
    find_changed_list,
    read_entry,
    sync_credential_list,
)
from signer.errors import ClaimConflict
from signer.model import AttestedNodeObject, EndorsementKeyObject, Release, credential_id
from tests.builders.scenario import HOME, NODE, Scenario
from tests.fakes.claims import FakeClaimStore

A, B = credential_id(b"a"), credential_id(b"b")


@dataclass(slots=True)
class Lists:
    """The list of a cluster, and the claims of its one node."""

    entries: dict[str, str] | None
    scenario: Scenario = field(default_factory=Scenario)
    changes: dict[str, str | None] = field(default_factory=dict)
    writes: int = 0
    meanwhile: Callable[[], object] = lambda: None
    """What happens before each write."""
    reads: list[str] = field(default_factory=list)

    def read(self) -> Mapping[str, str] | None:
        return self.entries

    def publish(self, entries: Mapping[str, str | None]) -> None:
        self.meanwhile()
        self.writes += 1
        self.changes |= entries

    def sync(
        self,
        cached: AttestedNodeObject | None = None,
        cached_key: EndorsementKeyObject | None = None,
    ) -> Mapping[str, str | None]:
        """Sync the list with the claims, or with older caches; return the changes."""
        store, claims = self.scenario.store, FakeClaimStore(store=self.scenario.store)
        sync_credential_list(
            self,
            nodes=lambda: store.nodes.values() if cached is None else [cached],
            live_entry=partial(read_entry, claims, HOME),
            key=lambda name: cached_key or store.keys.get(name),
        )
        self.reads = claims.reads
        return self.changes


def test_node_is_listed_with_its_certificates() -> None:
    at = Lists({})
    at.scenario.put_claim(credential_ids=(A, B))
    assert at.sync() == {NODE: f"{A} {B}"}
    assert at.writes == 1


def test_list_that_is_right_costs_no_write() -> None:
    at = Lists({NODE: A})
    at.scenario.put_claim(credential_ids=(A,))
    assert at.sync() == {}
    assert at.writes == 0
    assert at.reads == []


def test_ban_ends_all_certificates() -> None:
    at = Lists({NODE: f"{A} {B}"})
    at.scenario.put_claim(credential_ids=(A, B), banned=True)
    assert at.sync() == {NODE: ""}


def test_ban_does_not_wait_for_the_nodes_of_a_new_list() -> None:
    """A round makes 100 changes, in the order of the names: the others got theirs minutes later."""
    at = Lists({NODE: A})
    _, banned = at.scenario.put_claim(credential_ids=(A,), banned=True)
    for number in range(200):
        name = f"{NODE[0]}-{number}"
        other = replace(banned, node_name=name, endorsement_key="f" * 64)
        at.scenario.store.nodes[HOME.namespace, name] = other
    changes = at.sync()
    assert len(changes) == 100
    assert changes[NODE] == ""


def test_certificate_that_has_ended_leaves_the_list() -> None:
    at = Lists({NODE: f"{A} {B}"})
    at.scenario.put_claim(credential_ids=(B,))
    assert at.sync() == {NODE: B}


def test_certificate_that_the_cache_lacks_stays() -> None:
    """Another replica has published it, and the watch has not delivered its claim yet."""
    at = Lists({NODE: f"{A} {B}"})
    _, old = at.scenario.put_claim(credential_ids=(A,))
    at.scenario.put_claim(credential_ids=(A, B))
    assert at.sync(old) == {}
    assert at.writes == 0


def test_ban_that_the_cache_lacks_stays() -> None:
    """Another replica has written it into the list; this one brought the certificates back."""
    at = Lists({NODE: ""})
    key, _ = at.scenario.put_claim(credential_ids=(A,))
    at.scenario.put_key(key.name, held_by=key.held_by, banned=True)
    assert at.sync(cached_key=key) == {}


def test_ban_during_the_write_is_written_next() -> None:
    at = Lists({NODE: A})
    key, _ = at.scenario.put_claim(credential_ids=(A, B))
    at.meanwhile = lambda: at.scenario.put_key(key.name, held_by=key.held_by, banned=True)
    assert at.sync() == {NODE: ""}
    assert at.writes == 2


def test_claims_that_change_without_end_fail_the_round() -> None:
    """The next round follows after ten seconds."""
    at = Lists({NODE: A})
    _, node = at.scenario.put_claim(credential_ids=(B,))

    def renew() -> None:
        credential_ids = (credential_id(str(at.writes).encode()),)
        at.scenario.store.put_node(replace(node, credential_ids=credential_ids))

    at.meanwhile = renew
    with pytest.raises(ClaimConflict):
        at.sync()
    assert at.writes == 5


def test_node_without_a_claim_leaves_the_list() -> None:
    assert Lists({NODE: A}).sync() == {NODE: None}


def test_node_without_recorded_certificates_is_not_restricted() -> None:
    at = Lists({})
    at.scenario.put_claim()
    assert at.sync() == {}


def test_lost_endorsement_key_ends_no_certificate() -> None:
    """After a restore without EndorsementKeys, the nodes stay in service."""
    at = Lists({NODE: A})
    key, _ = at.scenario.put_claim(credential_ids=(A,))
    del at.scenario.store.keys[key.name]
    assert at.sync() == {}


def test_cluster_without_the_list_gets_none() -> None:
    at = Lists(None)
    at.scenario.put_claim(credential_ids=(A,))
    assert at.sync() == {}


def test_ban_and_its_end_make_the_list_out_of_date() -> None:
    """Otherwise a ban would end the certificates only with the next round of maintenance."""
    key, _ = Scenario().put_claim(credential_ids=(A,))
    banned = replace(key, banned=True)
    released = replace(key, released_from=(Release(cluster=HOME, provider_id=None),))
    for before, after in ((key, banned), (banned, key), (key, released)):
        assert find_changed_list(before, after) == HOME


def test_writes_of_the_signer_do_not_make_the_list_out_of_date() -> None:
    key, _ = Scenario().put_claim(credential_ids=(A,))
    unheld = replace(key, held_by=None)
    renewed = replace(key, resource_version="8")
    banned = replace(unheld, banned=True)
    for before, after in ((None, key), (key, None), (key, renewed), (unheld, banned)):
        assert find_changed_list(before, after) is None
