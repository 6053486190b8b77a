"""Races for a TPM or a node name.

A TPM belongs to one live node, and a node name to one TPM. The check and the write of a claim are
two steps. Between them another replica, the worker of another Cluster or another answer can write
(Keylime CVE-2025-13609; two attestations with one token in SPIRE 1.14.6). E3 reads caches, which
may be old. Here the caches are empty or old, so the live claims must decide (K1 to K4).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from common.errors import ApiServerUnavailable, AttestationError
from signer.errors import (
    ClaimConflict,
    EndorsementKeyBanned,
    EndorsementKeyHolderDeleting,
    EndorsementKeyInUse,
    EndorsementKeyRecordConflict,
    NodeNameInUse,
    NodeNameReserved,
    RequesterCredentialUnknown,
)
from signer.model import ClaimStore, Csr, EndorsementKeyObject, KeyHolder, TrustBasis, credential_id
from signer.policy import NameReuse, UnknownCredential
from tests.attacks.runner import (
    Attack,
    Mutation,
    assert_issued,
    assert_refused,
    reconcile_once,
)
from tests.attacks.scenarios import OTHER_ID, OTHER_NODE, first_use, renewal
from tests.builders.scenario import ABROAD, HOME, NOW, Scenario, key_name, machine
from tests.builders.software_tpm import endorsement_key
from tests.fakes.claims import FakeClaimStore, StoredClaims

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
    scenario.put_key(key_name(scenario.ek), banned=True)


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
    at_home(TrustBasis.RECORD)(scenario)
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


@dataclass(slots=True)
class _Busy(FakeClaimStore):
    """Another replica writes before every write."""

    def _write(self, what: str) -> None:
        FakeClaimStore._write(self, what)
        raise ClaimConflict(what)


def racing(before: int, act: Callable[[Scenario], object]) -> Callable[[Scenario], ClaimStore]:
    """Another replica acts before the n-th write."""

    def claims(scenario: Scenario) -> ClaimStore:
        def interrupt() -> None:
            act(scenario)

        return FakeClaimStore(store=scenario.store, interrupt=interrupt, interrupt_before=before)

    return claims


def takes_key(basis: TrustBasis) -> Callable[[Scenario], object]:
    """Another replica makes the complete claim to the TPM for a node of another Cluster."""

    def act(scenario: Scenario) -> None:
        holder = KeyHolder(
            cluster=ABROAD,
            node_name=scenario.node_name,
            provider_id=scenario.provider_id,
            basis=basis,
        )
        scenario.store.machines[ABROAD] = [machine()]
        name = key_name(scenario.ek)
        current = scenario.store.keys.get(name) or EndorsementKeyObject(
            name=name,
            resource_version="",
            registered_for=(),
            released_from=(),
            banned=False,
            held_by=None,
        )
        scenario.store.put_key(replace(current, held_by=holder))
        scenario.put_node(name, holder)

    return act


def takes_name(scenario: Scenario) -> None:
    """Another replica gives the name to another TPM on record."""
    scenario.put_claim(STRANGER)


def unreachable(scenario: Scenario) -> ClaimStore:
    """Make the API server unavailable."""
    return FakeClaimStore(store=scenario.store, unavailable=True)


def busy(scenario: Scenario) -> ClaimStore:
    """Another replica wins every race."""
    return _Busy(store=scenario.store)


def strict_renewal() -> Scenario:
    """Renew with a recorded certificate, under the policy that denies all others."""
    scenario = renewal()
    scenario.policy = replace(scenario.policy, unknown_credential=UnknownCredential.DENY)
    scenario.credential_id = credential_id(b"present")
    scenario.put_claim(credential_ids=(scenario.credential_id,))
    return scenario


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


def race(  # noqa: PLR0913, PLR0917 - as above
    check: str,
    name: str,
    reason: type[AttestationError],
    before: int,
    act: Callable[[Scenario], object],
    scenario: Callable[[], Scenario] = Scenario,
) -> Attack:
    """Return an attack that loses a race to another replica."""
    return Attack(check, name, reason, Scenario.answer_csr, scenario, racing(before, act))


KEYS = [
    Attack(
        "K1",
        "a TPM that another cluster's node holds",
        EndorsementKeyInUse,
        unseen(abroad(TrustBasis.FIRST_USE)),
        first_use,
    ),
    Attack(
        "K1",
        "a TPM that another cluster's node holds by certificate",
        EndorsementKeyInUse,
        unseen(abroad(TrustBasis.CERTIFICATE)),
        first_use,
    ),
    Attack(
        "K1",
        "a TPM that another cluster's node holds by record",
        EndorsementKeyInUse,
        unseen(abroad(TrustBasis.RECORD)),
        first_use,
    ),
    Attack(
        "K1",
        "a TPM on record in two clusters",
        EndorsementKeyRecordConflict,
        unseen(abroad(TrustBasis.RECORD)),
    ),
    Attack(
        "K1",
        "a TPM that another node has just claimed",
        EndorsementKeyInUse,
        unseen(at_home(TrustBasis.FIRST_USE)),
        first_use,
    ),
    Attack(
        "K1",
        "a TPM on record for another node that has just claimed it",
        EndorsementKeyRecordConflict,
        unseen(at_home(TrustBasis.RECORD)),
    ),
    Attack(
        "K1",
        "TPM and name of an older Machine that exists",
        EndorsementKeyRecordConflict,
        unseen(same_name),
    ),
    Attack(
        "K1",
        "a claim half moved to a Machine that exists",
        EndorsementKeyRecordConflict,
        unseen(half_moved),
    ),
    Attack(
        "K1",
        "a claim half moved away from a Machine that exists",
        EndorsementKeyRecordConflict,
        unseen(half_moved_away),
    ),
    Attack(
        "E3",
        "a TPM whose holder abroad is being deleted",
        EndorsementKeyHolderDeleting,
        unseen(abroad(TrustBasis.RECORD, deleting=True)),
    ),
    Attack(
        "E3",
        "a TPM whose holder at first use abroad is being deleted",
        EndorsementKeyHolderDeleting,
        unseen(abroad(TrustBasis.FIRST_USE, deleting=True)),
        first_use,
    ),
    Attack(
        "E3",
        "a TPM of a deleted node whose certificate is valid",
        EndorsementKeyHolderDeleting,
        unseen(key_of_the_gone),
        after_certificate,
    ),
    Attack("E3", "a TPM banned a moment ago", EndorsementKeyBanned, unseen(banned)),
    Attack(
        "E3",
        "a TPM of a claim banned a moment ago",
        EndorsementKeyBanned,
        unseen(banned_with_claim),
    ),
]
NAMES = [
    Attack(
        "K2", "a name claimed a moment ago", NodeNameInUse, unseen(name_claimed(TrustBasis.RECORD))
    ),
    Attack(
        "K2",
        "a name claimed at first use a moment ago",
        NodeNameInUse,
        unseen(name_claimed(TrustBasis.FIRST_USE)),
        first_use,
    ),
    Attack(
        "K2",
        "a name claimed by certificate a moment ago",
        NodeNameInUse,
        unseen(name_claimed(TrustBasis.CERTIFICATE)),
        first_use,
    ),
    Attack(
        "K2",
        "the name of a node that is being deleted since",
        NodeNameReserved,
        unseen(name_of_the_deleting),
    ),
    Attack(
        "K2",
        "the name of a deleted node whose certificate is valid",
        NodeNameReserved,
        unseen(name_of_the_gone),
        after_certificate,
    ),
]
RACES = (
    [
        race(
            "K1",
            f"the TPM taken abroad before write {n}",
            EndorsementKeyRecordConflict,
            n,
            takes_key(TrustBasis.RECORD),
        )
        for n in (1, 2, 3)
    ]
    + [
        race(
            "K1",
            f"the TPM taken at first use before write {n}",
            EndorsementKeyInUse,
            n,
            takes_key(TrustBasis.FIRST_USE),
            first_use,
        )
        for n in (1, 2, 3)
    ]
    + [race("K2", f"the name taken before write {n}", NodeNameInUse, n, takes_name) for n in (1, 2)]
    + [
        race("E3", f"the TPM banned before write {n}", EndorsementKeyBanned, n, banned)
        for n in (1, 3)
    ]
    + [
        Attack(
            "K3",
            "a claim that another replica always writes first",
            ClaimConflict,
            Scenario.answer_csr,
            Scenario,
            busy,
        ),
        Attack(
            "",
            "an API server that is away",
            ApiServerUnavailable,
            Scenario.answer_csr,
            Scenario,
            unreachable,
        ),
    ]
)
CREDENTIALS = [
    Attack(
        "K4",
        "a certificate that a stolen authority signed for the node",
        RequesterCredentialUnknown,
        filed_with("forged"),
        strict_renewal,
    ),
    Attack(
        "K4",
        "a copy of a certificate that the node has replaced",
        RequesterCredentialUnknown,
        filed_with("replaced"),
        strict_renewal,
    ),
    Attack(
        "K4",
        "a copy of a certificate that the node replaced a moment ago",
        RequesterCredentialUnknown,
        unseen(replace_certificate),
        strict_renewal,
    ),
    Attack(
        "K4",
        "a serving certificate requested with a forged certificate",
        RequesterCredentialUnknown,
        serving_filed_with("forged"),
        strict_renewal,
    ),
]
ATTACKS = KEYS + NAMES + RACES + CREDENTIALS


@pytest.mark.parametrize("scenario", [Scenario, first_use, after_certificate, strict_renewal])
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
