"""Genuine TPMs that do not belong to the Machine.

The attacker has a real TPM of the same vendor (for example from a used machine), so it passes every
check of keys and quotes. Only a record of another key, a missing record or an earlier claim refuses
it. Only users with write access to the management cluster can make records. Without a record, the
signer makes a first claim only if the Machine cannot have a node yet (E2, E3).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from common.errors import AttestationError
from common.names import ENDORSEMENT_KEY_ANNOTATION
from signer.errors import (
    EndorsementKeyBanned,
    EndorsementKeyHolderDeleting,
    EndorsementKeyInUseLocally,
    EndorsementKeyMismatch,
    EndorsementKeyNotRegistered,
    EndorsementKeyRecordConflict,
    EndorsementKeyRecordInvalid,
    EndorsementKeyReleased,
    NodeNameInUse,
    NodeNameReserved,
    NodeOfAnotherMachine,
    OperatorActionRequired,
    PlatformAnswerPending,
    PlatformLocationNotAllowed,
    PlatformQueryFailed,
    PlatformUnavailable,
)
from signer.model import Csr, Node, RegisteredKey, Registration, Release, TrustBasis
from signer.verify.request import ENTRY_USER
from tests.attacks.runner import (
    Attack,
    Mutation,
    assert_issued,
    assert_refused,
    reconcile_once,
)
from tests.attacks.scenarios import OTHER_ID, OTHER_NODE, first_use, platform_scenario
from tests.builders.scenario import (
    ABROAD,
    HOME,
    NODE,
    PROVIDER_ID,
    Scenario,
    key_name,
    machine,
    record_of,
)
from tests.builders.software_tpm import TpmKey, endorsement_key

STRANGER = endorsement_key()


def first_use_by_any_token() -> Scenario:
    """Join under FirstUse, where the Machine's bootstrap configuration owns no token to compare."""
    scenario = first_use()
    scenario.change_machine(bootstrap_token_id=None)
    return scenario


def first_use_renewed() -> Scenario:
    """Renew under FirstUse: the claim exists."""
    scenario = first_use()
    scenario.put_claim(basis=TrustBasis.FIRST_USE)
    scenario.as_node()
    return scenario


def records(*keys: RegisteredKey) -> Mutation:
    """Set the records of Machine and infrastructure object."""
    return lambda scenario: scenario.change_machine(registered_keys=keys)


def registered(key: TpmKey | None = None, **entry: Any) -> Mutation:  # noqa: ANN401 - of Registration
    """Register a key for another object than this Machine."""

    def mutate(scenario: Scenario) -> None:
        scenario.change_machine(registered_keys=())
        fields = {"cluster": HOME, "provider_id": None, "machine_name": None, "node_name": None}
        registration = Registration(**{**fields, **entry})
        scenario.put_key(key_name(key or scenario.ek), registered_for=(registration,))

    return mutate


def unreadable(*keys: RegisteredKey) -> Mutation:
    """Add an unreadable record to these records."""

    def mutate(scenario: Scenario) -> None:
        scenario.change_machine(registered_keys=keys, registered_keys_error="annotation: not PEM")

    return mutate


def platform_gives(*keys: TpmKey) -> Mutation:
    """Let the platform give these keys for the Machine."""

    def mutate(scenario: Scenario) -> None:
        scenario.platforms.names[PROVIDER_ID] = [key_name(key) for key in keys]

    return mutate


def platform_fails(error: type[AttestationError]) -> Mutation:
    """Let the platform give no answer."""

    def mutate(scenario: Scenario) -> None:
        scenario.platforms.error = error("no answer")

    return mutate


def own_annotation(scenario: Scenario) -> tuple[Csr, Csr]:
    """Name one's key in an annotation of one's own CSR, where the proposal has it."""
    scenario.change_machine(registered_keys=())
    value = {ENDORSEMENT_KEY_ANNOTATION: f"sha256:{key_name(scenario.ek)}"}
    return scenario.offer_csr(annotations=value), scenario.answer_csr(annotations=value)


def stranger(scenario: Scenario) -> None:
    """Use another TPM than the one on record."""
    scenario.ek = STRANGER


def stranger_of_rsa(scenario: Scenario) -> None:
    """Use another key of the same TPM than the one on record."""
    scenario.ek = endorsement_key(0)


def node_requester(scenario: Scenario) -> None:
    """Make a first claim as a node."""
    scenario.as_node()


def username(name: str) -> Mutation:
    """Make a first claim with another credential, which also requested the challenge."""

    def mutate(scenario: Scenario) -> None:
        scenario.username = name

    return mutate


def has_node(*, provider_id: str = PROVIDER_ID) -> Mutation:
    """Make a first claim where a Node of that name exists."""

    def mutate(scenario: Scenario) -> None:
        scenario.inventory.nodes = [Node(name=NODE, provider_id=provider_id)]

    return mutate


def has_node_ref(scenario: Scenario) -> None:
    """Make a first claim for a Machine that already has a Node."""
    scenario.change_machine(node_ref=NODE)


def came_first(basis: TrustBasis = TrustBasis.FIRST_USE) -> Mutation:
    """Request a name that another TPM has claimed."""

    def mutate(scenario: Scenario) -> None:
        scenario.put_claim(STRANGER, basis=basis)

    return mutate


def renews_a_recreated_machine(scenario: Scenario) -> None:
    """Renew with the claim of a deleted Machine, for a new Machine with its name."""
    scenario.put_claim(basis=TrustBasis.FIRST_USE, provider_id=OTHER_ID)


def renews_with_another(scenario: Scenario) -> None:
    """Renew an attested node's certificate from another machine, with its stolen certificate."""
    scenario.ek = STRANGER


def banned(*, held: bool) -> Mutation:
    """Use a TPM that an operator has banned."""

    def mutate(scenario: Scenario) -> None:
        if held:
            scenario.put_claim(banned=True)
        else:
            scenario.put_key(key_name(scenario.ek), banned=True)

    return mutate


def banned_and_registered(scenario: Scenario) -> None:
    """Use a TPM that is banned and also registered for this Machine."""
    entry = Registration(cluster=HOME, provider_id=PROVIDER_ID, machine_name=None, node_name=None)
    scenario.put_key(key_name(scenario.ek), registered_for=(entry,), banned=True)


def released(provider_id: str | None = None) -> Mutation:
    """Use a TPM that an operator has released, because its hardware has a new owner."""

    def mutate(scenario: Scenario) -> None:
        key, _ = scenario.put_claim()
        release = Release(cluster=HOME, provider_id=provider_id)
        scenario.store.put_key(replace(key, released_from=(release,)))

    return mutate


def other_holder(scenario: Scenario, *, deleting: bool = False) -> None:
    """Add the Machine of the claim that another node has for the same TPM."""
    other = machine(name="machine-2", uid="machine-uid-2", provider_id=OTHER_ID, deleting=deleting)
    scenario.store.machines[HOME].append(other)


def held(basis: TrustBasis, *, deleting: bool = False) -> Mutation:
    """Use a TPM that another node of this cluster holds."""

    def mutate(scenario: Scenario) -> None:
        scenario.put_claim(node_name=OTHER_NODE, provider_id=OTHER_ID, basis=basis)
        other_holder(scenario, deleting=deleting)

    return mutate


def name_of_the_deleting(scenario: Scenario) -> None:
    """Request the name of a node whose Machine is being deleted."""
    scenario.put_claim(STRANGER, provider_id=OTHER_ID)
    other_holder(scenario, deleting=True)


MISMATCHES = [
    Attack("E2", "a stranger's TPM", EndorsementKeyMismatch, stranger),
    Attack("E2", "another key of the same TPM", EndorsementKeyMismatch, stranger_of_rsa),
    Attack("E2", "another key on record", EndorsementKeyMismatch, records(record_of(STRANGER))),
    Attack(
        "E2",
        "a stranger's key registered",
        EndorsementKeyMismatch,
        registered(STRANGER, provider_id=PROVIDER_ID),
    ),
    Attack(
        "E2",
        "a record of one bit more",
        EndorsementKeyMismatch,
        records(RegisteredKey(source="", spki_sha256=bytes(32))),
    ),
    Attack(
        "E2",
        "an empty record",
        EndorsementKeyMismatch,
        records(RegisteredKey(source="", spki_sha256=b"")),
    ),
    Attack(
        "E2",
        "a first use against a record",
        EndorsementKeyMismatch,
        records(record_of(STRANGER)),
        first_use,
    ),
    Attack(
        "E2",
        "a first use against a registration",
        EndorsementKeyMismatch,
        registered(STRANGER, node_name=NODE),
        first_use,
    ),
    Attack(
        "E2",
        "a claim against a record that came later",
        EndorsementKeyMismatch,
        records(record_of(STRANGER)),
        first_use_renewed,
    ),
]
NO_RECORD = [
    Attack("E2", "no record", EndorsementKeyNotRegistered, records()),
    Attack("E2", "a record in one's own annotation", EndorsementKeyNotRegistered, own_annotation),
    Attack("E2", "registered for nothing", EndorsementKeyNotRegistered, registered()),
    Attack(
        "E2",
        "registered for another provider ID",
        EndorsementKeyNotRegistered,
        registered(provider_id=OTHER_ID),
    ),
    Attack(
        "E2",
        "registered for another Machine",
        EndorsementKeyNotRegistered,
        registered(machine_name="machine-2"),
    ),
    Attack(
        "E2",
        "registered for another node",
        EndorsementKeyNotRegistered,
        registered(node_name=OTHER_NODE),
    ),
    Attack(
        "E2",
        "registered for this Machine and another node",
        EndorsementKeyNotRegistered,
        registered(provider_id=PROVIDER_ID, node_name=OTHER_NODE),
    ),
    Attack(
        "E2",
        "registered for this node of another Machine",
        EndorsementKeyNotRegistered,
        registered(machine_name="machine-2", node_name=NODE),
    ),
    Attack(
        "E2",
        "registered for an equal name in another cluster",
        EndorsementKeyNotRegistered,
        registered(
            cluster=ABROAD, provider_id=PROVIDER_ID, machine_name="machine-1", node_name=NODE
        ),
    ),
    Attack(
        "E2",
        "registered for an empty provider ID",
        EndorsementKeyNotRegistered,
        registered(provider_id=""),
    ),
]
PLATFORM = [
    Attack(
        "E2",
        "another TPM than the one of the platform",
        EndorsementKeyMismatch,
        stranger,
        platform_scenario,
    ),
    Attack(
        "E2",
        "a Machine with the provider ID of an instance without a TPM",
        EndorsementKeyNotRegistered,
        platform_gives(),
        platform_scenario,
    ),
    Attack(
        "E2",
        "a Machine with the provider ID of another tenant's instance",
        EndorsementKeyMismatch,
        platform_gives(STRANGER),
        platform_scenario,
    ),
    Attack(
        "E2",
        "a key that the platform gives, against a registered one",
        EndorsementKeyMismatch,
        records(record_of(STRANGER)),
        platform_scenario,
    ),
    Attack(
        "E2",
        "a key that the platform gives, and an unreadable record",
        EndorsementKeyRecordInvalid,
        unreadable(),
        platform_scenario,
    ),
    *(
        Attack("E2", name, error, platform_fails(error), platform_scenario)
        for name, error in {
            "a provider ID that the policy does not allow": PlatformLocationNotAllowed,
            "a platform that refuses the query": PlatformQueryFailed,
            "a platform that does not answer": PlatformUnavailable,
            "a platform that has not answered yet": PlatformAnswerPending,
        }.items()
    ),
]
UNREADABLE = [
    Attack("E2", "an unreadable record", EndorsementKeyRecordInvalid, unreadable()),
    Attack(
        "E2",
        "an unreadable record and one of another key",
        EndorsementKeyRecordInvalid,
        unreadable(record_of(STRANGER)),
    ),
    Attack(
        "E2",
        "a first use with an unreadable record",
        EndorsementKeyRecordInvalid,
        unreadable(),
        first_use,
    ),
]
FIRST_USES = [
    Attack("E2", "a first claim by a node", OperatorActionRequired, node_requester, first_use),
    Attack(
        "E2",
        "a first claim with another Machine's token",
        OperatorActionRequired,
        username("system:bootstrap:zzzzzz"),
        first_use,
    ),
    Attack(
        "E2",
        "a first claim with a token that only begins alike",
        OperatorActionRequired,
        username("system:bootstrap:abcdef0"),
        first_use,
    ),
    Attack(
        "E2", "a first claim without a token", OperatorActionRequired, username("alice"), first_use
    ),
    Attack(
        "E2",
        "a first claim with the entry credential",
        OperatorActionRequired,
        username(ENTRY_USER),
        first_use_by_any_token,
    ),
    Attack(
        "E2", "a first claim where the Node exists", OperatorActionRequired, has_node(), first_use
    ),
    Attack(
        "E2",
        "a first claim where a nodeRef exists",
        OperatorActionRequired,
        has_node_ref,
        first_use,
    ),
    Attack(
        "M4",
        "a first claim where a Node without provider ID exists",
        NodeOfAnotherMachine,
        has_node(provider_id=""),
        first_use,
    ),
    Attack("K2", "a second TPM after a first use", NodeNameInUse, came_first(), first_use),
    Attack(
        "K2",
        "a second TPM after a certified claim",
        NodeNameInUse,
        came_first(TrustBasis.CERTIFICATE),
        first_use,
    ),
    Attack(
        "E2",
        "a renewal for a recreated Machine",
        OperatorActionRequired,
        renews_a_recreated_machine,
        first_use_renewed,
    ),
    Attack(
        "E2",
        "a renewal from another machine",
        OperatorActionRequired,
        renews_with_another,
        first_use_renewed,
    ),
]
HELD = [
    Attack("E3", "a banned TPM", EndorsementKeyBanned, banned(held=False)),
    Attack("E3", "a banned TPM that has a claim", EndorsementKeyBanned, banned(held=True)),
    Attack("E3", "a banned TPM that is registered", EndorsementKeyBanned, banned_and_registered),
    Attack("E3", "a TPM released from the Cluster", EndorsementKeyReleased, released()),
    Attack("E3", "a TPM released from the Machine", EndorsementKeyReleased, released(PROVIDER_ID)),
    Attack("E3", "a TPM released at first use", EndorsementKeyReleased, released(), first_use),
    Attack("E3", "a banned TPM at first use", EndorsementKeyBanned, banned(held=False), first_use),
    Attack(
        "E3",
        "a TPM that another node holds",
        EndorsementKeyInUseLocally,
        held(TrustBasis.FIRST_USE),
        first_use,
    ),
    Attack(
        "E3",
        "a TPM that another node holds by record",
        EndorsementKeyInUseLocally,
        held(TrustBasis.RECORD),
        first_use,
    ),
    Attack(
        "E3",
        "a TPM whose holder is being deleted",
        EndorsementKeyHolderDeleting,
        held(TrustBasis.RECORD, deleting=True),
    ),
    Attack(
        "E3",
        "a TPM whose holder at first use is being deleted",
        EndorsementKeyHolderDeleting,
        held(TrustBasis.FIRST_USE, deleting=True),
        first_use,
    ),
    Attack(
        "K1", "a TPM on record for two nodes", EndorsementKeyRecordConflict, held(TrustBasis.RECORD)
    ),
    Attack("K2", "the name of an existing node", NodeNameInUse, came_first(TrustBasis.RECORD)),
    Attack(
        "K2", "the name of a node that is being deleted", NodeNameReserved, name_of_the_deleting
    ),
]
ATTACKS = MISMATCHES + NO_RECORD + PLATFORM + UNREADABLE + FIRST_USES + HELD


@pytest.mark.parametrize(
    "scenario",
    [Scenario, first_use, first_use_by_any_token, first_use_renewed, platform_scenario],
)
def test_the_good_case_passes(scenario: Callable[[], Scenario]) -> None:
    assert_issued(scenario)


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_attack_is_refused(attack: Attack) -> None:
    assert_refused(attack)


def test_registered_key_replaces_the_first_use_claim_of_another_tpm() -> None:
    """An operator registers the TPM of the Machine after another TPM made the first claim."""
    scenario = first_use()
    assert reconcile_once(scenario, Scenario(ek=STRANGER).answer_csr()).outcome == "issued"
    scenario.change_machine(registered_keys=(record_of(scenario.ek),))
    assert reconcile_once(scenario, scenario.answer_csr()).outcome == "issued"
    back = Scenario(ek=STRANGER)
    back.as_node()
    assert reconcile_once(scenario, back.answer_csr()).reason == "EndorsementKeyMismatch"
