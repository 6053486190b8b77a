"""E2: endorsement certificates that name another machine, or name one in another way.

Where the policy lists such names, a certificate that names the Machine counts like a registration.
The attacker has a genuine TPM with a genuine certificate: that of another machine, of a test TPM or
of another project, or one whose name has another form.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from common.errors import AttestationError
from signer.errors import (
    EndorsementCertificateMalformed,
    EndorsementCertificateNameNotAllowed,
    EndorsementCertificateOfOtherMachine,
    EndorsementCertificateUnnamed,
    EndorsementKeyBanned,
    EndorsementKeyMismatch,
    EndorsementKeyRegistrationConflict,
    OperatorActionRequired,
)
from signer.kinds.endorsement_key import TrustBasis
from signer.policy.policy import CertificateNameRules, UnnamedCertificates
from signer.verify.requests.request import ENTRY_USER
from tests.attacks.certified_nodes import BELOW, EK, certified
from tests.attacks.runner import Attack, Mutation, assert_issued, assert_refused
from tests.builders import machine_names
from tests.builders.der import INTEGER, SEQUENCE, UTF8_STRING, encode
from tests.builders.endorsement_keys import BAN
from tests.builders.machine_names import (
    GCE_ID,
    INSTANCE,
    OPENSTACK_ID,
    PROJECT,
    UUID,
    ZONE,
    gce_extension,
    gce_members,
    named_leaf,
)
from tests.builders.scenario import HOME, Scenario, key_name, machine, record_of
from tests.builders.software_tpm import endorsement_key

BOTH = CertificateNameRules(
    gce_projects=frozenset({PROJECT}), domain_uuid_schemes=frozenset({"openstack"})
)
STRANGER = endorsement_key()


def named(provider_id: str, certificate: bytes, rules: CertificateNameRules = BOTH) -> Scenario:
    """Return a Machine without a record, and a TPM with this certificate."""
    scenario = certified()
    scenario.change_policy("endorsement_key", certificate_names=rules)
    scenario.certificates = (certificate,)
    scenario.provider_id = provider_id
    scenario.change_machine(provider_id=provider_id)
    return scenario


def instance() -> Scenario:
    """Join as an instance of Google Compute Engine."""
    return named(GCE_ID, named_leaf(BELOW, EK, extension=gce_extension()))


def domain() -> Scenario:
    """Join as a domain of libvirt."""
    return named(OPENSTACK_ID, named_leaf(BELOW, EK, common_name=f"instance-2a:{UUID}"))


def instance_by_entry() -> Scenario:
    """Join with the entry credential, which is no bootstrap credential for a first claim."""
    scenario = instance()
    scenario.username = ENTRY_USER
    return scenario


def domain_by_entry() -> Scenario:
    """Join with the entry credential as a domain of libvirt."""
    scenario = domain()
    scenario.username = ENTRY_USER
    return scenario


def shows(extension: bytes) -> Mutation:
    """Show a certificate of Google with this extension."""

    def mutate(scenario: Scenario) -> None:
        scenario.certificates = (named_leaf(BELOW, EK, extension=extension),)

    return mutate


def is_called(common_name: str) -> Mutation:
    """Show a certificate of swtpm_localca with this common name."""

    def mutate(scenario: Scenario) -> None:
        scenario.certificates = (named_leaf(BELOW, EK, common_name=common_name),)

    return mutate


def changed(position: int, member: bytes) -> bytes:
    """Return Google's extension with another member."""
    members = gce_members()
    members[position] = member
    return gce_extension(members)


def attack(
    name: str,
    reason: type[AttestationError],
    mutate: Mutation,
    scenario: Callable[[], Scenario] = instance,
) -> Attack:
    """Return an attack."""
    return Attack(name, reason, mutate, scenario)


def text(value: str) -> bytes:
    """Return a UTF8String."""
    return encode(UTF8_STRING, value.encode())


def allows(**rules: frozenset[str]) -> Mutation:
    """Replace the lists of names in the policy."""

    def mutate(scenario: Scenario) -> None:
        unnamed = scenario.policy.endorsement_key.certificate_names.unnamed
        names = CertificateNameRules(unnamed=unnamed, **rules)
        scenario.change_policy("endorsement_key", certificate_names=names)

    return mutate


def accepts_unnamed(scenario: Scenario) -> None:
    """Let the policy accept certificates that name no machine."""
    names = scenario.policy.endorsement_key.certificate_names
    accepting = replace(names, unnamed=UnnamedCertificates.ACCEPT)
    scenario.change_policy("endorsement_key", certificate_names=accepting)


OTHER_MACHINES = [
    attack(f"another {what}", EndorsementCertificateOfOtherMachine, shows(extension))
    for what, extension in {
        "zone": gce_extension(gce_members(zone="europe-west3-c")),
        "project": gce_extension(gce_members(project="example.com:team-b")),
        "instance": gce_extension(gce_members(instance="worker-2")),
        "instance whose name continues": gce_extension(gce_members(instance=f"{INSTANCE}0")),
    }.items()
] + [
    attack(
        "another domain",
        EndorsementCertificateOfOtherMachine,
        is_called(f"instance-2a:{UUID[:-1]}e"),
        domain,
    ),
]
NOT_ALLOWED = [
    attack(
        "an instance of a project that the policy does not list",
        EndorsementCertificateNameNotAllowed,
        allows(gce_projects=frozenset({"example.com:team-b"})),
    ),
    attack(
        "a test TPM",
        EndorsementCertificateNameNotAllowed,
        shows(changed(5, machine_names.security_properties(production=b"\0"))),
    ),
    attack(
        "a TPM that does not say whether it is a test TPM",
        EndorsementCertificateNameNotAllowed,
        shows(gce_extension(gce_members()[:5])),
    ),
    attack(
        "a domain of a scheme that the policy does not list",
        EndorsementCertificateOfOtherMachine,
        allows(domain_uuid_schemes=frozenset({"kubevirt"})),
        domain,
    ),
]
MALFORMED = [
    attack(name, EndorsementCertificateMalformed, shows(extension))
    for name, extension in {
        "an empty name": encode(SEQUENCE, b""),
        "a number instead of the zone": changed(0, encode(INTEGER, b"\1")),
        "a slash in a part": changed(0, text(f"{ZONE}/x")),
        "an empty part": changed(4, text("")),
        "a second name behind it": gce_extension() + gce_extension(),
        "no ASCII": changed(4, encode(UTF8_STRING, b"worker-\xff")),
    }.items()
]
UNNAMED: dict[str, tuple[Mutation, Callable[[], Scenario]]] = {
    "no name": (is_called("a TPM of the same authority"), domain),
    "our provider ID in a certificate": (shows(text(GCE_ID)), instance),
    "a domain's UUID in capitals": (is_called(f"instance-2a:{UUID.upper()}"), domain),
    "a name in a form that the policy does not list": (
        allows(gce_projects=frozenset({PROJECT})),
        domain,
    ),
}


def accepting_unnamed(mutate: Mutation) -> Mutation:
    """Let the policy accept unnamed certificates, with a credential that makes no first claim."""

    def change(scenario: Scenario) -> None:
        accepts_unnamed(scenario)
        scenario.username = ENTRY_USER
        mutate(scenario)

    return change


def renewed(mutate: Mutation) -> Mutation:
    """Let the node have a claim from before the policy listed names."""

    def change(scenario: Scenario) -> None:
        scenario.put_claim(basis=TrustBasis.CERTIFICATE)
        scenario.as_node()
        mutate(scenario)

    return change


WITHOUT_NAME = [
    *(
        attack(name, EndorsementCertificateUnnamed, mutate, scenario)
        for name, (mutate, scenario) in UNNAMED.items()
    ),
    *(
        attack(f"{name}, at a renewal", EndorsementCertificateUnnamed, renewed(mutate), scenario)
        for name, (mutate, scenario) in UNNAMED.items()
    ),
    *(
        attack(
            f"{name}, with a credential that makes no first claim",
            OperatorActionRequired,
            accepting_unnamed(mutate),
            scenario,
        )
        for name, (mutate, scenario) in UNNAMED.items()
    ),
    attack(
        "names that the policy does not allow, with a credential that makes no first claim",
        OperatorActionRequired,
        allows(),
        domain_by_entry,
    ),
]


def registered_for_another_key(scenario: Scenario) -> None:
    """Let an operator register another key for the Machine."""
    scenario.change_machine(registered_keys=(record_of(STRANGER),))


def banned(scenario: Scenario) -> None:
    """Let an operator ban the key."""
    scenario.put_key(key_name(scenario.ek), banned=BAN)


def held(basis: TrustBasis) -> Mutation:
    """Let another node of the Cluster hold the key on this basis."""

    def mutate(scenario: Scenario) -> None:
        scenario.put_claim(node_name="node-2", provider_id="gce://p/z/i", basis=basis)
        other = machine(name="machine-2", uid="machine-uid-2", provider_id="gce://p/z/i")
        scenario.store.machines[HOME].append(other)

    return mutate


OUTRANKED = [
    attack("a name against a registration", EndorsementKeyMismatch, registered_for_another_key),
    Attack("a name whose key is banned", EndorsementKeyBanned, banned, instance),
    *(
        Attack(
            f"a name whose key has another node by {basis.value}",
            EndorsementKeyRegistrationConflict,
            held(basis),
            instance,
        )
        for basis in (TrustBasis.REGISTERED, TrustBasis.CERTIFICATE_NAME)
    ),
]
ATTACKS = [*OTHER_MACHINES, *NOT_ALLOWED, *MALFORMED, *WITHOUT_NAME, *OUTRANKED]


def outranking() -> Scenario:
    """Take the TPM from a node that claimed it by a certificate without a name."""
    scenario = instance()
    held(TrustBasis.CERTIFICATE)(scenario)
    return scenario


def unnamed() -> Scenario:
    """Show a certificate that names no machine, where the policy accepts it."""
    scenario = domain()
    is_called("a TPM of the same authority")(scenario)
    accepts_unnamed(scenario)
    return scenario


def unnamed_and_registered() -> Scenario:
    """Show a certificate that names no machine, for a registered key."""
    scenario = domain()
    is_called("a TPM of the same authority")(scenario)
    scenario.change_machine(registered_keys=(record_of(scenario.ek),))
    return scenario


def outranked() -> Scenario:
    """Show the certificate of another machine, with a registration for this one."""
    scenario = named(GCE_ID, named_leaf(BELOW, EK, common_name=f"other:{UUID}"))
    scenario.change_machine(registered_keys=(record_of(scenario.ek),))
    return scenario


@pytest.mark.parametrize(
    "scenario",
    [
        instance,
        domain,
        instance_by_entry,
        domain_by_entry,
        outranking,
        outranked,
        unnamed,
        unnamed_and_registered,
    ],
)
def test_the_good_case_passes(scenario: Callable[[], Scenario]) -> None:
    assert_issued(scenario)


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_attack_is_refused(attack: Attack) -> None:
    assert_refused(attack)
