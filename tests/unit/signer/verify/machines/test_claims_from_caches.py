"""K1 to K3 with caches that are current, and with caches that lack a change."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta

from signer.kinds.endorsement_key import TrustBasis
from signer.verify.answer import VerifiedAnswer
from signer.verify.claimed_answer import make_claims
from tests.builders.scenario import ABROAD, NODE, NOW, Scenario, key_name, machine, signed
from tests.builders.software_tpm import endorsement_key
from tests.fakes.claims import FakeClaimStore

OTHER_KEY = endorsement_key(0)
NOT_AFTER = NOW + timedelta(days=7)


def make(scenario: Scenario, verified: VerifiedAnswer) -> FakeClaimStore:
    claims = FakeClaimStore(store=scenario.store)
    make_claims(verified, scenario.context(), claims=claims, sign=signed(NOT_AFTER))
    return claims


def make_with_old_caches(
    scenario: Scenario, change: Callable[[Scenario], object], basis: TrustBasis
) -> FakeClaimStore:
    """Verify an answer, change the API server's objects but no cache, and make the claims."""
    verified = scenario.verify_answer()
    verified = replace(verified, holder=verified.holder.replace(basis=basis))
    scenario.inventory.store = deepcopy(scenario.store)
    change(scenario)
    return make(scenario, verified)


def test_a_first_claim_reads_nothing_from_the_api_server() -> None:
    scenario = Scenario()
    claims = make(scenario, scenario.verify_answer())
    assert (claims.reads, len(claims.writes)) == ([], 3)


def test_a_renewal_reads_nothing_from_the_api_server() -> None:
    scenario = Scenario()
    scenario.put_claim()
    claims = make(scenario, scenario.verify_answer())
    assert (claims.reads, len(claims.writes)) == ([], 2)


def held_abroad(scenario: Scenario) -> None:
    """Let a node of another Cluster hold the registered key."""
    scenario.put_claim(cluster=ABROAD)
    scenario.store.machines[ABROAD] = [machine()]


def test_an_old_cache_costs_no_node_its_claim() -> None:
    """The conflict makes the next attempt read both objects from the API server."""
    scenario = Scenario()
    key, node = scenario.put_claim()

    def renewed_by_another_replica(changed: Scenario) -> None:
        changed.store.put_key(key)
        changed.store.put_node(node)

    claims = make_with_old_caches(scenario, renewed_by_another_replica, basis=TrustBasis.REGISTERED)
    assert claims.reads == [f"key {key.name[:8]}", f"node {NODE}"]
    assert scenario.store.keys[key.name].held_by == key.held_by


def test_a_contest_in_the_caches_is_decided_by_the_api_server() -> None:
    """The other node's Machine and claim were deleted, and the caches still have them."""
    scenario = Scenario()
    held_abroad(scenario)

    def deleted(changed: Scenario) -> None:
        changed.store.machines[ABROAD] = []

    claims = make_with_old_caches(scenario, deleted, basis=TrustBasis.CERTIFICATE)
    assert claims.reads[0] == f"key {key_name(scenario.ek)[:8]}"
    assert scenario.store.keys[key_name(scenario.ek)].held_by == scenario.holder().replace(
        basis=TrustBasis.CERTIFICATE
    )
