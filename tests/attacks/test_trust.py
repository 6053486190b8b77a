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
    EndorsementKeyRegistrationConflict,
    EndorsementKeyRegistrationInvalid,
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
from signer.kinds.csr import Csr
from signer.kinds.endorsement_key import Registration, Release, TrustBasis
from signer.kinds.machine import RegisteredKey
from signer.kinds.node import Node
from signer.policy.policy import TrustMode
from signer.verify.requests.request import ENTRY_USER
from tests.attacks.runner import (
    Attack,
    Mutation,
    Table,
    assert_issued,
    assert_refused,
    attacks,
    reconcile_once,
)
from tests.attacks.scenarios import OTHER_ID, OTHER_NODE, first_use, platform_scenario
from tests.builders.endorsement_keys import BAN, registration
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
from tests.fakes.inventory import AllRegistrations

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


def any_index() -> Scenario:
    """Join where the index of the inventory returns all registrations."""
    scenario = Scenario()
    scenario.inventory = AllRegistrations(of=scenario.cluster, store=scenario.store)
    return scenario


def records(*keys: RegisteredKey) -> Mutation:
    """Set the records of Machine and infrastructure object."""
    return lambda scenario: scenario.change_machine(registered_keys=keys)


def registered(key: TpmKey | None = None, **entry: Any) -> Mutation:  # noqa: ANN401 - of Registration
    """Register a key for another object than this Machine."""

    def mutate(scenario: Scenario) -> None:
        scenario.change_machine(registered_keys=())
        entries = (registration(**{"cluster": HOME, **entry}),)
        scenario.put_key(key_name(key or scenario.ek), registered_for=entries)

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


def platform_gives_to_another(scenario: Scenario) -> None:
    """Let the platform give the key for an instance whose provider ID continues."""
    scenario.platforms.names = {f"{PROVIDER_ID}0": [key_name(scenario.ek)]}


def no_platform(scenario: Scenario) -> None:
    """Name no platform in the policy."""
    scenario.change_policy("endorsement_key", platform=None)


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
    """Use another TPM than the registered one."""
    scenario.ek = STRANGER


def stranger_of_rsa(scenario: Scenario) -> None:
    """Use another key of the same TPM than the registered one."""
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
            scenario.put_key(key_name(scenario.ek), banned=BAN)

    return mutate


def banned_and_registered(scenario: Scenario) -> None:
    """Use a TPM that is banned and also registered for this Machine."""
    entry = Registration.of(HOME, provider_id=PROVIDER_ID, machine_name=None, node_name=None)
    scenario.put_key(key_name(scenario.ek), registered_for=(entry,), banned=BAN)


def released(provider_id: str | None = None) -> Mutation:
    """Use a TPM that an operator has released, because its hardware has a new owner."""

    def mutate(scenario: Scenario) -> None:
        key, _ = scenario.put_claim()
        release = Release.of(HOME, provider_id=provider_id)
        scenario.store.put_key(key.replace(released_from=(release,)))

    return mutate


def other_key_of_banned_instance(scenario: Scenario) -> None:
    """Use the other one of the two keys that the platform gives for an instance."""
    scenario.platforms.names[PROVIDER_ID] = [key_name(STRANGER), key_name(scenario.ek)]
    scenario.put_claim(STRANGER, banned=True)


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
    *attacks(
        {
            EndorsementKeyMismatch: {
                "a stranger's TPM": stranger,
                "another key of the same TPM": stranger_of_rsa,
                "a stranger's key registered": registered(STRANGER, provider_id=PROVIDER_ID),
                "a record of one bit more": records(
                    RegisteredKey(source="", spki_sha256=bytes(32))
                ),
                "an empty record": records(RegisteredKey(source="", spki_sha256=b"")),
            },
        }
    ),
    Attack(
        "a first use against a record",
        EndorsementKeyMismatch,
        records(record_of(STRANGER)),
        first_use,
    ),
    Attack(
        "a first use against a registration",
        EndorsementKeyMismatch,
        registered(STRANGER, node_name=NODE),
        first_use,
    ),
    Attack(
        "a claim against a record that came later",
        EndorsementKeyMismatch,
        records(record_of(STRANGER)),
        first_use_renewed,
    ),
]
NO_RECORD: Table = {
    EndorsementKeyNotRegistered: {
        "no record": records(),
        "a record in one's own annotation": own_annotation,
        "registered for nothing": registered(),
        "registered for another provider ID": registered(provider_id=OTHER_ID),
        "registered for another Machine": registered(machine_name="machine-2"),
        "registered for another node": registered(node_name=OTHER_NODE),
        "registered for this Machine and another node": registered(
            provider_id=PROVIDER_ID, node_name=OTHER_NODE
        ),
        "registered for this node of another Machine": registered(
            machine_name="machine-2", node_name=NODE
        ),
        "registered for an equal name in another cluster": registered(
            cluster=ABROAD, provider_id=PROVIDER_ID, machine_name="machine-1", node_name=NODE
        ),
        "registered for an empty provider ID": registered(provider_id=""),
    },
}
PLATFORM = [
    *attacks(
        {
            EndorsementKeyMismatch: {
                "another TPM than the one of the platform": stranger,
                "a Machine with the provider ID of another tenant's instance": platform_gives(
                    STRANGER
                ),
                "a key that the platform gives, against a registered one": records(
                    record_of(STRANGER)
                ),
            },
            EndorsementKeyNotRegistered: {
                "a Machine with the provider ID of an instance without a TPM": platform_gives(),
                "a TPM of an instance whose provider ID continues": platform_gives_to_another,
                "a TPM that a platform knows, under a policy without platform": no_platform,
            },
            EndorsementKeyRegistrationInvalid: {
                "a key that the platform gives, and an unreadable record": unreadable()
            },
            EndorsementKeyBanned: {
                "the other key of an instance whose TPM is banned": other_key_of_banned_instance
            },
        },
        scenario=platform_scenario,
    ),
    *(
        Attack(name, error, platform_fails(error), platform_scenario)
        for name, error in {
            "a provider ID that the policy does not allow": PlatformLocationNotAllowed,
            "a platform that refuses the query": PlatformQueryFailed,
            "a platform that does not answer": PlatformUnavailable,
            "a platform that has not answered yet": PlatformAnswerPending,
        }.items()
    ),
]
FIRST_USES = [
    *attacks(
        {
            OperatorActionRequired: {
                "a first claim by a node": node_requester,
                "a first claim with another Machine's token": username("system:bootstrap:zzzzzz"),
                "a first claim with a token that only begins alike": username(
                    "system:bootstrap:abcdef0"
                ),
                "a first claim without a token": username("alice"),
                "a first claim where the Node exists": has_node(),
                "a first claim where a nodeRef exists": has_node_ref,
            },
            NodeOfAnotherMachine: {
                "a first claim where a Node without provider ID exists": has_node(provider_id="")
            },
            NodeNameInUse: {
                "a second TPM after a first use": came_first(),
                "a second TPM after a certified claim": came_first(TrustBasis.CERTIFICATE),
            },
        },
        scenario=first_use,
    ),
    Attack(
        "a first claim with the entry credential",
        OperatorActionRequired,
        username(ENTRY_USER),
        first_use_by_any_token,
    ),
    Attack(
        "a renewal for a recreated Machine",
        OperatorActionRequired,
        renews_a_recreated_machine,
        first_use_renewed,
    ),
    Attack(
        "a renewal from another machine",
        OperatorActionRequired,
        renews_with_another,
        first_use_renewed,
    ),
]
HELD = [
    *attacks(
        {
            EndorsementKeyBanned: {
                "a banned TPM": banned(held=False),
                "a banned TPM that has a claim": banned(held=True),
                "a banned TPM that is registered": banned_and_registered,
            },
            EndorsementKeyReleased: {
                "a TPM released from the Cluster": released(),
                "a TPM released from the Machine": released(PROVIDER_ID),
            },
            EndorsementKeyHolderDeleting: {
                "a TPM whose holder is being deleted": held(TrustBasis.REGISTERED, deleting=True)
            },
            EndorsementKeyRegistrationConflict: {
                "a registered TPM for two nodes": held(TrustBasis.REGISTERED)
            },
            NodeNameInUse: {"the name of an existing node": came_first(TrustBasis.REGISTERED)},
            NodeNameReserved: {"the name of a node that is being deleted": name_of_the_deleting},
        }
    ),
    *attacks(
        {
            EndorsementKeyReleased: {"a TPM released at first use": released()},
            EndorsementKeyBanned: {"a banned TPM at first use": banned(held=False)},
            EndorsementKeyInUseLocally: {
                "a TPM that another node holds": held(TrustBasis.FIRST_USE),
                "a TPM that another node holds by record": held(TrustBasis.REGISTERED),
            },
            EndorsementKeyHolderDeleting: {
                "a TPM whose holder at first use is being deleted": held(
                    TrustBasis.FIRST_USE, deleting=True
                )
            },
        },
        scenario=first_use,
    ),
]


def stolen_token(*, held_by: dict[str, Any], node_of: TpmKey | None = None) -> Mutation:
    """Use the TPM of a claim that is broken, with another Machine's token: it binds nothing."""

    def mutate(scenario: Scenario) -> None:
        holder = scenario.holder(basis=TrustBasis.FIRST_USE)
        other = scenario.holder(basis=TrustBasis.FIRST_USE, **held_by)
        scenario.put_key(key_name(scenario.ek), held_by=other)
        scenario.put_node(key_name(node_of or scenario.ek), holder)
        scenario.username = "system:bootstrap:zzzzzz"

    return mutate


def gone_machine(scenario: Scenario) -> None:
    """Use the TPM of a Machine that is gone, with a stolen token, under the old node name."""
    scenario.put_claim(basis=TrustBasis.FIRST_USE, provider_id="metal://gone")
    scenario.username = "system:bootstrap:zzzzzz"


HALVES: dict[str, dict[str, Any]] = {
    "the key in another cluster": {"cluster": ABROAD},
    "the key under another name": {"node_name": OTHER_NODE},
    "the name of another key": {},
}
BROKEN_CLAIMS: Table = {
    OperatorActionRequired: {
        "a first claim with the TPM of a Machine that is gone": gone_machine,
        **{
            f"a first claim with a TPM that moved to {other}": stolen_token(
                held_by={"provider_id": other}
            )
            for other in ("metal://a", "metal://z")
        },
        **{
            f"a first claim with half a claim: {what}": stolen_token(held_by=by, node_of=STRANGER)
            for what, by in HALVES.items()
        },
    }
}


def under(trust: TrustMode) -> Callable[[], Scenario]:
    """Join with a registered key under this policy."""

    def make() -> Scenario:
        scenario = Scenario()
        rules = replace(scenario.policy.endorsement_key, trust=trust)
        scenario.policy = replace(scenario.policy, endorsement_key=rules)
        return scenario

    return make


def named(name: str, **entry: Any) -> Mutation:  # noqa: ANN401 - of Registration
    """Request the name of a node whose key an operator has registered before either joined."""

    def mutate(scenario: Scenario) -> None:
        fields = {"cluster": HOME, "node_name": NODE}
        scenario.put_key(name, registered_for=(registration(**{**fields, **entry}),))

    return mutate


OTHER_MACHINE = {"machine_name": "machine-2"}
ANY_TRUST = [
    attack
    for trust in TrustMode
    for attack in attacks(
        {
            EndorsementKeyMismatch: {
                f"{trust.value}: another registered key": records(record_of(STRANGER)),
                **{
                    f"{trust.value}: a name registered {what}": named(key_name(STRANGER), **entry)
                    for what, entry in {
                        "for another Machine": OTHER_MACHINE,
                        "for another provider ID": {"provider_id": "metal://rack-9"},
                        "alone": {},
                    }.items()
                },
                f"{trust.value}: a name of the first key": named("0" * 64, **OTHER_MACHINE),
                f"{trust.value}: a name of the last key": named("f" * 64, **OTHER_MACHINE),
            },
            EndorsementKeyRegistrationInvalid: {
                f"{trust.value}: an unreadable record": unreadable(),
                f"{trust.value}: an unreadable record and another": unreadable(record_of(STRANGER)),
            },
        },
        scenario=under(trust),
    )
]
ATTACKS = [
    *attacks(NO_RECORD, scenario=any_index),
    *attacks(BROKEN_CLAIMS, scenario=first_use),
    *(*MISMATCHES, *PLATFORM, *ANY_TRUST, *FIRST_USES, *HELD),
]


@pytest.mark.parametrize(
    "scenario",
    [Scenario, any_index, first_use, first_use_by_any_token, first_use_renewed, platform_scenario],
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
