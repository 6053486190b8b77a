"""E3 and K1 to K3: the claims of endorsement keys and node names, and their conflicts."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from common.errors import ApiServerUnavailable
from signer.errors import (
    ClaimConflict,
    EndorsementKeyHolderDeleting,
    EndorsementKeyInUse,
    EndorsementKeyRecordConflict,
    EndorsementKeyReleased,
    NodeNameInUse,
)
from signer.model import (
    AttestedNodeObject,
    ClusterKey,
    EndorsementKeyObject,
    KeyHolder,
    Machine,
    Release,
    TrustBasis,
)
from signer.policy import NameReuse, Policy
from signer.verify.answer import VerifiedAnswer
from signer.verify.claimed_answer import ClaimedAnswer, make_claims
from tests.builders.scenario import (
    ABROAD,
    HOME,
    NODE,
    NOW,
    PROVIDER_ID,
    Scenario,
    key_name,
    machine,
    unreleased,
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
    """Verify the answer and make its claims."""
    verified = scenario.verify_answer() if verified is None else verified
    return make_claims(
        replace(verified, holder=replace(verified.holder, basis=basis)),
        replace(scenario.context(), policy=policy, now=NOW),
        claims=FakeClaimStore(store=scenario.store) if claims is None else claims,
        certificate=unreleased(NOT_AFTER),
    )


def held(scenario: Scenario, key: TpmKey | None = None) -> KeyHolder | None:
    """Read who holds a key."""
    return scenario.store.keys[key_name(scenario.ek if key is None else key)].held_by


def assert_claimed(scenario: Scenario, basis: TrustBasis = TrustBasis.RECORD) -> None:
    """Assert that the node has its complete claim."""
    node = scenario.store.find_node(HOME, NODE)
    assert held(scenario) == scenario.holder(basis=basis)
    assert node is not None
    assert (node.endorsement_key, node.provider_id) == (key_name(scenario.ek), PROVIDER_ID)
    assert (node.not_after, node.last_attested, node.machine_name) == (NOT_AFTER, NOW, "machine-1")
    assert node.boot is not None
    assert node.boot.reset_count == 5


# E3: from caches


def test_e3_first_claim_has_no_conflict(scenario: Scenario) -> None:
    scenario.verify_offer()
    scenario.verify_answer()


def test_e3_own_claim_does_not_stop_a_renewal(scenario: Scenario) -> None:
    scenario.put_claim()
    scenario.verify_offer()


def held_by_other(scenario: Scenario, basis: TrustBasis = TrustBasis.RECORD) -> None:
    """Give the key to another node of this Cluster."""
    scenario.put_claim(node_name="node-2", provider_id=OTHER_ID, basis=basis)


def e3_gone(scenario: Scenario) -> None:
    """Remove the holder's Machine."""
    held_by_other(scenario)


def e3_not_whole(scenario: Scenario) -> None:
    """Name another key in the holder's AttestedNode."""
    scenario.put_key(
        key_name(scenario.ek),
        held_by=scenario.holder(node_name="node-2", provider_id=OTHER_ID),
    )
    scenario.put_node(key_name(OTHER_KEY), scenario.holder(node_name="node-2"))
    scenario.store.machines[HOME].append(other_machine())


def e3_never_written(scenario: Scenario) -> None:
    """Remove the holder's AttestedNode."""
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
    """Claim the name without a record."""
    scenario.put_claim(OTHER_KEY, basis=TrustBasis.FIRST_USE)


def e3_abroad(scenario: Scenario) -> None:
    """Give the key to a node of another Cluster, which E3 must not disclose."""
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
def test_e3_claim_that_is_not_live_or_weaker_does_not_stop_a_request(
    scenario: Scenario, change: Callable[[Scenario], None]
) -> None:
    """Without a Machine, incomplete, without a record, or of another Cluster."""
    change(scenario)
    scenario.verify_offer()
    scenario.verify_answer()


# K: live


def test_k_first_claim_creates_both_objects(scenario: Scenario) -> None:
    """Key, name, and the key once more (K3)."""
    claims = FakeClaimStore(store=scenario.store)
    claimed = make(scenario, claims=claims)
    assert claimed.certificate == unreleased(NOT_AFTER).pem
    assert [w.split(" ")[:2] for w in claims.writes] == [
        ["create", "key"],
        ["create", "node"],
        ["hold", "key"],
    ]
    assert_claimed(scenario)


def test_k_claim_of_a_registered_key_updates_its_object(scenario: Scenario) -> None:
    """The operator has created the EndorsementKey."""
    scenario.put_key(key_name(scenario.ek))
    make(scenario)
    assert_claimed(scenario)


def test_k_renewal_updates_node_and_key(scenario: Scenario) -> None:
    """The AttestedNode with its new notAfter, and K3 like every other."""
    key, _ = scenario.put_claim()
    claims = FakeClaimStore(store=scenario.store)
    make(scenario, claims=claims)
    assert claims.writes == [f"replace node {NODE}", f"hold key {key.name[:8]}"]
    assert_claimed(scenario)


def test_k2_claim_keeps_the_latest_expiration(scenario: Scenario) -> None:
    """A short certificate does not shorten the claim of a longer one."""
    key, node = scenario.put_claim()
    later = NOT_AFTER + timedelta(days=1)
    scenario.store.put_node(replace(node, not_after=later))
    make(scenario)
    after = scenario.store.find_node(HOME, NODE)
    assert after is not None
    assert after.not_after == later
    assert scenario.store.keys[key.name].held_by == key.held_by


def test_k3_crash_does_not_give_one_tpm_to_two_nodes(scenario: Scenario) -> None:
    """The second write is done where the claim was whole, too: see decision 4.

    One replica dies before its K3; another read the key before, and the name while it was absent;
    a third takes the first one's request up again, and finds the claim whole.
    """
    home = scenario.holder()
    verified = scenario.verify_answer()
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
    assert_claimed(scenario)


def test_k_changed_basis_is_written(scenario: Scenario) -> None:
    """The key was registered after a first use."""
    scenario.put_claim(basis=TrustBasis.FIRST_USE)
    make(scenario)
    assert_claimed(scenario)


@pytest.mark.parametrize("ours", [TrustBasis.CERTIFICATE, TrustBasis.FIRST_USE])
def test_k1_holder_keeps_the_key_with_another_basis(scenario: Scenario, ours: TrustBasis) -> None:
    """The record was removed, and the policy does not require one."""
    scenario.put_claim()
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


def held_elsewhere(scenario: Scenario, basis: TrustBasis, *, deleting: bool = False) -> None:
    """Give the key to a node of another Cluster with equal names."""
    scenario.put_claim(cluster=ABROAD, basis=basis)
    scenario.store.machines[ABROAD] = [machine(deleting=deleting)]


def test_k1_certificate_does_not_replace_the_live_claim_of_a_first_use(
    scenario: Scenario,
) -> None:
    """No claim changes, and the message does not name the other Cluster."""
    held_elsewhere(scenario, TrustBasis.FIRST_USE)
    before = dict(scenario.store.keys), dict(scenario.store.nodes)
    with pytest.raises(EndorsementKeyInUse) as caught:
        make(scenario, basis=TrustBasis.CERTIFICATE)
    assert (scenario.store.keys, scenario.store.nodes) == before
    assert ABROAD.name not in caught.value.message


@pytest.mark.parametrize("deleting", [False, True])
@pytest.mark.parametrize("theirs", [TrustBasis.FIRST_USE, TrustBasis.CERTIFICATE])
def test_k1_registered_key_replaces_a_claim_without_a_record(
    scenario: Scenario, theirs: TrustBasis, *, deleting: bool
) -> None:
    """An operator or a provider has registered the key for this Machine."""
    held_elsewhere(scenario, theirs, deleting=deleting)
    make(scenario)
    assert_claimed(scenario)


@pytest.mark.parametrize("ours", list(TrustBasis))
def test_k1_claim_of_a_deleted_machine_is_replaced(scenario: Scenario, ours: TrustBasis) -> None:
    """Its Machine, or its whole Cluster, is gone."""
    scenario.put_claim(cluster=ABROAD, basis=TrustBasis.RECORD)
    make(scenario, basis=ours)
    assert_claimed(scenario, ours)


def test_k1_incomplete_claim_is_replaced(scenario: Scenario) -> None:
    """The holder's AttestedNode was never written, or names another key."""
    scenario.put_key(key_name(scenario.ek), held_by=scenario.holder(cluster=ABROAD))
    scenario.store.machines[ABROAD] = [machine()]
    make(scenario)
    assert_claimed(scenario)


def test_k2_recreated_machine_keeps_key_and_name(scenario: Scenario) -> None:
    """Same TPM, same name, new provider ID; the old Machine is gone."""
    scenario.put_claim(provider_id=OTHER_ID)
    make(scenario)
    assert_claimed(scenario)


def test_k2_certificate_does_not_replace_the_live_claim_of_a_name(scenario: Scenario) -> None:
    verified = scenario.verify_answer()
    scenario.put_claim(OTHER_KEY, basis=TrustBasis.FIRST_USE)
    with pytest.raises(NodeNameInUse):
        make(scenario, verified=verified, basis=TrustBasis.CERTIFICATE)


def test_k2_registered_key_takes_a_name_from_a_claim_without_a_record(scenario: Scenario) -> None:
    """The Machine's own TPM replaces a TPM that made the first claim."""
    scenario.put_claim(OTHER_KEY, basis=TrustBasis.FIRST_USE)
    make(scenario)
    assert_claimed(scenario)


def test_k2_name_of_a_deleted_machine_is_replaced(scenario: Scenario) -> None:
    """Even if the certificate of the old Machine is still valid."""
    scenario.put_claim(OTHER_KEY, provider_id=OTHER_ID)
    make(scenario)
    assert_claimed(scenario)


def test_k2_name_of_a_key_without_a_holder_is_replaced(scenario: Scenario) -> None:
    """Replacing a TPM: an operator clears who holds the old key."""
    scenario.put_claim(OTHER_KEY)
    scenario.put_key(key_name(OTHER_KEY), held_by=None)
    make(scenario)
    assert_claimed(scenario)


def test_k2_name_of_a_deleted_key_is_replaced(scenario: Scenario) -> None:
    """An operator has deleted the EndorsementKey."""
    scenario.put_claim(OTHER_KEY)
    del scenario.store.keys[key_name(OTHER_KEY)]
    make(scenario)
    assert_claimed(scenario)


def test_k2_name_of_a_banned_key_is_replaced(scenario: Scenario) -> None:
    """Banning a TPM frees its node's name."""
    scenario.put_claim(OTHER_KEY, banned=True)
    make(scenario)
    assert_claimed(scenario)


@pytest.mark.parametrize("same_key", [False, True])
def test_k2_after_certificate_frees_the_claim_of_a_deleted_machine_when_its_certificate_expires(
    scenario: Scenario, *, same_key: bool
) -> None:
    """The key as well as the name."""
    key = scenario.ek if same_key else OTHER_KEY
    _, node = scenario.put_claim(key, provider_id=OTHER_ID)
    scenario.store.put_node(replace(node, not_after=NOW))
    make(scenario, policy=AFTER_CERTIFICATE)
    assert_claimed(scenario)


def test_k3_claim_of_another_replica_before_the_last_write_wins(scenario: Scenario) -> None:
    """It has read the old state. Without the last write, both would hold the key."""
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
    claims = _AlwaysLosing(store=scenario.store)
    with pytest.raises(ClaimConflict):
        make(scenario, claims=claims)
    assert len(claims.writes) == 5


class _AlwaysLosing(FakeClaimStore):
    """Another replica writes before every write."""

    def _write(self, what: str) -> None:
        super()._write(what)
        raise ClaimConflict("changed")


# A provider ID that names hardware: the Machines on it follow one another


def old_claim(
    scenario: Scenario, name: str, uid: str, *, cluster: ClusterKey = HOME
) -> AttestedNodeObject:
    """Claim the key for an older Machine and node name on the same hardware."""
    _, node = scenario.put_claim(node_name="old-name", machine=(name, uid), cluster=cluster)
    return node


OLD_MACHINES = {
    "another name": ("machine-0", "machine-uid-0"),
    "the same name": ("machine-1", "machine-uid-0"),
}


@pytest.mark.parametrize("old", OLD_MACHINES.values(), ids=OLD_MACHINES)
def test_k1_machine_on_the_same_hardware_takes_over_the_key(
    scenario: Scenario, old: tuple[str, str]
) -> None:
    """Its node was denied as long as the Cluster existed, since the provider ID was there."""
    old_claim(scenario, *old)
    scenario.verify_offer()
    make(scenario)
    assert_claimed(scenario)


@pytest.mark.parametrize("old", OLD_MACHINES.values(), ids=OLD_MACHINES)
def test_k1_machine_on_the_same_hardware_waits_for_the_old_certificate_by_policy(
    scenario: Scenario, old: tuple[str, str]
) -> None:
    old_claim(scenario, *old)
    with pytest.raises(EndorsementKeyHolderDeleting):
        make(scenario, policy=AFTER_CERTIFICATE)


def test_k1_machine_on_the_same_hardware_waits_while_the_old_one_is_deleted(
    scenario: Scenario,
) -> None:
    old_claim(scenario, "machine-0", "machine-uid-0")
    scenario.store.machines[HOME].append(
        machine(name="machine-0", uid="machine-uid-0", deleting=True)
    )
    for verify in (scenario.verify_offer, scenario.verify_answer):
        with pytest.raises(EndorsementKeyHolderDeleting):
            verify()


def test_k1_one_machine_has_one_node_name(scenario: Scenario) -> None:
    """E3 reads a cache, which may not contain the claim yet."""
    verified = scenario.verify_answer()
    old_claim(scenario, "machine-1", "machine-uid-1")
    with pytest.raises(EndorsementKeyRecordConflict):
        make(scenario, verified=verified)


def test_k1_hardware_that_went_to_another_machine_frees_the_key_in_another_cluster(
    scenario: Scenario,
) -> None:
    """The other Cluster was made again on the same hosts, with other Machines."""
    old_claim(scenario, "machine-0", "machine-uid-0", cluster=ABROAD)
    scenario.store.machines[ABROAD] = [machine(name="machine-9", uid="machine-uid-9")]
    make(scenario)
    assert_claimed(scenario)


@pytest.mark.parametrize("uid", ["machine-uid-0", "machine-uid-after-a-move"])
@pytest.mark.parametrize("name", ["machine-0", "machine-1"])
def test_k1_live_machine_of_another_cluster_keeps_the_key_after_a_move(
    scenario: Scenario, name: str, uid: str
) -> None:
    """`clusterctl move` gives it a new UID, and no other node may take its key."""
    old_claim(scenario, name, "machine-uid-0", cluster=ABROAD)
    scenario.store.machines[ABROAD] = [machine(name=name, uid=uid)]
    with pytest.raises(EndorsementKeyRecordConflict):
        make(scenario)


def test_k2_new_machine_on_the_same_hardware_takes_the_old_name_with_another_key(
    scenario: Scenario,
) -> None:
    """Mainboard and Machine were replaced, the node name stays."""
    scenario.put_claim(OTHER_KEY, machine=("machine-0", "machine-uid-0"))
    scenario.verify_offer()
    make(scenario)
    assert_claimed(scenario)


def test_k2_claim_names_the_machine_and_its_uid(scenario: Scenario) -> None:
    make(scenario)
    node = scenario.store.find_node(HOME, NODE)
    assert node is not None
    assert (node.machine_name, node.machine_uid) == ("machine-1", "machine-uid-1")


def test_k2_claim_of_a_pool_member_names_no_machine(scenario: Scenario) -> None:
    """A pool's name is not that of a Machine, which the member may get later."""
    verified = scenario.verify_answer()
    member = replace(verified.machine, name="pool-1", is_pool_member=True)
    make(scenario, verified=replace(verified, machine=member))
    node = scenario.store.find_node(HOME, NODE)
    assert node is not None
    assert (node.machine_name, node.machine_uid) == ("", "")


def test_k1_claim_that_a_crash_left_between_two_machines_is_live(scenario: Scenario) -> None:
    """The key names the new provider ID already, the AttestedNode still the old Machine."""
    scenario.put_key(
        key_name(scenario.ek), held_by=scenario.holder(cluster=ABROAD, provider_id=OTHER_ID)
    )
    scenario.put_node(
        key_name(scenario.ek),
        scenario.holder(cluster=ABROAD),
        machine_name="machine-0",
        machine_uid="machine-uid-0",
    )
    scenario.store.machines[ABROAD] = [other_machine()]
    with pytest.raises(EndorsementKeyRecordConflict):
        make(scenario)


# Hardware that went to another owner


def former_tenant(scenario: Scenario, *releases: Release) -> None:
    """Give the key to a Machine of another Cluster, on record."""
    holder = scenario.holder(cluster=ABROAD, provider_id=OTHER_ID)
    name = key_name(scenario.ek)
    scenario.put_key(name, held_by=holder, released_from=releases)
    scenario.put_node(name, holder)
    scenario.store.machines[ABROAD] = [other_machine()]


RELEASES = {
    "from the Cluster": Release(cluster=ABROAD, provider_id=None),
    "from the Machine": Release(cluster=ABROAD, provider_id=OTHER_ID),
}


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


@pytest.mark.parametrize(
    "release",
    [
        Release(cluster=ABROAD, provider_id=PROVIDER_ID),
        Release(cluster=replace(ABROAD, name="red"), provider_id=None),
        Release(cluster=replace(ABROAD, namespace="others"), provider_id=OTHER_ID),
    ],
    ids=["another provider ID", "another Cluster", "another namespace"],
)
def test_k1_release_from_others_frees_nothing(scenario: Scenario, release: Release) -> None:
    former_tenant(scenario, release)
    with pytest.raises(EndorsementKeyRecordConflict):
        make(scenario)


@pytest.mark.parametrize("provider_id", [None, PROVIDER_ID])
def test_k1_key_that_was_released_a_moment_ago_is_denied(
    scenario: Scenario, provider_id: str | None
) -> None:
    """E3 reads a cache, which may not contain the release yet."""
    key, _ = scenario.put_claim()
    verified = scenario.verify_answer()
    release = Release(cluster=HOME, provider_id=provider_id)
    scenario.store.put_key(replace(key, released_from=(release,)))
    with pytest.raises(EndorsementKeyReleased):
        make(scenario, verified=verified)


def test_k2_release_frees_the_node_name_too(scenario: Scenario) -> None:
    """The former tenant's Machine gets other hardware."""
    key, _ = scenario.put_claim(OTHER_KEY)
    release = Release(cluster=HOME, provider_id=None)
    scenario.store.put_key(replace(key, released_from=(release,)))
    make(scenario)
    assert_claimed(scenario)


def test_k3_release_that_comes_between_k1_and_k3_counts(scenario: Scenario) -> None:
    """The operator's write changes the resourceVersion, so K3 conflicts and K1 reads again."""
    key, _ = scenario.put_claim()
    verified = scenario.verify_answer()

    def release() -> None:
        entry = Release(cluster=HOME, provider_id=None)
        scenario.store.put_key(replace(key, released_from=(entry,)))

    claims = FakeClaimStore(store=scenario.store, interrupt=release, interrupt_before=2)
    with pytest.raises(EndorsementKeyReleased):
        make(scenario, verified=verified, claims=claims)
