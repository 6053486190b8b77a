"""E3 and K1 to K3: who holds a key and a name, and what happens when two want the same."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from common.errors import ApiServerUnavailable, AttestationError
from signer.errors import (
    ClaimConflict,
    EndorsementKeyBanned,
    EndorsementKeyHolderDeleting,
    EndorsementKeyInUse,
    EndorsementKeyInUseLocally,
    EndorsementKeyRecordConflict,
    NodeNameInUse,
    NodeNameReserved,
)
from signer.model import EndorsementKeyObject, KeyHolder, Machine, TrustBasis
from signer.policy import NameReuse, Policy, TrustMode
from signer.verify.answer import ClaimedAnswer, VerifiedAnswer, make_claims
from tests.builders.scenario import (
    ABROAD,
    HOME,
    NODE,
    NOW,
    PROVIDER_ID,
    Scenario,
    key_name,
    machine,
)
from tests.builders.software_tpm import TpmKey, endorsement_key
from tests.fakes.claims import FakeClaimStore

OTHER_KEY = endorsement_key()
OTHER_ID = "metal://rack-1/slot-2"
NOT_AFTER = NOW + timedelta(days=7)
POLICY = Policy(name="test")
AFTER_CERTIFICATE = replace(POLICY, name_reuse=NameReuse.AFTER_CERTIFICATE)


@pytest.fixture
def scenario() -> Scenario:
    """Give a Cluster with one Machine whose key is on record."""
    return Scenario()


def other_machine(*, deleting: bool = False) -> Machine:
    """Make the Machine of another node."""
    return machine(name="machine-2", uid="uid-2", provider_id=OTHER_ID, deleting=deleting)


def make(
    scenario: Scenario,
    *,
    policy: Policy = POLICY,
    basis: TrustBasis = TrustBasis.RECORD,
    verified: VerifiedAnswer | None = None,
    claims: FakeClaimStore | None = None,
) -> ClaimedAnswer:
    """Judge the answer, and claim."""
    verified = scenario.judge_answer() if verified is None else verified
    return make_claims(
        replace(verified, holder=replace(verified.holder, basis=basis)),
        claims=FakeClaimStore(store=scenario.store) if claims is None else claims,
        policy=policy,
        now=NOW,
        not_after=NOT_AFTER,
    )


def held(scenario: Scenario, key: TpmKey | None = None) -> KeyHolder | None:
    """Read who holds a key."""
    return scenario.store.keys[key_name(scenario.ek if key is None else key)].held_by


def is_claimed(scenario: Scenario, basis: TrustBasis = TrustBasis.RECORD) -> None:
    """Require the node's own whole claim."""
    node = scenario.store.find_node(HOME, NODE)
    assert held(scenario) == scenario.holder(basis=basis)
    assert node is not None
    assert (node.endorsement_key, node.provider_id) == (key_name(scenario.ek), PROVIDER_ID)
    assert (node.not_after, node.last_attested, node.machine_name) == (NOT_AFTER, NOW, "machine-1")
    assert node.boot is not None
    assert node.boot.reset_count == 5


# E3: from caches


def test_e3_nobody_holds_anything(scenario: Scenario) -> None:
    """The first claim."""
    scenario.judge_offer()
    scenario.judge_answer()


def test_e3_the_own_claim_does_not_speak_against_oneself(scenario: Scenario) -> None:
    """A renewal."""
    scenario.put_claim()
    scenario.judge_offer()


@pytest.mark.parametrize("whole", [True, False])
def test_e3_a_banned_key_is_denied(scenario: Scenario, *, whole: bool) -> None:
    """Claimed or not."""
    if whole:
        scenario.put_claim(banned=True)
    else:
        scenario.put_key(key_name(scenario.ek), banned=True)
    for judge in (scenario.judge_offer, scenario.judge_answer):
        with pytest.raises(EndorsementKeyBanned):
            judge()


def held_by_other(scenario: Scenario, basis: TrustBasis = TrustBasis.RECORD) -> None:
    """Let another node of this Cluster hold the key."""
    scenario.put_claim(node_name="node-2", provider_id=OTHER_ID, basis=basis)


def e3_living(scenario: Scenario) -> None:
    """Another node holds the key without a record, and the claimant has none either."""
    scenario.policy = replace(scenario.policy, trust=TrustMode.FIRST_USE)
    scenario.change_machine(registered_keys=())
    held_by_other(scenario, TrustBasis.FIRST_USE)
    scenario.store.machines[HOME].append(other_machine())


def e3_deleting(scenario: Scenario) -> None:
    """Let the other node be under deletion."""
    held_by_other(scenario)
    scenario.store.machines[HOME].append(other_machine(deleting=True))


def e3_two_records(scenario: Scenario) -> None:
    """Put the key on record for both."""
    held_by_other(scenario)
    scenario.store.machines[HOME].append(other_machine())


def e3_name_taken(scenario: Scenario) -> None:
    """Let another key on record have the node name, on the same Machine."""
    scenario.put_claim(OTHER_KEY)


E3: dict[str, tuple[Callable[[Scenario], None], type[AttestationError]]] = {
    "held by a living node": (e3_living, EndorsementKeyInUseLocally),
    "holder is being deleted": (e3_deleting, EndorsementKeyHolderDeleting),
    "two records": (e3_two_records, EndorsementKeyRecordConflict),
    "the name has another key": (e3_name_taken, NodeNameInUse),
}


@pytest.mark.parametrize(("change", "error"), E3.values(), ids=E3)
def test_e3_claims_of_this_cluster_speak_against_an_offer(
    scenario: Scenario, change: Callable[[Scenario], None], error: type[AttestationError]
) -> None:
    """On the offer, and on the answer as well."""
    change(scenario)
    for judge in (scenario.judge_offer, scenario.judge_answer):
        with pytest.raises(error):
            judge()


def e3_gone(scenario: Scenario) -> None:
    """Let the holder's Machine be gone."""
    held_by_other(scenario)


def e3_not_whole(scenario: Scenario) -> None:
    """Let the holder's AttestedNode name another key."""
    scenario.put_key(
        key_name(scenario.ek),
        held_by=scenario.holder(node_name="node-2", provider_id=OTHER_ID),
    )
    scenario.put_node(key_name(OTHER_KEY), scenario.holder(node_name="node-2"))
    scenario.store.machines[HOME].append(other_machine())


def e3_never_written(scenario: Scenario) -> None:
    """Let the holder's AttestedNode be missing."""
    scenario.put_key(
        key_name(scenario.ek),
        held_by=scenario.holder(node_name="node-2", provider_id=OTHER_ID),
    )
    scenario.store.machines[HOME].append(other_machine())


def e3_record_beats(scenario: Scenario) -> None:
    """Give the claimant a record, and the holder none."""
    held_by_other(scenario, TrustBasis.FIRST_USE)
    scenario.store.machines[HOME].append(other_machine())


def e3_name_without_record(scenario: Scenario) -> None:
    """Let the name be claimed without a record."""
    scenario.put_claim(OTHER_KEY, basis=TrustBasis.FIRST_USE)


def e3_abroad(scenario: Scenario) -> None:
    """Let a node of another Cluster hold the key: nobody learns of it by an offer."""
    scenario.put_claim(cluster=ABROAD, basis=TrustBasis.RECORD)
    scenario.store.machines[ABROAD] = [machine()]


@pytest.mark.parametrize(
    "change",
    [
        e3_gone,
        e3_not_whole,
        e3_never_written,
        e3_record_beats,
        e3_name_without_record,
        e3_abroad,
    ],
)
def test_e3_other_claims_do_not(scenario: Scenario, change: Callable[[Scenario], None]) -> None:
    """Dead, half, weaker, or another Cluster's."""
    change(scenario)
    scenario.judge_offer()
    scenario.judge_answer()


# K: live


def test_k_a_first_claim_makes_both_objects(scenario: Scenario) -> None:
    """Key, name, and the key once more (K3)."""
    claims = FakeClaimStore(store=scenario.store)
    made = make(scenario, claims=claims)
    assert made.not_after == NOT_AFTER
    assert [w.split(" ")[:2] for w in claims.writes] == [
        ["create", "key"],
        ["create", "node"],
        ["hold", "key"],
    ]
    is_claimed(scenario)


def test_k_a_registered_key_is_held(scenario: Scenario) -> None:
    """The operator's object was there first."""
    scenario.put_key(key_name(scenario.ek))
    make(scenario)
    is_claimed(scenario)


def test_k_a_renewal_confirms(scenario: Scenario) -> None:
    """The AttestedNode with its new notAfter, and K3 like every other."""
    key, _ = scenario.put_claim()
    claims = FakeClaimStore(store=scenario.store)
    make(scenario, claims=claims)
    assert claims.writes == [f"replace node {NODE}", f"hold key {key.name[:8]}"]
    is_claimed(scenario)


def test_k2_the_longest_lived_certificate_counts(scenario: Scenario) -> None:
    """A short one, for serving perhaps, does not make an earlier one expire."""
    key, node = scenario.put_claim()
    later = NOT_AFTER + timedelta(days=1)
    scenario.store.put_node(replace(node, not_after=later))
    made = make(scenario)
    after = scenario.store.find_node(HOME, NODE)
    assert after is not None
    assert (after.not_after, made.not_after) == (later, NOT_AFTER)
    assert scenario.store.keys[key.name].held_by == key.held_by


def test_k3_one_tpm_for_two_nodes_by_a_crash_before_it(scenario: Scenario) -> None:
    """The second write is done where the claim was whole, too: see decision 4.

    One replica dies before its K3; another read the key before, and the name while it was absent;
    a third takes the first one's request up again, and finds the claim whole.
    """
    home = scenario.holder()
    verified = scenario.judge_answer()
    scenario.put_key(key_name(scenario.ek), held_by=home)
    abroad = replace(verified, holder=replace(verified.holder, cluster=ABROAD))

    def die() -> None:
        raise ApiServerUnavailable("killed")

    def meanwhile() -> None:
        dying = FakeClaimStore(store=scenario.store, interrupt=die, interrupt_before=2)
        with pytest.raises(ApiServerUnavailable):
            make(scenario, verified=verified, claims=dying)
        make(scenario, verified=verified)

    slow = FakeClaimStore(store=scenario.store, interrupt=meanwhile)
    with pytest.raises(EndorsementKeyRecordConflict):
        make(scenario, verified=abroad, claims=slow)
    is_claimed(scenario)


def test_k_a_ground_that_changed_is_written(scenario: Scenario) -> None:
    """The key was registered after a first use."""
    scenario.put_claim(basis=TrustBasis.FIRST_USE)
    make(scenario)
    is_claimed(scenario)


@pytest.mark.parametrize("ours", [TrustBasis.CERTIFICATE, TrustBasis.FIRST_USE])
def test_k1_who_holds_the_key_keeps_it_on_another_ground(
    scenario: Scenario, ours: TrustBasis
) -> None:
    """The record was taken away, and the policy asks for none any more."""
    scenario.put_claim()
    make(scenario, basis=ours)
    is_claimed(scenario, ours)


@pytest.mark.parametrize("stop_before", [1, 2, 3])
def test_k_a_crash_at_any_write_is_healed_by_looking_again(
    scenario: Scenario, stop_before: int
) -> None:
    """The next look finishes what was begun."""
    claims = FakeClaimStore(store=scenario.store, interrupt_before=stop_before)

    def crash() -> None:
        claims.unavailable = True
        raise ApiServerUnavailable("killed")

    claims.interrupt = crash
    with pytest.raises(ApiServerUnavailable):
        make(scenario, claims=claims)
    make(scenario)
    is_claimed(scenario)


def test_k1_a_banned_key_is_denied_live(scenario: Scenario) -> None:
    """The cache may not have seen the ban yet."""
    verified = scenario.judge_answer()
    scenario.put_key(key_name(scenario.ek), banned=True)
    with pytest.raises(EndorsementKeyBanned):
        make(scenario, verified=verified)


def held_elsewhere(scenario: Scenario, basis: TrustBasis, *, deleting: bool = False) -> None:
    """Let a node of another Cluster, with equal names, hold the key."""
    scenario.put_claim(cluster=ABROAD, basis=basis)
    scenario.store.machines[ABROAD] = [machine(deleting=deleting)]


K1: dict[str, tuple[TrustBasis, TrustBasis, bool, type[AttestationError]]] = {
    "first use against first use": (
        TrustBasis.FIRST_USE,
        TrustBasis.FIRST_USE,
        False,
        EndorsementKeyInUse,
    ),
    "certificate against first use": (
        TrustBasis.FIRST_USE,
        TrustBasis.CERTIFICATE,
        False,
        EndorsementKeyInUse,
    ),
    "first use against record": (
        TrustBasis.RECORD,
        TrustBasis.FIRST_USE,
        False,
        EndorsementKeyInUse,
    ),
    "record against record": (
        TrustBasis.RECORD,
        TrustBasis.RECORD,
        False,
        EndorsementKeyRecordConflict,
    ),
    "holder is being deleted": (
        TrustBasis.RECORD,
        TrustBasis.RECORD,
        True,
        EndorsementKeyHolderDeleting,
    ),
    "weak holder is being deleted": (
        TrustBasis.FIRST_USE,
        TrustBasis.FIRST_USE,
        True,
        EndorsementKeyHolderDeleting,
    ),
}


@pytest.mark.parametrize(("theirs", "ours", "deleting", "error"), K1.values(), ids=K1)
def test_k1_a_living_claim_stands(
    scenario: Scenario,
    theirs: TrustBasis,
    ours: TrustBasis,
    *,
    deleting: bool,
    error: type[AttestationError],
) -> None:
    """One TPM, one living node; also across Clusters with equal names."""
    held_elsewhere(scenario, theirs, deleting=deleting)
    before = dict(scenario.store.keys), dict(scenario.store.nodes)
    with pytest.raises(error) as caught:
        make(scenario, basis=ours)
    assert (scenario.store.keys, scenario.store.nodes) == before
    assert ABROAD.name not in caught.value.message


@pytest.mark.parametrize("deleting", [False, True])
@pytest.mark.parametrize("theirs", [TrustBasis.FIRST_USE, TrustBasis.CERTIFICATE])
def test_k1_a_record_beats_a_claim_without_one(
    scenario: Scenario, theirs: TrustBasis, *, deleting: bool
) -> None:
    """Somebody with authority says whose it is."""
    held_elsewhere(scenario, theirs, deleting=deleting)
    make(scenario)
    is_claimed(scenario)


@pytest.mark.parametrize("ours", list(TrustBasis))
def test_k1_a_dead_claim_is_taken(scenario: Scenario, ours: TrustBasis) -> None:
    """Its Machine, or its whole Cluster, is gone."""
    scenario.put_claim(cluster=ABROAD, basis=TrustBasis.RECORD)
    make(scenario, basis=ours)
    is_claimed(scenario, ours)


def test_k1_half_a_claim_is_taken(scenario: Scenario) -> None:
    """The holder's AttestedNode was never written, or names another key."""
    scenario.put_key(key_name(scenario.ek), held_by=scenario.holder(cluster=ABROAD))
    scenario.store.machines[ABROAD] = [machine()]
    make(scenario)
    is_claimed(scenario)


def test_k1_a_machine_that_comes_back_has_its_claim(scenario: Scenario) -> None:
    """Being gone for a while changes nothing in the objects."""
    scenario.put_claim(cluster=ABROAD, basis=TrustBasis.RECORD)
    scenario.store.machines[ABROAD] = [machine()]
    with pytest.raises(EndorsementKeyRecordConflict):
        make(scenario)


def test_k1_an_old_machine_of_the_same_name_is_another_holder(scenario: Scenario) -> None:
    """Same key and name, but the Machine that holds them is alive."""
    verified = scenario.judge_answer()
    scenario.put_claim(provider_id=OTHER_ID)
    scenario.store.machines[HOME].append(other_machine())
    with pytest.raises(EndorsementKeyRecordConflict):
        make(scenario, verified=verified)


def test_k2_a_machine_made_anew_keeps_key_and_name(scenario: Scenario) -> None:
    """Same TPM, same name, new provider ID; the old Machine is gone."""
    scenario.put_claim(provider_id=OTHER_ID)
    make(scenario)
    is_claimed(scenario)


def test_k2_a_name_of_a_living_node_is_taken(scenario: Scenario) -> None:
    """With another key on record."""
    verified = scenario.judge_answer()
    scenario.put_claim(OTHER_KEY)
    with pytest.raises(NodeNameInUse):
        make(scenario, verified=verified)
    assert held(scenario, OTHER_KEY) is not None


@pytest.mark.parametrize("ours", [TrustBasis.FIRST_USE, TrustBasis.CERTIFICATE])
def test_k2_without_a_record_nobody_takes_a_living_name(
    scenario: Scenario, ours: TrustBasis
) -> None:
    """Whoever was first."""
    verified = scenario.judge_answer()
    scenario.put_claim(OTHER_KEY, basis=TrustBasis.FIRST_USE)
    with pytest.raises(NodeNameInUse):
        make(scenario, verified=verified, basis=ours)


def test_k2_a_record_takes_a_name_from_a_claim_without_one(scenario: Scenario) -> None:
    """The Machine's own TPM against a stranger who came first."""
    scenario.put_claim(OTHER_KEY, basis=TrustBasis.FIRST_USE)
    make(scenario)
    is_claimed(scenario)


def test_k2_a_name_waits_while_its_node_is_being_deleted(scenario: Scenario) -> None:
    """A new Machine under an old node name."""
    verified = scenario.judge_answer()
    scenario.put_claim(OTHER_KEY, provider_id=OTHER_ID)
    scenario.store.machines[HOME].append(other_machine(deleting=True))
    with pytest.raises(NodeNameReserved):
        make(scenario, verified=verified)


def test_k2_a_dead_name_is_taken(scenario: Scenario) -> None:
    """Once the old Machine is gone, though its certificate lives on."""
    scenario.put_claim(OTHER_KEY, provider_id=OTHER_ID)
    make(scenario)
    is_claimed(scenario)


def test_k2_a_released_name_is_taken(scenario: Scenario) -> None:
    """Replacing a TPM: an operator clears who holds the old key."""
    scenario.put_claim(OTHER_KEY)
    scenario.put_key(key_name(OTHER_KEY), held_by=None)
    make(scenario)
    is_claimed(scenario)


def test_k2_a_name_whose_key_is_gone_is_taken(scenario: Scenario) -> None:
    """An operator has deleted the EndorsementKey: nobody holds it."""
    scenario.put_claim(OTHER_KEY)
    del scenario.store.keys[key_name(OTHER_KEY)]
    make(scenario)
    is_claimed(scenario)


def test_k2_a_banned_key_holds_no_name(scenario: Scenario) -> None:
    """Banning a TPM frees its node's name."""
    scenario.put_claim(OTHER_KEY, banned=True)
    make(scenario)
    is_claimed(scenario)


@pytest.mark.parametrize("same_key", [False, True])
def test_k2_by_policy_a_dead_claim_lives_until_its_certificate_ends(
    scenario: Scenario, *, same_key: bool
) -> None:
    """Name and key alike."""
    key = scenario.ek if same_key else OTHER_KEY
    _, node = scenario.put_claim(key, provider_id=OTHER_ID)
    with pytest.raises(EndorsementKeyHolderDeleting if same_key else NodeNameReserved):
        make(scenario, policy=AFTER_CERTIFICATE)
    scenario.store.put_node(replace(node, not_after=NOW))
    make(scenario, policy=AFTER_CERTIFICATE)
    is_claimed(scenario)


def test_k3_a_replica_that_took_the_key_in_between_wins(scenario: Scenario) -> None:
    """It read the old state; without the last write, both would believe to hold the key."""
    scenario.put_claim(cluster=ABROAD)
    abroad = scenario.holder(cluster=ABROAD)
    claims = FakeClaimStore(store=scenario.store, interrupt_before=3)

    def other_replica() -> None:
        scenario.store.machines[ABROAD] = [machine()]
        scenario.store.put_key(replace(_current(scenario), held_by=abroad))

    claims.interrupt = other_replica
    with pytest.raises(EndorsementKeyRecordConflict):
        make(scenario, claims=claims)
    assert held(scenario) == abroad


def _current(scenario: Scenario) -> EndorsementKeyObject:
    return scenario.store.keys[key_name(scenario.ek)]


@pytest.mark.parametrize("before", [1, 2, 3])
def test_k_a_lost_race_begins_again(scenario: Scenario, before: int) -> None:
    """Another replica made the very same claim at the same time: both are right."""
    claims = FakeClaimStore(store=scenario.store, interrupt_before=before)

    def other_replica() -> None:
        make(scenario)

    claims.interrupt = other_replica
    make(scenario, claims=claims)
    is_claimed(scenario)


def test_k_races_end(scenario: Scenario) -> None:
    """Somebody who writes all the time is an outage, not a verdict."""
    scenario.put_claim()
    claims = _AlwaysLosing(store=scenario.store)
    with pytest.raises(ClaimConflict):
        make(scenario, claims=claims)
    assert len(claims.writes) == 5


class _AlwaysLosing(FakeClaimStore):
    """Somebody else writes before every write."""

    def _write(self, what: str) -> None:
        super()._write(what)
        raise ClaimConflict("changed")


def test_k_an_unreachable_api_server_decides_nothing(scenario: Scenario) -> None:
    """Neither yes nor no."""
    with pytest.raises(ApiServerUnavailable):
        make(scenario, claims=FakeClaimStore(store=scenario.store, unavailable=True))
