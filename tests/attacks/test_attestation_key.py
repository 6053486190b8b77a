"""Attestation keys in software, of another type, or with copies outside their TPM.

The public area of the key determines what a quote proves. A key that is not restricted signs a
forged TPMS_ATTEST. A key without fixedTPM or fixedParent has copies elsewhere. A decryption key, a
key with a policy and a key of another scheme are not the one that the node creates. The challenge
is wrapped for the Name of these bytes. Here the attacker has a challenge for its key, so only A1
refuses it.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from common.tpm.constants import (
    TPM_ALG_AES,
    TPM_ALG_CFB,
    TPM_ALG_ECDH,
    TPM_ALG_KDF1_SP800_108,
    TPM_ALG_OAEP,
    TPM_ALG_RSASSA,
    TPM_ALG_SHA1,
    TPM_ALG_SHA256,
    TPM_ALG_SHA384,
    TPM_ALG_SHA512,
    ObjectAttributes,
)
from common.tpm.public import PublicArea, RsaParameters, Scheme, Symmetric
from common.tpm.signature import Signature
from signer.errors import (
    AttestationKeyAttributesNotAllowed,
    AttestationKeyMalformed,
    AttestationKeySchemeNotAllowed,
    AttestationKeyWeak,
)
from signer.kinds.csr import Csr
from tests.attacks.keys import (
    ak_bytes,
    ak_fields,
    ak_public,
    flipped,
    malformed,
    on_point,
    point_of,
    replaced,
    trivial_ak,
    weak,
    with_ak,
)
from tests.attacks.runner import Attack, Mutation, assert_issued, assert_refused
from tests.attacks.scenarios import rsa_scenario
from tests.builders import odd_rsa
from tests.builders.odd_rsa import OddRsa
from tests.builders.scenario import Scenario
from tests.builders.software_tpm import (
    AK_ATTRIBUTES,
    AK_KINDS,
    TpmKey,
    attestation_key,
    ecdsa_parameters,
    rsa_parameters,
)

AES = Symmetric(algorithm=TPM_ALG_AES, key_bits=128, mode=TPM_ALG_CFB)
SHA256 = TPM_ALG_SHA256
ORDER = ec.SECP256R1().group_order
KNOWN = {bit.bit_length() - 1: bit.name for bit in ObjectAttributes}
NODA = ObjectAttributes.NODA.bit_length() - 1


def with_no_da() -> Scenario:
    """Join with a key that has noDA, which is allowed."""
    scenario = Scenario()
    public = replace(scenario.ak.public, attributes=AK_ATTRIBUTES | ObjectAttributes.NODA)
    scenario.ak = TpmKey(private=scenario.ak.private, public=public)
    return scenario


def attributes(*values: ObjectAttributes) -> Mutation:
    """Flip several attributes."""

    def edit(public: PublicArea) -> PublicArea:
        changed = public.attributes
        for value in values:
            changed ^= value
        return replace(public, attributes=changed)

    return ak_public(edit)


def odd(key: OddRsa, *, bits: int = 2048, before: bytes = b"") -> Mutation:
    """Use an RSA key that no TPM generates, with a padded modulus if given."""

    def mutate(scenario: Scenario) -> tuple[Csr, Csr]:
        exponent = 0 if key.exponent == 65537 else key.exponent
        parameters = replace(rsa_parameters(bits), exponent=exponent)
        area = replace(
            scenario.ak.public, parameters=parameters, unique=before + key.unique
        ).to_tpm2b()

        def sign(data: bytes) -> bytes:
            return Signature(scheme=TPM_ALG_RSASSA, hash=SHA256, value=key.sign(data)).encode()

        return with_ak(scenario, area, sign=sign)

    return mutate


def rsa(
    parameters: RsaParameters, edit: Callable[[bytes], bytes] = lambda modulus: modulus
) -> Mutation:
    """Use a good RSA key of these parameters, with another encoding of the modulus."""

    def mutate(scenario: Scenario) -> tuple[Csr, Csr]:
        usual = attestation_key(rsa_parameters(parameters.key_bits))
        modulus = usual.public.unique
        assert isinstance(modulus, bytes)
        area = replace(usual.public, parameters=parameters, unique=edit(modulus))
        return with_ak(scenario, area.to_tpm2b(), sign=usual.sign)

    return mutate


def unlisted(scheme: str) -> Mutation:
    """Use a key of a supported scheme, where the policy lists all others."""

    def mutate(scenario: Scenario) -> None:
        scenario.change_policy("attestation_key", schemes=frozenset(AK_KINDS) - {scheme})
        scenario.ak = attestation_key(AK_KINDS[scheme])

    return mutate


def endorsement_key(scenario: Scenario) -> tuple[Csr, Csr]:
    """Send the endorsement key as attestation key as well."""
    return with_ak(scenario, scenario.ek.tpm2b)


def on_other_curve(number: int, curve: ec.EllipticCurve) -> Mutation:
    """Use a valid key on another curve."""
    _, point = point_of(0x7654321, curve)
    return ak_fields(parameters=ecdsa_parameters(curve=number), unique=point)


BITS = [
    Attack(
        f"attribute bit {bit}, {KNOWN.get(bit, 'reserved')}",
        AttestationKeyAttributesNotAllowed if bit in KNOWN else AttestationKeyMalformed,
        ak_bytes(flipped(bit)),
    )
    for bit in range(32)
    if bit != NODA
]
NOT_ALLOWED = [
    Attack(name, AttestationKeyAttributesNotAllowed, mutate)
    for name, mutate in {
        "an unrestricted key that decrypts": attributes(
            ObjectAttributes.RESTRICTED, ObjectAttributes.DECRYPT
        ),
        "a key that may be duplicated": attributes(
            ObjectAttributes.FIXEDTPM, ObjectAttributes.FIXEDPARENT
        ),
        "an imported key": attributes(
            ObjectAttributes.FIXEDTPM,
            ObjectAttributes.FIXEDPARENT,
            ObjectAttributes.SENSITIVEDATAORIGIN,
        ),
        "no attribute at all": ak_fields(attributes=ObjectAttributes(0)),
        "every attribute": ak_fields(attributes=ObjectAttributes(sum(ObjectAttributes))),
        "a storage key": ak_fields(attributes=ObjectAttributes(0x00030472)),
        "the endorsement key": endorsement_key,
        "Name of SHA-1": ak_fields(name_alg=TPM_ALG_SHA1),
        "Name of SHA-384": ak_fields(name_alg=TPM_ALG_SHA384),
        "Name of SHA-512": ak_fields(name_alg=TPM_ALG_SHA512),
        "a policy": ak_fields(auth_policy=bytes(32)),
        "a symmetric algorithm": ak_fields(parameters=replace(ecdsa_parameters(), symmetric=AES)),
    }.items()
]
SCHEMES = [
    Attack(name, AttestationKeySchemeNotAllowed, mutate)
    for name, mutate in {
        "no scheme": ak_fields(parameters=replace(ecdsa_parameters(), scheme=None)),
        "ECDSA with SHA-1": ak_fields(parameters=ecdsa_parameters(digest=TPM_ALG_SHA1)),
        "ECDSA with SHA-384 on P-256": ak_fields(
            parameters=ecdsa_parameters(digest=TPM_ALG_SHA384)
        ),
        "ECDSA with SHA-512": ak_fields(parameters=ecdsa_parameters(digest=TPM_ALG_SHA512)),
        "ECDH": ak_fields(
            parameters=replace(
                ecdsa_parameters(), scheme=Scheme(algorithm=TPM_ALG_ECDH, hash=SHA256)
            )
        ),
        "a key derivation function": ak_fields(
            parameters=replace(
                ecdsa_parameters(), kdf=Scheme(algorithm=TPM_ALG_KDF1_SP800_108, hash=SHA256)
            )
        ),
        "P-224": on_other_curve(2, ec.SECP224R1()),
        "P-521": on_other_curve(5, ec.SECP521R1()),
        "a Barreto-Naehrig curve": ak_fields(parameters=ecdsa_parameters(curve=0x10)),
        "SM2's curve": ak_fields(parameters=ecdsa_parameters(curve=0x20)),
        "curve 0": ak_fields(parameters=ecdsa_parameters(curve=0)),
        "RSA 3072 with SHA-256": rsa(rsa_parameters(3072)),
        **{f"{scheme}, which the policy does not list": unlisted(scheme) for scheme in AK_KINDS},
        "RSA of 1024 bits": odd(odd_rsa.BITS_1024, bits=1024),
        "RSA of 2040 bits": odd(odd_rsa.BITS_2040, bits=2040),
        "RSASSA with SHA-1": rsa(rsa_parameters(digest=TPM_ALG_SHA1)),
        "RSASSA with SHA-384": rsa(rsa_parameters(digest=TPM_ALG_SHA384)),
        "OAEP": rsa(rsa_parameters(algorithm=TPM_ALG_OAEP)),
        "RSA without a scheme": rsa(replace(rsa_parameters(), scheme=None)),
    }.items()
]
WEAK = [
    Attack(name, AttestationKeyWeak, mutate)
    for name, mutate in {
        **weak(ak_public, ak_fields, odd),
        "private key 1": trivial_ak(1),
        "private key n - 1": trivial_ak(ORDER - 1),
        "exponent 1": odd(odd_rsa.EXPONENT_1),
        "exponent 3": odd(odd_rsa.EXPONENT_3),
        "exponent 65539": odd(odd_rsa.EXPONENT_65539),
        "a padded modulus": odd(odd_rsa.BITS_2040, before=b"\0"),
        "no modulus": rsa(rsa_parameters(), lambda _: b""),
        "modulus 0": rsa(rsa_parameters(), lambda m: bytes(len(m))),
        "a modulus with a zero before it": rsa(rsa_parameters(), lambda m: b"\0" + m),
    }.items()
]
MALFORMED = [
    Attack(name, AttestationKeyMalformed, mutate)
    for name, mutate in {
        **malformed(ak_bytes, ak_fields),
        "size alone": ak_bytes(lambda a: a[:2]),
        "two areas": ak_bytes(lambda a: a + a),
        "PEM": ak_bytes(lambda _: b"-----BEGIN PUBLIC KEY-----"),
        "a symmetric key": ak_bytes(lambda a: a[:2] + b"\0\x25" + a[4:]),
        "no algorithm for the Name": ak_bytes(lambda a: a[:4] + b"\0\x10" + a[6:]),
        "a policy of 64 bytes": ak_fields(auth_policy=bytes(64)),
        "ECDAA": ak_bytes(replaced("0018000b", "001a000b")),
        "ECSchnorr": ak_bytes(replaced("0018000b", "001c000b")),
        "SM2": ak_bytes(replaced("0018000b", "001b000b")),
        "ECDSA with SM3": ak_bytes(replaced("0018000b", "00180012")),
        "HMAC": ak_bytes(replaced("0018000b", "0005000b")),
        "coordinates of 67 bytes": ak_public(on_point(lambda p: replace(p, x=bytes(35) + p.x))),
    }.items()
]
ATTACKS = BITS + NOT_ALLOWED + SCHEMES + WEAK + MALFORMED


@pytest.mark.parametrize("scenario", [Scenario, rsa_scenario, with_no_da])
def test_the_good_case_passes(scenario: Callable[[], Scenario]) -> None:
    assert_issued(scenario)


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_attack_is_refused(attack: Attack) -> None:
    assert_refused(attack)
