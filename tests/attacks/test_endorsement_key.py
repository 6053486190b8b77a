"""Endorsement keys that decrypt for other callers, or that software holds.

A key of a TCG template opens a challenge only for an object in its own TPM. A general decryption
key opens it for any caller, and a key without fixedTPM opens it elsewhere. Then the attestation key
may be in software, and its quotes prove nothing. Here the attacker's key is registered for its own
Machine, for example through a provider's API that reports keys unchecked. Only E1 refuses it.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from common.requests.binding import sha256
from common.tpm.constants import (
    TPM_ALG_AES,
    TPM_ALG_CFB,
    TPM_ALG_ECDH,
    TPM_ALG_KDF1_SP800_108,
    TPM_ALG_OAEP,
    TPM_ALG_SHA1,
    TPM_ALG_SHA256,
    TPM_ALG_SHA384,
    ObjectAttributes,
)
from common.tpm.endorsement_templates import TEMPLATES
from common.tpm.public import EccParameters, PublicArea, RsaParameters, Scheme, Symmetric
from signer.errors import EndorsementKeyMalformed, EndorsementKeyNotTemplate, EndorsementKeyWeak
from signer.kinds.csr import Csr
from tests.attacks.keys import (
    ek_bytes,
    ek_fields,
    ek_public,
    flipped,
    malformed,
    point_of,
    replaced,
    weak,
    with_ek,
)
from tests.attacks.runner import Attack, Mutation, assert_issued, assert_refused
from tests.builders import odd_rsa
from tests.builders.odd_rsa import OddRsa
from tests.builders.scenario import Scenario
from tests.builders.software_tpm import TpmKey, endorsement_key, rsa_key, unique_field, with_key

L1, L2, H1, H2, H3, H6 = TEMPLATES.values()
assert isinstance(L1.parameters, RsaParameters)
assert isinstance(L2.parameters, EccParameters)
RSA, P256 = L1.parameters, L2.parameters
SHA256 = TPM_ALG_SHA256
CBC = 0x0042
KNOWN = {bit.bit_length() - 1: bit.name for bit in ObjectAttributes}
ORDER = ec.SECP256R1().group_order


def rsa_scenario() -> Scenario:
    """Join with an endorsement key of template L-1."""
    return Scenario(ek=endorsement_key(0))


def explicit_exponent() -> Scenario:
    """Join with exponent 65537 instead of 0: both encode the same key."""
    ek = endorsement_key(0)
    public = replace(ek.public, parameters=replace(RSA, exponent=65537))
    return Scenario(ek=TpmKey(private=ek.private, public=public))


def parameters(**changes: object) -> Mutation:
    """Change parameters of the public area."""

    def edit(area: PublicArea) -> PublicArea:
        return replace(area, parameters=replace(area.parameters, **changes))  # type: ignore[arg-type]

    return ek_public(edit)


def modulus(edit: Callable[[bytes], bytes]) -> Mutation:
    """Encode the modulus of a good RSA key differently."""

    def change(area: PublicArea) -> PublicArea:
        assert isinstance(area.unique, bytes)
        return replace(area, unique=edit(area.unique))

    return ek_public(change)


def symmetric(algorithm: int = TPM_ALG_AES, bits: int = 128, mode: int = TPM_ALG_CFB) -> Mutation:
    """Use another symmetric cipher."""
    return parameters(symmetric=Symmetric(algorithm=algorithm, key_bits=bits, mode=mode))


def odd(key: OddRsa, *, before: bytes = b"") -> Mutation:
    """Use an RSA key that no TPM generates, in the template and registered."""

    def mutate(scenario: Scenario) -> tuple[Csr, Csr]:
        area = replace(L1, unique=before + key.unique)
        if key.exponent != 65537:
            area = replace(area, parameters=replace(RSA, exponent=key.exponent))
        return with_ek(scenario, area.to_tpm2b(), sha256(key.spki()))

    return mutate


def trivial(scalar: int) -> Mutation:
    """Use an endorsement key with a known private key."""

    def mutate(scenario: Scenario) -> None:
        key, point = point_of(scalar, ec.SECP256R1())
        registered = Scenario(
            ek=TpmKey(private=key, public=replace(scenario.ek.public, unique=point))
        )
        scenario.ek = registered.ek
        scenario.change_machine(registered_keys=registered.machine.registered_keys)

    return mutate


def attestation_key(scenario: Scenario) -> tuple[Csr, Csr]:
    """Send the attestation key as endorsement key as well."""
    return with_ek(scenario, scenario.ak.tpm2b)


def of_template(template: PublicArea) -> Mutation:
    """Put the key into another template's public area."""

    def mutate(scenario: Scenario) -> tuple[Csr, Csr]:
        return with_ek(scenario, with_key(template, scenario.ek.private).tpm2b)

    return mutate


BITS = [
    Attack(
        f"attribute bit {bit}, {KNOWN.get(bit, 'reserved')}",
        EndorsementKeyNotTemplate if bit in KNOWN else EndorsementKeyMalformed,
        ek_bytes(flipped(bit)),
    )
    for bit in range(32)
]
NOT_TEMPLATE = [
    Attack(name, EndorsementKeyNotTemplate, mutate)
    for name, mutate in {
        "a storage key": ek_fields(attributes=ObjectAttributes(0x00030472)),
        "a key that decrypts for any caller": ek_fields(attributes=ObjectAttributes(0x00020072)),
        "the attestation key": attestation_key,
        "no policy": ek_fields(auth_policy=b""),
        "a policy of zeros": ek_fields(auth_policy=bytes(32)),
        "the high range's policy": ek_fields(auth_policy=H2.auth_policy),
        "the high range's attributes": ek_fields(attributes=H2.attributes),
        "one bit of the policy": ek_fields(auth_policy=b"\x82" + L2.auth_policy[1:]),
        "Name of SHA-1": of_template(replace(L2, name_alg=TPM_ALG_SHA1, auth_policy=bytes(20))),
        "Name of SHA-384": of_template(
            replace(L2, name_alg=TPM_ALG_SHA384, auth_policy=H3.auth_policy)
        ),
        "no symmetric algorithm": parameters(symmetric=None),
        "AES of 256 bits": symmetric(bits=256),
        "AES of 192 bits": symmetric(bits=192),
        "AES of 0 bits": symmetric(bits=0),
        "AES in CBC mode": symmetric(mode=CBC),
        "AES in no mode": symmetric(mode=0x10),
        "a scheme": parameters(scheme=Scheme(algorithm=TPM_ALG_ECDH, hash=SHA256)),
        "a key derivation function": parameters(
            kdf=Scheme(algorithm=TPM_ALG_KDF1_SP800_108, hash=SHA256)
        ),
        "P-384 in P-256's template": ek_fields(
            parameters=replace(P256, curve=4), unique=point_of(5, ec.SECP384R1())[1]
        ),
        "P-521": ek_fields(
            parameters=replace(P256, curve=5), unique=point_of(5, ec.SECP521R1())[1]
        ),
        "P-224": ek_fields(
            parameters=replace(P256, curve=2), unique=point_of(5, ec.SECP224R1())[1]
        ),
        "exponent 1": odd(odd_rsa.EXPONENT_1),
        "exponent 3": odd(odd_rsa.EXPONENT_3),
        "exponent 65539": odd(odd_rsa.EXPONENT_65539),
        "RSA of 1024 bits": ek_fields(
            parameters=replace(RSA, key_bits=1024), unique=odd_rsa.BITS_1024.unique
        ),
        "RSA of 4096 bits": ek_fields(parameters=replace(RSA, key_bits=4096), unique=b"\xff" * 512),
        "RSA 3072 in the low range": ek_fields(
            parameters=replace(RSA, key_bits=3072), unique=unique_field(rsa_key(3072))
        ),
        "OAEP as scheme": ek_fields(
            parameters=replace(RSA, scheme=Scheme(algorithm=TPM_ALG_OAEP, hash=SHA256)),
            unique=odd_rsa.EXPONENT_3.unique,
        ),
    }.items()
]
WEAK = [
    Attack(name, EndorsementKeyWeak, mutate)
    for name, mutate in {
        **weak(ek_public, ek_fields, odd),
        "private key 1": trivial(1),
        "private key n - 1": trivial(ORDER - 1),
    }.items()
] + [
    Attack(f"{name}, RSA", EndorsementKeyWeak, mutate, rsa_scenario)
    for name, mutate in {
        "a padded modulus": odd(odd_rsa.BITS_2040, before=b"\0"),
        "no modulus": ek_fields(unique=b""),
        "modulus 0": ek_fields(unique=bytes(256)),
        "one bit less": modulus(lambda m: bytes([m[0] & 0x7F]) + m[1:]),
        "a modulus with a zero before it": modulus(lambda m: b"\0" + m),
    }.items()
]
MALFORMED = [
    Attack(name, EndorsementKeyMalformed, mutate)
    for name, mutate in {
        **malformed(ek_bytes, ek_fields),
        "Camellia": ek_bytes(replaced("000600800043", "002600800043")),
        "SM4": ek_bytes(replaced("000600800043", "001300800043")),
        "XOR": ek_bytes(replaced("000600800043", "000a000b0043")),
        "an unknown scheme": ek_bytes(replaced("00430010", "0043001a")),
    }.items()
]
ATTACKS = BITS + NOT_TEMPLATE + WEAK + MALFORMED


@pytest.mark.parametrize("scenario", [Scenario, rsa_scenario, explicit_exponent])
def test_the_good_case_passes(scenario: Callable[[], Scenario]) -> None:
    assert_issued(scenario)


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_attack_is_refused(attack: Attack) -> None:
    assert_refused(attack)
