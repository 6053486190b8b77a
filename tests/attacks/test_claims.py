"""Races for a TPM or a node name.

A TPM belongs to one live node, and a node name to one TPM. The check and the write of a claim are
two steps. Between them another replica, the worker of another Cluster or another answer can write
(Keylime CVE-2025-13609; two attestations with one token in SPIRE 1.14.6). E3 reads caches, which
may be old. Here the caches are empty or old, so the live claims must decide (K1 to K4).
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta

import pytest

from common.errors import ApiServerUnavailable, AttestationError
from signer.errors import (
    AttestedNodeUnreadable,
    ClaimConflict,
    EndorsementKeyBanned,
    EndorsementKeyHolderDeleting,
    EndorsementKeyInUse,
    EndorsementKeyRegistrationConflict,
    EndorsementKeyReleased,
    NodeNameInUse,
    NodeNameReserved,
    RequesterCredentialUnknown,
)
from signer.kinds.csr import Csr, credential_id
from signer.kinds.endorsement_key import EndorsementKeyObject, KeyHolder, Release, TrustBasis
from signer.kinds.machine import Machine
from signer.policy.policy import NameReuse, UnknownCredential
from tests.attacks.runner import (
    Attack,
    Mutation,
    Table,
    assert_issued,
    assert_refused,
    attacks,
    reconcile_once,
)
from tests.attacks.scenarios import OTHER_ID, OTHER_NODE, first_use, renewal
from tests.builders.endorsement_keys import BAN
from tests.builders.leftover_claims import LEFTOVERS, holder_is_lost, moved_claim
from tests.builders.scenario import ABROAD, HOME, NOW, PROVIDER_ID, Scenario, key_name, machine
from tests.builders.software_tpm import endorsement_key
from tests.fakes.claims import BusyClaimStore, FakeClaimStore, StoredClaims

STRANGER = endorsement_key()


def unseen(change: Callable[[Scenario], object]) -> Mutation:
    """Change the claims when the caches have been filled, and answer."""

    def mutate(scenario: Scenario) -> Csr:
        store = scenario.store
        machines = {cluster: list(members) for cluster, members in store.machines.items()}
        scenario.inventory.store = StoredClaims(
            keys=dict(store.keys), nodes=dict(store.nodes), machines=machines
        )
        change(scenario)
        return scenario.answer_csr()

    return mutate


def abroad(basis: TrustBasis, *, deleting: bool = False) -> Callable[[Scenario], object]:
    """Give the TPM to a node of another Cluster with the same names."""

    def change(scenario: Scenario) -> None:
        scenario.put_claim(cluster=ABROAD, basis=basis)
        scenario.store.machines[ABROAD] = [machine(deleting=deleting)]

    return change


def at_home(basis: TrustBasis) -> Callable[[Scenario], object]:
    """Give the TPM to another node of this Cluster."""

    def change(scenario: Scenario) -> None:
        scenario.put_claim(node_name=OTHER_NODE, provider_id=OTHER_ID, basis=basis)
        other = machine(name="machine-2", uid="machine-uid-2", provider_id=OTHER_ID)
        scenario.store.machines[HOME].append(other)

    return change


def same_name(scenario: Scenario) -> None:
    """Give TPM and name to an older Machine that still exists."""
    scenario.put_claim(provider_id=OTHER_ID)
    other = machine(name="machine-2", uid="machine-uid-2", provider_id=OTHER_ID)
    scenario.store.machines[HOME].append(other)


def half_moved(scenario: Scenario) -> None:
    """Crash a signer while it gives TPM and name to a new Machine, which still exists."""
    scenario.put_claim(provider_id="metal://rack-1/slot-3")
    holder = scenario.holder(provider_id=OTHER_ID)
    scenario.put_node(key_name(scenario.ek), holder)
    other = machine(name="machine-2", uid="machine-uid-2", provider_id=OTHER_ID)
    scenario.store.machines[HOME].append(other)


def half_moved_away(scenario: Scenario) -> None:
    """Crash a signer while it moves them from a Machine that exists to one that is gone since."""
    scenario.put_claim(provider_id=OTHER_ID)
    holder = scenario.holder(provider_id="metal://rack-1/slot-3")
    scenario.put_node(key_name(scenario.ek), holder)
    other = machine(name="machine-2", uid="machine-uid-2", provider_id=OTHER_ID)
    scenario.store.machines[HOME].append(other)


def banned(scenario: Scenario) -> None:
    """Ban the TPM."""
    scenario.put_key(key_name(scenario.ek), banned=BAN)


def banned_with_claim(scenario: Scenario) -> None:
    """Ban the TPM of a node that has a claim."""
    scenario.put_claim(banned=True)


def name_claimed(basis: TrustBasis) -> Callable[[Scenario], object]:
    """Give the name to a node with another TPM."""
    return lambda scenario: scenario.put_claim(STRANGER, basis=basis)


def name_of_the_deleting(scenario: Scenario) -> None:
    """Give the name to a node whose Machine is being deleted."""
    scenario.put_claim(STRANGER, provider_id=OTHER_ID)
    other = machine(name="m2", uid="machine-uid-2", provider_id=OTHER_ID, deleting=True)
    scenario.store.machines[HOME].append(other)


def name_of_the_gone(scenario: Scenario) -> None:
    """Give the name to a node whose Machine is gone and whose certificate is still valid."""
    scenario.put_claim(STRANGER, provider_id=OTHER_ID)


def key_of_the_gone(scenario: Scenario) -> None:
    """Give the TPM to a node whose Machine is gone and whose certificate is still valid."""
    scenario.put_claim(provider_id=OTHER_ID)


def after_certificate() -> Scenario:
    """Join under the policy that keeps claims until their certificate has expired."""
    scenario = Scenario()
    scenario.policy = replace(scenario.policy, name_reuse=NameReuse.AFTER_CERTIFICATE)
    return scenario


def banned_stranger(scenario: Scenario) -> None:
    """Give the name to a banned TPM."""
    scenario.put_claim(STRANGER, banned=True)


def half_a_claim(scenario: Scenario) -> None:
    """Name as holder an existing node that has claimed another TPM since."""
    at_home(TrustBasis.REGISTERED)(scenario)
    scenario.put_node(
        key_name(STRANGER), scenario.holder(node_name=OTHER_NODE, provider_id=OTHER_ID)
    )


def second_name(scenario: Scenario) -> None:
    """Claim another name of the Machine with a stranger's TPM, at first use."""
    scenario.put_claim(STRANGER, node_name="internal.example", basis=TrustBasis.FIRST_USE)


def deleting_twin(scenario: Scenario) -> None:
    """Delete a Machine with the same provider ID."""
    twin = machine(scenario.ek, name="machine-0", uid="machine-uid-0", deleting=True)
    scenario.store.machines[HOME].insert(0, twin)


def racing(before: int, act: Callable[[Scenario], object]) -> Callable[[Scenario], FakeClaimStore]:
    """Another replica acts before the n-th write."""

    def claims(scenario: Scenario) -> FakeClaimStore:
        def interrupt() -> None:
            act(scenario)

        return FakeClaimStore(store=scenario.store, interrupt=interrupt, interrupt_before=before)

    return claims


def takes_key(basis: TrustBasis) -> Callable[[Scenario], object]:
    """Another replica makes the complete claim to the TPM for a node of another Cluster."""

    def act(scenario: Scenario) -> None:
        holder = KeyHolder.of(
            ABROAD,
            node_name=scenario.node_name,
            provider_id=scenario.provider_id,
            basis=basis,
        )
        scenario.store.machines[ABROAD] = [machine()]
        name = key_name(scenario.ek)
        current = scenario.store.keys.get(name) or EndorsementKeyObject(
            name=name,
            resource_version="",
            held_by=None,
        )
        scenario.store.put_key(current.replace(held_by=holder))
        scenario.put_node(name, holder)

    return act


def takes_name(scenario: Scenario) -> None:
    """Another replica gives the name to another registered TPM."""
    scenario.put_claim(STRANGER)


def unreachable(scenario: Scenario) -> FakeClaimStore:
    """Make the API server unavailable."""
    return FakeClaimStore(store=scenario.store, unavailable=True)


def busy(scenario: Scenario) -> FakeClaimStore:
    """Another replica wins every race."""
    return BusyClaimStore(store=scenario.store)


def strict_renewal() -> Scenario:
    """Renew with a recorded certificate, under the policy that denies all others."""
    scenario = renewal()
    scenario.change_policy("renewals", unknown_credential=UnknownCredential.DENY)
    scenario.credential_id = credential_id(b"present")
    scenario.put_claim(credential_ids=(scenario.credential_id,))
    return scenario


def claimed_renewal() -> Scenario:
    """Renew as a node that has its claim."""
    scenario = renewal()
    scenario.put_claim()
    return scenario


def banned_claim(scenario: Scenario) -> None:
    """Ban the TPM whose claim the node has."""
    scenario.put_key(key_name(scenario.ek), held_by=scenario.holder(), banned=BAN)


def name_lost(scenario: Scenario) -> None:
    """Let the Machine of the node's claim be gone, and another TPM have its name."""
    moved_claim(scenario)
    scenario.store.machines[ABROAD] = []
    scenario.put_claim(STRANGER)


def unreadable_name(scenario: Scenario) -> None:
    """Make the AttestedNode of the name unreadable: it may be the claim of another TPM."""
    scenario.put_claim(STRANGER)
    scenario.store.unreadable_nodes.add((HOME, scenario.node_name))


def filed_with(certificate: str) -> Mutation:
    """File the answer with another certificate in the name of the node."""

    def mutate(scenario: Scenario) -> Csr:
        return scenario.answer_csr(credential_id=credential_id(certificate.encode()))

    return mutate


def serving_filed_with(certificate: str) -> Mutation:
    """File the answer for a serving certificate with another certificate."""

    def mutate(scenario: Scenario) -> Csr:
        scenario.for_serving(scenario.node_name)
        scenario.request_der = b""
        return scenario.answer_csr(credential_id=credential_id(certificate.encode()))

    return mutate


def replace_certificate(scenario: Scenario) -> None:
    """Replace the certificate of the node twice, so that the first one has ended."""
    scenario.put_claim(credential_ids=(credential_id(b"second"), credential_id(b"third")))


def race(
    name: str,
    reason: type[AttestationError],
    before: int,
    act: Callable[[Scenario], object],
    scenario: Callable[[], Scenario] = Scenario,
) -> Attack:
    """Return an attack that loses a race to another replica."""
    return Attack(name, reason, Scenario.answer_csr, scenario, racing(before, act))


def release(provider_id: str | None = None) -> Callable[[Scenario], object]:
    """Release the key from the node that requests."""

    def change(scenario: Scenario) -> None:
        key, _ = scenario.put_claim()
        entry = Release.of(HOME, provider_id=provider_id)
        scenario.store.put_key(key.replace(released_from=(entry,)))

    return change


KEYS = [
    *attacks(
        {
            EndorsementKeyInUse: {
                "a TPM that another cluster's node holds": unseen(abroad(TrustBasis.FIRST_USE)),
                "a TPM that another cluster's node holds by certificate": unseen(
                    abroad(TrustBasis.CERTIFICATE)
                ),
                "a TPM that another cluster's node holds by record": unseen(
                    abroad(TrustBasis.REGISTERED)
                ),
                "a TPM that another node has just claimed": unseen(at_home(TrustBasis.FIRST_USE)),
            },
            EndorsementKeyHolderDeleting: {
                "a TPM whose holder at first use abroad is being deleted": unseen(
                    abroad(TrustBasis.FIRST_USE, deleting=True)
                )
            },
        },
        scenario=first_use,
    ),
    *attacks(
        {
            EndorsementKeyRegistrationConflict: {
                "a registered TPM in two clusters": unseen(abroad(TrustBasis.REGISTERED)),
                "a registered TPM for another node that has just claimed it": unseen(
                    at_home(TrustBasis.REGISTERED)
                ),
                "TPM and name of an older Machine that exists": unseen(same_name),
                "a claim half moved to a Machine that exists": unseen(half_moved),
                "a claim half moved away from a Machine that exists": unseen(half_moved_away),
            },
            EndorsementKeyHolderDeleting: {
                "a TPM whose holder abroad is being deleted": unseen(
                    abroad(TrustBasis.REGISTERED, deleting=True)
                )
            },
            EndorsementKeyBanned: {
                "a TPM banned a moment ago": unseen(banned),
                "a TPM of a claim banned a moment ago": unseen(banned_with_claim),
            },
        }
    ),
    *attacks(
        {
            EndorsementKeyBanned: {"a TPM banned since its claim": unseen(banned_claim)},
            EndorsementKeyReleased: {"a TPM released since": unseen(release(PROVIDER_ID))},
            EndorsementKeyRegistrationConflict: {
                "a TPM taken abroad since its claim": unseen(abroad(TrustBasis.REGISTERED))
            },
            NodeNameInUse: {
                "a name taken since its claim": unseen(name_claimed(TrustBasis.REGISTERED))
            },
        },
        scenario=claimed_renewal,
    ),
    Attack(
        "a TPM of a deleted node whose certificate is valid",
        EndorsementKeyHolderDeleting,
        unseen(key_of_the_gone),
        after_certificate,
    ),
]
NAMES = [
    *attacks(
        {
            NodeNameInUse: {"the name of another TPM, with a free TPM": unseen(name_lost)},
            AttestedNodeUnreadable: {"a name that cannot be read": unseen(unreadable_name)},
        }
    ),
    Attack(
        "a name claimed a moment ago", NodeNameInUse, unseen(name_claimed(TrustBasis.REGISTERED))
    ),
    Attack(
        "the name of a node that is being deleted since",
        NodeNameReserved,
        unseen(name_of_the_deleting),
    ),
    Attack(
        "a name claimed at first use a moment ago",
        NodeNameInUse,
        unseen(name_claimed(TrustBasis.FIRST_USE)),
        first_use,
    ),
    Attack(
        "a name claimed by certificate a moment ago",
        NodeNameInUse,
        unseen(name_claimed(TrustBasis.CERTIFICATE)),
        first_use,
    ),
    Attack(
        "the name of a deleted node whose certificate is valid",
        NodeNameReserved,
        unseen(name_of_the_gone),
        after_certificate,
    ),
]
RACES = [
    *(
        race(
            f"the TPM taken abroad before write {n}",
            EndorsementKeyRegistrationConflict,
            n,
            takes_key(TrustBasis.REGISTERED),
        )
        for n in (1, 2, 3)
    ),
    *(
        race(
            f"the TPM taken at first use before write {n}",
            EndorsementKeyInUse,
            n,
            takes_key(TrustBasis.FIRST_USE),
            first_use,
        )
        for n in (1, 2, 3)
    ),
    *(race(f"the name taken before write {n}", NodeNameInUse, n, takes_name) for n in (1, 2)),
    *(race(f"the TPM banned before write {n}", EndorsementKeyBanned, n, banned) for n in (1, 3)),
    *(
        race(f"the TPM released before write {n}", EndorsementKeyReleased, n, release())
        for n in (1, 2, 3)
    ),
    Attack(
        "a claim that another replica always writes first",
        ClaimConflict,
        Scenario.answer_csr,
        Scenario,
        busy,
    ),
    Attack(
        "an API server that is away",
        ApiServerUnavailable,
        Scenario.answer_csr,
        Scenario,
        unreachable,
    ),
]


def answering(change: Callable[[Scenario], object]) -> Mutation:
    """Change the claims, and answer: an offer learns nothing of other Clusters."""

    def mutate(scenario: Scenario) -> Csr:
        change(scenario)
        return scenario.answer_csr()

    return mutate


def on_the_same_hardware(name: str, uid: str) -> Callable[[Scenario], object]:
    """Give the TPM to an older Machine and node name with the same provider ID."""
    return lambda scenario: scenario.put_claim(node_name="old-name", machine=(name, uid))


def being_deleted(scenario: Scenario) -> None:
    """Give the TPM to an older Machine on the same hardware, which is being deleted."""
    on_the_same_hardware("machine-0", "machine-uid-0")(scenario)
    old = machine(name="machine-0", uid="machine-uid-0", deleting=True)
    scenario.store.machines[HOME].append(old)


def moved_abroad(name: str, uid: str) -> Callable[[Scenario], object]:
    """Give the TPM to a Machine of another Cluster, to which `clusterctl move` may give a UID."""

    def change(scenario: Scenario) -> None:
        claimed = (name, "machine-uid-0")
        scenario.put_claim(node_name="old-name", machine=claimed, cluster=ABROAD)
        scenario.store.machines[ABROAD] = [machine(name=name, uid=uid)]

    return change


def between_two_machines(*former: Machine) -> Callable[[Scenario], object]:
    """Crash a signer when the key names the new provider ID, the AttestedNode the old Machine."""

    def change(scenario: Scenario) -> None:
        name, holder = key_name(scenario.ek), scenario.holder(cluster=ABROAD)
        scenario.put_key(name, held_by=holder.replace(provider_id=OTHER_ID))
        scenario.put_node(name, holder, machine_name="machine-0", machine_uid="machine-uid-0")
        other = machine(name="machine-2", uid="uid-2", provider_id=OTHER_ID)
        scenario.store.machines[ABROAD] = [other, *former]

    return change


def leftover(
    leave: Callable[[Scenario], None], *, deleting: bool = False
) -> Callable[[Scenario], object]:
    """Leave half of the claim of a node abroad."""

    def change(scenario: Scenario) -> None:
        moved_claim(scenario, deleting=deleting)
        leave(scenario)

    return change


def unseen_by_caches(change: Callable[[Scenario], object]) -> Callable[[Scenario], object]:
    """Let a signer decide whose caches have the objects of one namespace."""

    def mutate(scenario: Scenario) -> None:
        change(scenario)
        scenario.inventory.sees_all = False

    return mutate


def being_moved(scenario: Scenario) -> None:
    """`clusterctl move` makes the claims first, and then the Machines of the paused Cluster."""
    moved_claim(scenario)
    scenario.store.machines[ABROAD] = []
    scenario.store.paused_clusters.add(ABROAD)


def former_tenant(*releases: Release) -> Callable[[Scenario], object]:
    """Give the TPM to a Machine of another Cluster that is registered for it."""

    def change(scenario: Scenario) -> None:
        holder = scenario.holder(cluster=ABROAD, provider_id=OTHER_ID)
        scenario.put_key(key_name(scenario.ek), held_by=holder, released_from=releases)
        scenario.put_node(key_name(scenario.ek), holder)
        other = machine(name="machine-2", uid="uid-2", provider_id=OTHER_ID)
        scenario.store.machines[ABROAD] = [other]

    return change


def unreadable_tenant(scenario: Scenario) -> None:
    """Make the former tenant's AttestedNode unreadable."""
    former_tenant()(scenario)
    scenario.store.unreadable_nodes.add((ABROAD, scenario.node_name))


def unreadable_leftover(scenario: Scenario) -> None:
    """Make the AttestedNode unreadable that alone names the key: its tenant could free the key."""
    node = moved_claim(scenario)
    holder_is_lost(scenario)
    scenario.inventory.store = deepcopy(scenario.store)
    scenario.store.unreadable_nodes.add((node.cluster, node.node_name))


LEFT: Table = {
    EndorsementKeyRegistrationConflict: {
        "a TPM of the same Machine under another name": unseen(
            on_the_same_hardware("machine-1", "machine-uid-1")
        ),
        **{
            f"a TPM of a Machine abroad, {name} {uid}": answering(moved_abroad(name, uid))
            for name in ("machine-0", "machine-1")
            for uid in ("machine-uid-0", "machine-uid-after-a-move")
        },
        "a TPM that a crash left between two Machines": answering(between_two_machines()),
        "a TPM that a crash left, its old Machine being deleted": answering(
            between_two_machines(machine(name="machine-0", deleting=True))
        ),
        **{
            f"a TPM of a living node, with {name}": answering(leftover(leave))
            for name, leave in LEFTOVERS.items()
        },
        **{
            f"a TPM of a living node of another namespace, with {name}": answering(
                unseen_by_caches(leftover(leave))
            )
            for name, leave in LEFTOVERS.items()
        },
        "a TPM of a tenant whose AttestedNode cannot be read": answering(unreadable_tenant),
        "a TPM of a node abroad that has just become unreadable": answering(unreadable_leftover),
        **{
            f"a TPM released from {what}": answering(former_tenant(from_others))
            for what, from_others in {
                "another provider ID": Release.of(ABROAD, provider_id=PROVIDER_ID),
                "another Cluster": Release.of(replace(ABROAD, name="red"), provider_id=None),
                "another namespace": Release.of(
                    replace(ABROAD, namespace="others"), provider_id=OTHER_ID
                ),
            }.items()
        },
    },
    EndorsementKeyHolderDeleting: {
        "a TPM of an older Machine that is being deleted": being_deleted,
        "a TPM of a Cluster that is being moved": answering(being_moved),
    },
    EndorsementKeyReleased: {
        "a TPM released from the Cluster a moment ago": unseen(release()),
        "a TPM released from the Machine a moment ago": unseen(release(PROVIDER_ID)),
    },
}
LEFT_AT_FIRST_USE: Table = {
    EndorsementKeyInUse: {
        f"a first use, of a living node with {name}": answering(leftover(leave))
        for name, leave in LEFTOVERS.items()
    },
    EndorsementKeyHolderDeleting: {
        f"a first use, of a node that is being deleted, with {name}": answering(
            leftover(leave, deleting=True)
        )
        for name, leave in LEFTOVERS.items()
    },
}
LEFT_BY_POLICY: Table = {
    EndorsementKeyHolderDeleting: {
        f"a TPM whose older certificate is valid, of {what} name": answering(
            on_the_same_hardware(name, "machine-uid-0")
        )
        for what, name in {"another": "machine-0", "the same": "machine-1"}.items()
    }
}
CREDENTIALS: Table = {
    RequesterCredentialUnknown: {
        "a certificate that a stolen authority signed for the node": filed_with("forged"),
        "a copy of a certificate that the node has replaced": filed_with("replaced"),
        "a copy of a certificate that the node replaced a moment ago": unseen(replace_certificate),
        "a serving certificate requested with a forged certificate": serving_filed_with("forged"),
    },
}
ATTACKS = [
    *attacks(CREDENTIALS, scenario=strict_renewal),
    *attacks(LEFT),
    *attacks(LEFT_AT_FIRST_USE, scenario=first_use),
    *attacks(LEFT_BY_POLICY, scenario=after_certificate),
    *(KEYS + NAMES + RACES),
]


@pytest.mark.parametrize(
    "scenario",
    [Scenario, first_use, after_certificate, strict_renewal, claimed_renewal],
)
def test_the_good_case_passes(scenario: Callable[[], Scenario]) -> None:
    assert_issued(scenario)


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_attack_is_refused(attack: Attack) -> None:
    assert_refused(attack)


def test_of_two_clusters_that_ask_for_one_tpm_the_first_gets_it() -> None:
    """One TPM answers in two clusters at once, each with its own Machine and first use."""
    here = first_use()
    there = first_use()
    there.change_cluster(key=ABROAD, uid="00000000-8888-4777-8666-555555555555")
    there.store = there.inventory.store = here.store
    here.store.machines[ABROAD] = [machine()]
    assert reconcile_once(here, here.answer_csr()).outcome == "issued"
    traces = reconcile_once(there, there.answer_csr())
    assert traces.reason == "EndorsementKeyInUse"
    assert HOME.name not in traces.public


@pytest.mark.parametrize("change", [banned_stranger, half_a_claim, second_name, deleting_twin])
def test_claim_that_is_not_live_stops_no_node(change: Callable[[Scenario], None]) -> None:
    """A claim that is banned, incomplete, without a record, or of a Machine under deletion."""

    def changed() -> Scenario:
        scenario = Scenario()
        change(scenario)
        return scenario

    assert_issued(changed)


def test_short_certificate_does_not_shorten_the_claim() -> None:
    """Otherwise a node could free its name while its earlier certificate is still valid."""
    scenario = after_certificate()
    _, claim = scenario.put_claim()
    scenario.as_node()
    scenario.expiration_seconds = 600
    assert reconcile_once(scenario, scenario.answer_csr(expiration_seconds=600)).outcome == "issued"
    (node,) = scenario.store.nodes.values()
    assert node.not_after == claim.not_after > NOW + timedelta(seconds=600)


def test_an_offer_learns_nothing_of_other_clusters() -> None:
    """Only a requester that has proved the TPM learns that another Cluster holds it."""
    scenario = first_use()
    abroad(TrustBasis.FIRST_USE)(scenario)
    assert reconcile_once(scenario, scenario.offer_csr()).outcome == "challenged"


def test_first_claim_stays_when_other_tpms_request_its_name() -> None:
    """Other TPMs request the same provider ID and node name, and the node can still renew."""
    scenario = first_use()
    assert reconcile_once(scenario, scenario.answer_csr()).outcome == "issued"
    for _ in range(5):
        assert (
            reconcile_once(scenario, Scenario(ek=endorsement_key()).answer_csr()).outcome
            == "denied"
        )
    scenario.as_node()
    scenario.now = NOW + timedelta(days=3)
    assert reconcile_once(scenario, scenario.answer_csr()).outcome == "issued"
