"""E3 and K1 to K3: the claims of endorsement keys and node names, and their conflicts."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta

import pytest

from common.errors import ApiServerUnavailable
from signer.errors import (
    ClaimConflict,
    EndorsementKeyRegistrationConflict,
)
from signer.kinds.cluster import ClusterKey
from signer.kinds.endorsement_key import KeyHolder, Release, TrustBasis
from signer.kinds.machine import Machine
from signer.policy.policy import NameReuse, Policy
from signer.verify.answer import VerifiedAnswer
from signer.verify.claimed_answer import ClaimedAnswer, make_claims
from tests.builders.leftover_claims import (
    LEFTOVERS,
    LIVING,
    OTHER_ID,
    crash_before_k2,
    holder_is_lost,
    moved_claim,
)
from tests.builders.scenario import (
    ABROAD,
    HOME,
    NODE,
    NOW,
    PROVIDER_ID,
    Scenario,
    key_name,
    machine,
    signed,
    unreleased,
)
from tests.builders.software_tpm import TpmKey, endorsement_key
from tests.fakes.claims import BusyClaimStore, FakeClaimStore

OTHER_KEY = endorsement_key()
NOT_AFTER = NOW + timedelta(days=7)
POLICY = Policy(name="test")
Change = Callable[[Scenario], object]
AFTER_CERTIFICATE = replace(POLICY, name_reuse=NameReuse.AFTER_CERTIFICATE)


@pytest.fixture
def scenario() -> Scenario:
    """Give a Cluster with one Machine whose key is registered."""
    return Scenario()


def other_machine(*, deleting: bool = False) -> Machine:
    return machine(name="machine-2", uid="uid-2", provider_id=OTHER_ID, deleting=deleting)


def make(
    scenario: Scenario,
    *,
    policy: Policy = POLICY,
    basis: TrustBasis = TrustBasis.REGISTERED,
    verified: VerifiedAnswer | None = None,
    claims: FakeClaimStore | None = None,
) -> ClaimedAnswer:
    verified = scenario.verify_answer() if verified is None else verified
    return make_claims(
        replace(verified, holder=verified.holder.replace(basis=basis)),
        replace(scenario.context(), policy=policy, now=NOW),
        claims=FakeClaimStore(store=scenario.store) if claims is None else claims,
        sign=signed(NOT_AFTER),
    )


def held(scenario: Scenario, key: TpmKey | None = None) -> KeyHolder | None:
    return scenario.store.keys[key_name(scenario.ek if key is None else key)].held_by


def assert_claimed(scenario: Scenario, basis: TrustBasis = TrustBasis.REGISTERED) -> None:
    """Assert that the node has its complete claim."""
    node = scenario.store.find_node(HOME, NODE)
    assert held(scenario) == scenario.holder(basis=basis)
    assert node is not None
    assert (node.endorsement_key, node.provider_id) == (key_name(scenario.ek), PROVIDER_ID)
    assert (node.not_after, node.last_attested, node.machine_name) == (NOT_AFTER, NOW, "machine-1")
    assert node.boot is not None
    assert node.boot.reset_count == 5


# Claims that stop no node


def held_by_other(scenario: Scenario, basis: TrustBasis = TrustBasis.REGISTERED) -> None:
    scenario.put_claim(node_name="node-2", provider_id=OTHER_ID, basis=basis)


def not_whole(scenario: Scenario) -> None:
    """Name another key in the holder's AttestedNode."""
    never_written(scenario)
    scenario.put_node(key_name(OTHER_KEY), scenario.holder(node_name="node-2"))


def never_written(scenario: Scenario) -> None:
    """Remove the holder's AttestedNode."""
    other = scenario.holder(node_name="node-2", provider_id=OTHER_ID)
    scenario.put_key(key_name(scenario.ek), held_by=other)
    scenario.store.machines[HOME].append(other_machine())


def never_written_abroad(scenario: Scenario) -> None:
    """Let a living Machine of another Cluster hold the key, without an AttestedNode."""
    scenario.put_key(key_name(scenario.ek), held_by=scenario.holder(cluster=ABROAD))
    scenario.store.machines[ABROAD] = [machine()]


def record_beats(scenario: Scenario) -> None:
    """Give the claimant a record, and the holder none."""
    held_by_other(scenario, TrustBasis.FIRST_USE)
    scenario.store.machines[HOME].append(other_machine())


def record_beats_abroad(basis: TrustBasis, *, deleting: bool = False) -> Change:
    """Give the key to a node of another Cluster with equal names, without a record."""

    def change(scenario: Scenario) -> None:
        scenario.put_claim(cluster=ABROAD, basis=basis)
        scenario.store.machines[ABROAD] = [machine(deleting=deleting)]

    return change


def name_of_free_key(scenario: Scenario) -> None:
    """Clear who holds the old key, as an operator does who replaces a TPM."""
    scenario.put_claim(OTHER_KEY)
    scenario.put_key(key_name(OTHER_KEY), held_by=None)


def name_of_deleted_key(scenario: Scenario) -> None:
    scenario.put_claim(OTHER_KEY)
    del scenario.store.keys[key_name(OTHER_KEY)]


def name_of_released_key(scenario: Scenario) -> None:
    """Release the old key: the former tenant's Machine gets other hardware."""
    key, _ = scenario.put_claim(OTHER_KEY)
    release = Release.of(HOME, provider_id=None)
    scenario.store.put_key(key.replace(released_from=(release,)))


def same_hardware(name: str) -> Change:
    """Claim the key for an older Machine and node name on the same hardware."""
    return lambda s: s.put_claim(node_name="old-name", machine=(name, "machine-uid-0"))


def same_hardware_abroad(scenario: Scenario) -> None:
    """Make the other Cluster again on the same hosts, with other Machines."""
    old = ("machine-0", "machine-uid-0")
    scenario.put_claim(node_name="old-name", machine=old, cluster=ABROAD)
    scenario.store.machines[ABROAD] = [machine(name="machine-9", uid="machine-uid-9")]


def gone_after(leave: Callable[[Scenario], None]) -> Change:
    """Delete the Machine of a node that a crash or a move has left half."""

    def change(scenario: Scenario) -> None:
        moved_claim(scenario)
        leave(scenario)
        scenario.store.machines[ABROAD] = []

    return change


FROM_CLUSTER = Release.of(ABROAD, provider_id=None)
RELEASES = {
    "from the Cluster": FROM_CLUSTER,
    "from the Machine": Release.of(ABROAD, provider_id=OTHER_ID),
}


def former_tenant(scenario: Scenario, *releases: Release) -> None:
    """Give the key to a Machine of another Cluster that is registered for it."""
    holder = scenario.holder(cluster=ABROAD, provider_id=OTHER_ID)
    name = key_name(scenario.ek)
    scenario.put_key(name, held_by=holder, released_from=releases)
    scenario.put_node(name, holder)
    scenario.store.machines[ABROAD] = [other_machine()]


def moved_by_clusterctl(release: Release) -> Change:
    """Give the key no holder, as after a move to a cluster that has the key already."""

    def change(scenario: Scenario) -> None:
        former_tenant(scenario)
        scenario.put_key(key_name(scenario.ek), released_from=(release,))

    return change


def unreadable_claim(*releases: Release, machines: int = 1) -> Change:
    """Let the former tenant write a time into its AttestedNode that no program can read."""

    def change(scenario: Scenario) -> None:
        former_tenant(scenario, *releases)
        scenario.store.unreadable_nodes.add((ABROAD, NODE))
        del scenario.store.machines[ABROAD][machines:]

    return change


def released_after(leave: Callable[[Scenario], None]) -> Change:
    """Release a key that an AttestedNode names after a crash or a move."""

    def change(scenario: Scenario) -> None:
        moved_claim(scenario)
        leave(scenario)
        key = scenario.store.keys[key_name(scenario.ek)]
        scenario.store.put_key(key.replace(released_from=(FROM_CLUSTER,)))

    return change


STOP_NOBODY: dict[str, Change] = {
    "the key is registered, as an object": lambda s: s.put_key(key_name(s.ek)),
    "the basis of the own claim changes": lambda s: s.put_claim(basis=TrustBasis.FIRST_USE),
    "the holder is gone": held_by_other,
    "the holder's Cluster is gone": lambda s: s.put_claim(cluster=ABROAD),
    "the holder's node has another key": not_whole,
    "the holder's node was never written": never_written,
    "the same abroad": never_written_abroad,
    "the holder has no record": record_beats,
    **{
        f"a holder abroad by {basis.value}, deleting: {deleting}": record_beats_abroad(
            basis, deleting=deleting
        )
        for basis in (TrustBasis.FIRST_USE, TrustBasis.CERTIFICATE)
        for deleting in (False, True)
    },
    "the Machine was made again": lambda s: s.put_claim(provider_id=OTHER_ID),
    "the name has no record": lambda s: s.put_claim(OTHER_KEY, basis=TrustBasis.FIRST_USE),
    "the name is a deleted Machine's": lambda s: s.put_claim(OTHER_KEY, provider_id=OTHER_ID),
    "the name is a free key's": name_of_free_key,
    "the name is a deleted key's": name_of_deleted_key,
    "the name is a banned key's": lambda s: s.put_claim(OTHER_KEY, banned=True),
    "the name is a released key's": name_of_released_key,
    "another mainboard and Machine, with the name": lambda s: s.put_claim(
        OTHER_KEY, machine=("machine-0", "machine-uid-0")
    ),
    "another Machine on the hardware": same_hardware("machine-0"),
    "a Machine of the same name on the hardware": same_hardware("machine-1"),
    "another Machine on the hardware abroad": same_hardware_abroad,
    **{f"{name}, the Machine is gone": gone_after(leave) for name, leave in LEFTOVERS.items()},
    "released after a crash before K2": released_after(crash_before_k2),
    "released after its holder was lost": released_after(holder_is_lost),
    # No release helped.
    **{f"unreadable, released {name}": unreadable_claim(r) for name, r in RELEASES.items()},
    "unreadable, the Machine is gone": unreadable_claim(machines=0),
    **{f"no holder, released {name}": moved_by_clusterctl(r) for name, r in RELEASES.items()},
}


@pytest.mark.parametrize("change", STOP_NOBODY.values(), ids=STOP_NOBODY)
def test_k_claim_that_is_not_live_or_weaker_is_replaced(scenario: Scenario, change: Change) -> None:
    change(scenario)
    scenario.verify_offer()
    make(scenario)
    assert_claimed(scenario)


@pytest.mark.parametrize("release", RELEASES.values(), ids=RELEASES)
@pytest.mark.parametrize("policy", [POLICY, AFTER_CERTIFICATE], ids=["default", "after"])
def test_k1_next_owner_takes_a_key_that_was_released_from_the_former_tenant(
    scenario: Scenario, release: Release, policy: Policy
) -> None:
    """It waited as long as the former tenant kept a Machine with the old provider ID."""
    former_tenant(scenario, release)
    scenario.verify_offer()
    make(scenario, policy=policy)
    assert_claimed(scenario)
    assert scenario.store.keys[key_name(scenario.ek)].released_from == (release,)


# What is written


def test_k_first_claim_creates_both_objects(scenario: Scenario) -> None:
    """Key, name, and the key once more (K3)."""
    claims = FakeClaimStore(store=scenario.store)
    claimed = make(scenario, claims=claims)
    assert claimed.certificate == unreleased(NOT_AFTER)
    assert [w.split(" ")[:2] for w in claims.writes] == [
        ["create", "key"],
        ["create", "node"],
        ["hold", "key"],
    ]
    assert_claimed(scenario)


def test_k_renewal_updates_node_and_key(scenario: Scenario) -> None:
    """The AttestedNode with its new notAfter, and K3 like every other."""
    key, _ = scenario.put_claim()
    claims = FakeClaimStore(store=scenario.store)
    make(scenario, claims=claims)
    assert claims.writes == [f"replace node {NODE}", f"hold key {key.name[:8]}"]
    assert_claimed(scenario)


def test_k3_crash_does_not_give_one_tpm_to_two_nodes(scenario: Scenario) -> None:
    """The second write is done where the claim was whole, too: see decision 4.

    One replica dies before its K3; another read the key before, and the name while it was absent;
    a third takes the first one's request up again, and finds the claim whole.
    """
    home = scenario.holder()
    verified = scenario.verify_answer()
    scenario.put_key(key_name(scenario.ek), held_by=home)
    abroad = replace(
        verified,
        holder=verified.holder.replace(
            cluster_namespace=ABROAD.namespace, cluster_name=ABROAD.name
        ),
    )

    def die() -> None:
        raise ApiServerUnavailable("killed")

    def meanwhile() -> None:
        dying = FakeClaimStore(store=scenario.store, interrupt=die, interrupt_before=2)
        with pytest.raises(ApiServerUnavailable):
            make(scenario, verified=verified, claims=dying)
        make(scenario, verified=verified)

    slow = FakeClaimStore(store=scenario.store, interrupt=meanwhile)
    with pytest.raises(EndorsementKeyRegistrationConflict):
        make(scenario, verified=abroad, claims=slow)
    assert_claimed(scenario)


@pytest.mark.parametrize("held_in", [HOME, ABROAD])
@pytest.mark.parametrize("ours", list(TrustBasis))
def test_k1_claim_has_the_basis_of_the_answer(
    scenario: Scenario, ours: TrustBasis, held_in: ClusterKey
) -> None:
    """The record was removed, and the policy does not require one; or another Cluster is gone."""
    scenario.put_claim(cluster=held_in)
    make(scenario, basis=ours)
    assert_claimed(scenario, ours)


@pytest.mark.parametrize("stop_before", [1, 2, 3])
def test_k_next_attempt_completes_the_claim_after_a_crash(
    scenario: Scenario, stop_before: int
) -> None:
    claims = FakeClaimStore(store=scenario.store, interrupt_before=stop_before)

    def crash() -> None:
        claims.unavailable = True
        raise ApiServerUnavailable("killed")

    claims.interrupt = crash
    with pytest.raises(ApiServerUnavailable):
        make(scenario, claims=claims)
    make(scenario)
    assert_claimed(scenario)


@pytest.mark.parametrize("same_key", [False, True])
def test_k2_after_certificate_frees_the_claim_of_a_deleted_machine_when_its_certificate_expires(
    scenario: Scenario, *, same_key: bool
) -> None:
    """The key as well as the name."""
    key = scenario.ek if same_key else OTHER_KEY
    _, node = scenario.put_claim(key, provider_id=OTHER_ID)
    scenario.store.put_node(node.replace(not_after=NOW))
    make(scenario, policy=AFTER_CERTIFICATE)
    assert_claimed(scenario)


@pytest.mark.parametrize("before", [1, 2, 3])
def test_k_lost_race_is_retried(scenario: Scenario, before: int) -> None:
    """Another replica made the same claim at the same time, so both succeed."""
    claims = FakeClaimStore(store=scenario.store, interrupt_before=before)

    def other_replica() -> None:
        make(scenario)

    claims.interrupt = other_replica
    make(scenario, claims=claims)
    assert_claimed(scenario)


def test_k_claim_stops_after_five_lost_races(scenario: Scenario) -> None:
    """Constant conflicts are an outage, not a verdict."""
    scenario.put_claim()
    claims = BusyClaimStore(store=scenario.store)
    with pytest.raises(ClaimConflict):
        make(scenario, claims=claims)
    assert len(claims.writes) == 5


def test_k2_claim_names_the_machine_and_its_uid(scenario: Scenario) -> None:
    make(scenario)
    node = scenario.claim
    assert (node.machine_name, node.machine_uid) == ("machine-1", "machine-uid-1")


def test_k2_claim_of_a_pool_member_names_no_machine(scenario: Scenario) -> None:
    """A pool's name is not that of a Machine, which the member may get later."""
    verified = scenario.verify_answer()
    member = replace(verified.machine, name="pool-1", is_pool_member=True)
    make(scenario, verified=replace(verified, machine=member))
    assert (scenario.claim.machine_name, scenario.claim.machine_uid) == ("", "")


# One TPM, several node names: what a crash or a move leaves must not free the key


def test_k1_attested_node_that_the_cache_has_and_the_api_server_has_not_keeps_no_key(
    scenario: Scenario,
) -> None:
    node = moved_claim(scenario)
    holder_is_lost(scenario)
    scenario.inventory.store = deepcopy(scenario.store)
    scenario.store.put_node(node.replace(endorsement_key=key_name(OTHER_KEY)))
    make(scenario)
    assert_claimed(scenario)


@pytest.mark.parametrize("name", ["old-name", "new-name"])
def test_k1_machine_itself_claims_again_after_a_crash_between_its_two_names(
    scenario: Scenario, name: str
) -> None:
    moved_claim(scenario)
    crash_before_k2(scenario)
    verified = scenario.verify_answer()
    holder = scenario.holder(cluster=ABROAD, node_name=name, provider_id=OTHER_ID)
    make(scenario, verified=replace(verified, machine=LIVING, holder=holder))
    assert held(scenario) == holder
    node = scenario.store.find_node(ABROAD, name)
    assert node is not None
    assert (node.endorsement_key, node.machine_uid) == (key_name(scenario.ek), LIVING.uid)
