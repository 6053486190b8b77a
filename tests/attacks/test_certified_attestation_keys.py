"""A2, E2: certificates of attestation keys that do not hold, and quotes of another virtual machine.

Where the policy names authorities for attestation keys, a quote that names the Machine's virtual
machine counts like a registration. The attacker has a virtual machine of its own on the same
platform, with a certified key, or shows the certificate of another one beside a key of its own.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from common.evidence import Statement
from common.tpm.constants import TPM_ST_ATTEST_QUOTE, ObjectAttributes
from signer.errors import (
    AttestationCertificateMalformed,
    AttestationCertificateMismatch,
    AttestationCertificateNotAllowed,
    AttestationCertificateOutOfDate,
    AttestationCertificateUntrusted,
    AttestationKeyAttributesNotAllowed,
    EndorsementKeyBanned,
    EndorsementKeyMismatch,
    EndorsementKeyNotRegistered,
    EndorsementKeyRegistrationConflict,
    EndorsementKeyReleased,
    EndorsementKeyUnproved,
    QuoteOfOtherMachine,
)
from signer.kinds.cluster import ClusterKey
from signer.kinds.csr import Csr
from signer.kinds.endorsement_key import Release, TrustBasis
from signer.verify.requests.request import ENTRY_USER
from tests.attacks.certified_nodes import BELOW, configured
from tests.attacks.runner import Attack, Mutation, Table, assert_issued, assert_refused, attacks
from tests.attacks.scenarios import OTHER_ID, OTHER_NODE
from tests.builders.certificates import (
    EK_PURPOSE,
    NOW,
    VERSION,
    authority,
    rewritten,
    signed_by_hand,
)
from tests.builders.endorsement_keys import BAN
from tests.builders.scenario import (
    ABROAD,
    HOME,
    PROVIDER_ID,
    Scenario,
    key_name,
    machine,
    record_of,
)
from tests.builders.software_tpm import (
    AK_ATTRIBUTES,
    AK_KINDS,
    TpmKey,
    attestation_key,
    endorsement_key,
    pcr_values,
)
from tests.builders.virtual_machines import (
    SEPARATOR,
    VM_ID,
    X64,
    ak_certificate,
    ak_extensions,
    creation_of,
    pcr_6,
    policy,
    uuid_event,
)
from tests.fakes.platforms import RULES

OTHER_VM = f"{VM_ID[:-1]}d"
STRANGER = ec.generate_private_key(ec.SECP256R1()).public_key()
DAY = timedelta(days=1)


def with_ak_policy(key: TpmKey) -> TpmKey:
    """Return the key of an older virtual machine, which has an authorization policy."""
    return TpmKey(private=key.private, public=replace(key.public, auth_policy=b"\x5a" * 32))


def virtual_machine(*, older: bool = False, events: tuple[bytes, ...] = ()) -> Scenario:
    """Join as a virtual machine of Azure: nothing is registered, the VM ID is known."""
    key = attestation_key(AK_KINDS["rsassa-2048-sha256"])
    key = replace(key, public=replace(key.public, attributes=AK_ATTRIBUTES | ObjectAttributes.NODA))
    if older:
        key = with_ak_policy(key)
    certificate = ak_certificate(BELOW, key.private.public_key())
    scenario = Scenario(ak=key, ak_certificate=certificate, anchors=configured())
    scenario.ek_creation = creation_of(scenario.ek, key)
    scenario.policy = policy()
    scenario.pcrs = pcr_values(scenario.policy.pcrs.selection)
    put_pcr_6(scenario, pcr_6(*events))
    scenario.change_machine(registered_keys=(), vm_id=VM_ID)
    return scenario


def older_virtual_machine() -> Scenario:
    """Join with a key that has an authorization policy."""
    return virtual_machine(older=True)


def known_to_platform() -> Scenario:
    """Join as a virtual machine whose ID only the API of Azure gives."""
    scenario = virtual_machine()
    endorsement_key = replace(scenario.policy.endorsement_key, platform=RULES)
    scenario.policy = replace(scenario.policy, endorsement_key=endorsement_key)
    scenario.change_machine(vm_id=None)
    scenario.platforms.vm_ids[PROVIDER_ID] = VM_ID
    return scenario


def put_pcr_6(scenario: Scenario, value: bytes) -> None:
    """Let the TPM quote this value."""
    scenario.pcrs = {"sha256": {**scenario.pcrs["sha256"], 6: value}}


def booted(*events: bytes) -> Mutation:
    """Quote PCR 6 after these events."""

    def mutate(scenario: Scenario) -> Csr:
        put_pcr_6(scenario, pcr_6(*events))
        return scenario.answer_csr()

    return mutate


def zero(scenario: Scenario) -> Csr:
    """Quote a PCR 6 into which nothing was measured."""
    put_pcr_6(scenario, bytes(32))
    return scenario.answer_csr()


def shows(make: Callable[[Scenario], bytes | None]) -> Mutation:
    """Show another certificate."""

    def mutate(scenario: Scenario) -> None:
        scenario.ak_certificate = make(scenario)

    return mutate


def of_version_1(scenario: Scenario) -> bytes:
    """Omit the version, which makes extensions meaningless."""
    good = ak_certificate(BELOW, scenario.ak.private.public_key())
    return rewritten(good, BELOW, VERSION, lambda _: b"")


def signed_with_sha1(scenario: Scenario) -> None:
    """Show a certificate that the authority signed with SHA-1, of which collisions are known."""
    key, good = BELOW.key, ak_certificate(BELOW, scenario.ak.private.public_key())
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    sha1 = ec.ECDSA(hashes.SHA1())  # noqa: S303 - refused, which is the point
    scenario.ak_certificate = signed_by_hand(good, "ecdsa-sha1", lambda tbs: key.sign(tbs, sha1))


def certified(**changes: object) -> Mutation:
    """Show a certificate of the authority for the key, with changes."""
    return shows(
        lambda it: ak_certificate(BELOW, it.ak.private.public_key(), **changes)  # type: ignore[arg-type]
    )


def stating(make: Callable[[Scenario], Statement | None]) -> Mutation:
    """Send another statement about the creation of the endorsement key."""

    def mutate(scenario: Scenario) -> None:
        scenario.ek_creation = make(scenario)

    return mutate


def without_authorities(scenario: Scenario) -> None:
    """Let the policy name no authority for attestation keys."""
    rules = replace(scenario.policy.attestation_key, certificate_authorities=())
    scenario.policy = replace(scenario.policy, attestation_key=rules)


def without_vm_id(scenario: Scenario) -> None:
    """Leave the virtual machine of the Machine unknown."""
    scenario.change_machine(vm_id=None)


def registered_for_another_key(scenario: Scenario) -> None:
    """Let an operator register another key for the Machine."""
    scenario.change_machine(registered_keys=(record_of(endorsement_key()),))


def banned(scenario: Scenario) -> None:
    """Let an operator ban the key."""
    scenario.put_key(key_name(scenario.ek), banned=BAN)


def other_endorsement_key(scenario: Scenario) -> None:
    """Present another endorsement key of the same TPM, of which there is no end."""
    scenario.ek = endorsement_key()
    scenario.ek_creation = creation_of(scenario.ek, scenario.ak)


def by_another_key(banned: Mutation) -> Mutation:
    """Do something to the node's claim, and present another endorsement key of the same TPM."""

    def mutate(scenario: Scenario) -> None:
        scenario.put_claim(scenario.ak, basis=TrustBasis.CERTIFICATE_NAME)
        other_endorsement_key(scenario)
        banned(scenario)

    return mutate


def banned_claim(scenario: Scenario) -> None:
    """Let an operator ban the key that the node's claim names."""
    scenario.change_key(banned=BAN)


def released_claim(scenario: Scenario) -> None:
    """Let an operator release the key that the node's claim names."""
    scenario.change_key(released_from=(Release.of(HOME, provider_id=None),))


def held_by(key: Callable[[Scenario], TpmKey], cluster: ClusterKey = HOME) -> Mutation:
    """Let another node hold a key of the TPM; then present another endorsement key."""

    def mutate(scenario: Scenario) -> Csr:
        scenario.put_claim(
            key(scenario),
            basis=TrustBasis.CERTIFICATE_NAME,
            cluster=cluster,
            node_name=OTHER_NODE,
            provider_id=OTHER_ID,
        )
        other = machine(name="machine-2", uid="machine-uid-2", provider_id=OTHER_ID)
        scenario.store.machines.setdefault(cluster, []).append(other)
        if key(scenario) == scenario.ak:
            other_endorsement_key(scenario)
        return scenario.answer_csr()

    return mutate


ENDLESS_KEYS: Table = {
    EndorsementKeyBanned: {
        "another endorsement key of a banned TPM": by_another_key(banned_claim),
    },
    EndorsementKeyReleased: {
        "another endorsement key of a released TPM": by_another_key(released_claim),
    },
    EndorsementKeyRegistrationConflict: {
        "another endorsement key of a TPM that has a node": held_by(lambda it: it.ak),
        "a TPM that has a node by its endorsement key": held_by(lambda it: it.ek),
    },
}
ENDLESS_KEYS_ABROAD: Table = {
    EndorsementKeyRegistrationConflict: {
        "another endorsement key of a TPM that has a node in another Cluster": held_by(
            lambda it: it.ak, ABROAD
        ),
        "a TPM that has a node in another Cluster by its endorsement key": held_by(
            lambda it: it.ek, ABROAD
        ),
    },
}
CERTIFICATES: Table = {
    AttestationCertificateMismatch: {
        "the certificate of another key": shows(lambda _: ak_certificate(BELOW, STRANGER)),
    },
    AttestationCertificateUntrusted: {
        "a certificate of an authority that only has the name of a good one": shows(
            lambda it: ak_certificate(authority("Vendor TPM CA 01"), it.ak.private.public_key())
        ),
        "a certificate of an authority that the policy does not name": shows(
            lambda it: ak_certificate(authority("Another CA"), it.ak.private.public_key())
        ),
    },
    AttestationCertificateOutOfDate: {
        "a certificate that has ended": certified(ends=NOW - DAY),
        "a certificate that has not begun": certified(begins=NOW + DAY),
    },
    AttestationCertificateNotAllowed: {
        "a certificate of version 1": shows(of_version_1),
        "a certificate signed with SHA-1": signed_with_sha1,
        "a certificate without a purpose": certified(extensions=ak_extensions(purposes=())),
        "a certificate for endorsement keys": certified(
            extensions=ak_extensions(purposes=(EK_PURPOSE,))
        ),
        "a certificate whose key may not sign": certified(
            extensions=ak_extensions("key_encipherment")
        ),
        "the certificate of an authority": certified(extensions=ak_extensions(ca=True)),
        "a certificate whose key may sign certificates": certified(
            extensions=ak_extensions("digital_signature", "key_cert_sign")
        ),
    },
    AttestationCertificateMalformed: {
        "an index that was never written": shows(lambda _: b"\xff" * 64),
        "half a certificate": shows(lambda it: (it.ak_certificate or b"")[:300]),
    },
}
QUOTES: Table = {
    QuoteOfOtherMachine: {
        "the quote of another virtual machine": booted(uuid_event(OTHER_VM), SEPARATOR),
        "the quote of another virtual machine, of newer firmware": booted(
            uuid_event(OTHER_VM), X64, SEPARATOR
        ),
        "nothing measured": zero,
        "no separator": booted(uuid_event()),
        "a UUID in lower case": booted(f"UUID: {VM_ID}".encode(), SEPARATOR),
        "an unknown architecture": booted(
            uuid_event(), b'{"MachineArchitecture": "IA32"}', SEPARATOR
        ),
        "something measured before": booted(uuid_event(OTHER_VM), uuid_event(), SEPARATOR),
        "something measured after": booted(uuid_event(), SEPARATOR, uuid_event()),
    },
}
CREATIONS: Table = {
    EndorsementKeyUnproved: {
        name: stating(make)
        for name, make in {
            "an endorsement key in software": lambda _: None,
            "a statement about another endorsement key": lambda it: creation_of(
                endorsement_key(), it.ak
            ),
            "a statement of another attestation key": lambda it: creation_of(
                it.ek, attestation_key(AK_KINDS["ecdsa-p256-sha256"])
            ),
            "a statement of another type": lambda it: creation_of(
                it.ek, it.ak, kind=TPM_ST_ATTEST_QUOTE
            ),
            "a statement that no TPM made": lambda it: creation_of(it.ek, it.ak, magic=0),
            "a changed statement": lambda it: replace(
                creation_of(it.ek, it.ak), attest=creation_of(endorsement_key(), it.ak).attest
            ),
        }.items()
    },
}
WITHOUT_NAME: Table = {
    EndorsementKeyNotRegistered: {
        "no certificate of the attestation key": shows(lambda _: None),
        "no VM ID": without_vm_id,
        "a policy without authorities": without_authorities,
    },
    EndorsementKeyMismatch: {"a registration for another key": registered_for_another_key},
    EndorsementKeyBanned: {"a banned key": banned},
}
OLDER: Table = {
    AttestationKeyAttributesNotAllowed: {
        "an authorization policy without a certificate": shows(lambda _: None),
        "an authorization policy under a policy without authorities": without_authorities,
    },
    AttestationCertificateMismatch: {
        "an authorization policy with the certificate of another key": shows(
            lambda _: ak_certificate(BELOW, STRANGER)
        ),
    },
}


def gives(vm_ids: dict[str, str]) -> Mutation:
    """Let the platform know other virtual machines."""

    def mutate(scenario: Scenario) -> Csr:
        scenario.platforms.vm_ids = vm_ids
        return scenario.answer_csr()

    return mutate


def annotated_for_another_vm(scenario: Scenario) -> Csr:
    """Let an operator state another virtual machine than the platform."""
    scenario.change_machine(vm_id=OTHER_VM)
    return scenario.answer_csr()


PLATFORM: Table = {
    QuoteOfOtherMachine: {
        "a virtual machine of another ID than the platform's": gives({PROVIDER_ID: OTHER_VM}),
        "a virtual machine of another ID than the annotation's": annotated_for_another_vm,
    },
    EndorsementKeyNotRegistered: {
        "a virtual machine that the platform does not know": gives({}),
        "a virtual machine whose ID belongs to another instance": gives({f"{PROVIDER_ID}0": VM_ID}),
        "a platform's ID under a policy without authorities": without_authorities,
    },
    AttestationCertificateMismatch: {
        "a platform's ID with the certificate of another key": shows(
            lambda _: ak_certificate(BELOW, STRANGER)
        ),
    },
}


def older_and_registered() -> Scenario:
    """Join with a registered endorsement key, and an attestation key with a policy."""
    scenario = older_virtual_machine()
    scenario.change_machine(registered_keys=(record_of(scenario.ek),), vm_id=None)
    return scenario


ATTACKS: list[Attack] = [
    *attacks(
        *(CERTIFICATES, CREATIONS, QUOTES, WITHOUT_NAME, ENDLESS_KEYS, ENDLESS_KEYS_ABROAD),
        scenario=virtual_machine,
    ),
    *attacks(OLDER, scenario=older_and_registered),
    *attacks(PLATFORM, scenario=known_to_platform),
]


def newer_firmware() -> Scenario:
    """Join with newer firmware, which measures the architecture."""
    return virtual_machine(events=(uuid_event(), X64, SEPARATOR))


def on_arm() -> Scenario:
    """Join with newer firmware on another architecture."""
    arm = b'{"MachineArchitecture": "AARCH64"}'
    return virtual_machine(events=(uuid_event(), arm, SEPARATOR))


def by_entry_credential() -> Scenario:
    """Join with the entry credential, which is no bootstrap credential for a first claim."""
    scenario = virtual_machine()
    scenario.username = ENTRY_USER
    return scenario


def registered_with_ended_certificate() -> Scenario:
    """Join with a registered key: then the certificate does not count."""
    scenario = virtual_machine()
    certified(ends=NOW - DAY)(scenario)
    scenario.change_machine(registered_keys=(record_of(scenario.ek),))
    return scenario


def enforcing() -> Scenario:
    """Join where the policy allows one value of PCR 7; PCR 6 differs for each machine."""
    scenario = virtual_machine()
    value = scenario.pcrs["sha256"][7]
    allowed = {"sha256": {"7": [value.hex()]}}
    scenario.policy = policy(selection={"sha256": [7]}, mode="Enforce", allowed=allowed)
    scenario.pcrs = {"sha256": {6: pcr_6(), 7: value}}
    return scenario


def with_another_endorsement_key() -> Scenario:
    """Renew with another endorsement key of the TPM: no other key than the trusted one counts."""
    scenario = virtual_machine()
    scenario.put_claim(scenario.ak, basis=TrustBasis.CERTIFICATE_NAME)
    other_endorsement_key(scenario)
    return scenario


def no_longer_registered() -> Scenario:
    """Renew without the registration of the endorsement key by which the node has joined."""
    scenario = virtual_machine()
    scenario.put_claim()
    return scenario


@pytest.mark.parametrize(
    "scenario",
    [
        virtual_machine,
        with_another_endorsement_key,
        no_longer_registered,
        known_to_platform,
        older_virtual_machine,
        older_and_registered,
        newer_firmware,
        on_arm,
        by_entry_credential,
        registered_with_ended_certificate,
        enforcing,
    ],
)
def test_the_good_case_passes(scenario: Callable[[], Scenario]) -> None:
    assert_issued(scenario)


def test_the_claim_says_what_it_is_based_on() -> None:
    scenario, registered = virtual_machine(), registered_with_ended_certificate()
    for each, basis, key in (
        (scenario, TrustBasis.CERTIFICATE_NAME, scenario.ak),
        (registered, TrustBasis.REGISTERED, registered.ek),
    ):
        verified = each.verify_answer()
        assert (verified.holder.basis, verified.ground.key.name) == (basis, key_name(key))


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_attack_is_refused(attack: Attack) -> None:
    assert_refused(attack)
