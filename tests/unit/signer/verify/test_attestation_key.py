"""The attestation key (A1) is a restricted signing key that cannot leave its TPM."""

from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from common.errors import AttestationError
from common.tpm.constants import (
    TPM_ALG_AES,
    TPM_ALG_CFB,
    TPM_ALG_ECDH,
    TPM_ALG_KDF1_SP800_108,
    TPM_ALG_OAEP,
    TPM_ALG_RSAPSS,
    TPM_ALG_SHA1,
    TPM_ALG_SHA256,
    TPM_ALG_SHA384,
    TPM_ALG_SHA512,
    ObjectAttributes,
)
from common.tpm.public import EccPoint, PublicArea, RsaParameters, Scheme, Symmetric
from signer.errors import (
    AttestationKeyAttributesNotAllowed,
    AttestationKeyMalformed,
    AttestationKeySchemeNotAllowed,
    AttestationKeyWeak,
)
from signer.policy import Policy
from signer.verify.attestation_key import verify_attestation_key
from tests.builders.software_tpm import (
    AK_KINDS,
    attestation_key,
    ecdsa_parameters,
    rsa_parameters,
    with_key,
)

POLICY = Policy(name="test")
AES = Symmetric(algorithm=TPM_ALG_AES, key_bits=128, mode=TPM_ALG_CFB)


@pytest.fixture(scope="module")
def public() -> PublicArea:
    """Return the public area of a key that passes."""
    return attestation_key().public


@pytest.mark.parametrize("scheme", AK_KINDS)
def test_a1_schemes_of_the_policy_are_accepted(scheme: str) -> None:
    """Each scheme passes if the policy lists it, and fails if it lists the others."""
    ak = attestation_key(AK_KINDS[scheme])
    policy = replace(POLICY, attestation_key_schemes=frozenset({scheme}))
    assert verify_attestation_key(ak.tpm2b, policy).name == ak.public.name()
    others = replace(POLICY, attestation_key_schemes=frozenset(AK_KINDS) - {scheme})
    with pytest.raises(AttestationKeySchemeNotAllowed):
        verify_attestation_key(ak.tpm2b, others)


def test_a1_key_may_have_noda(public: PublicArea) -> None:
    """The attribute noDA may be set or not. The Name differs."""
    with_noda = replace(public, attributes=public.attributes | ObjectAttributes.NODA)
    name = verify_attestation_key(with_noda.to_tpm2b(), POLICY).name
    assert name == with_noda.name() != public.name()


@pytest.mark.parametrize("bit", [b for b in ObjectAttributes if b is not ObjectAttributes.NODA])
def test_a1_key_with_another_attribute_is_denied(public: PublicArea, bit: ObjectAttributes) -> None:
    """Each other attribute changes what the key can do."""
    other = replace(public, attributes=public.attributes ^ bit)
    with pytest.raises(AttestationKeyAttributesNotAllowed):
        verify_attestation_key(other.to_tpm2b(), POLICY)


MUTATIONS: dict[str, tuple[dict[str, Any], type[AttestationError]]] = {
    "other name algorithm": ({"name_alg": TPM_ALG_SHA384}, AttestationKeyAttributesNotAllowed),
    "SHA-1 name": ({"name_alg": TPM_ALG_SHA1}, AttestationKeyAttributesNotAllowed),
    "policy": ({"auth_policy": bytes(32)}, AttestationKeyAttributesNotAllowed),
    "symmetric algorithm": (
        {"parameters": replace(ecdsa_parameters(), symmetric=AES)},
        AttestationKeyAttributesNotAllowed,
    ),
    "no scheme": (
        {"parameters": replace(ecdsa_parameters(), scheme=None)},
        AttestationKeySchemeNotAllowed,
    ),
    "SHA-1": (
        {"parameters": ecdsa_parameters(digest=TPM_ALG_SHA1)},
        AttestationKeySchemeNotAllowed,
    ),
    "SHA-384 on P-256": (
        {"parameters": ecdsa_parameters(digest=TPM_ALG_SHA384)},
        AttestationKeySchemeNotAllowed,
    ),
    "SHA-512": (
        {"parameters": ecdsa_parameters(digest=TPM_ALG_SHA512)},
        AttestationKeySchemeNotAllowed,
    ),
    "key agreement": (
        {
            "parameters": replace(
                ecdsa_parameters(), scheme=Scheme(algorithm=TPM_ALG_ECDH, hash=TPM_ALG_SHA256)
            )
        },
        AttestationKeySchemeNotAllowed,
    ),
    "key derivation": (
        {
            "parameters": replace(
                ecdsa_parameters(),
                kdf=Scheme(algorithm=TPM_ALG_KDF1_SP800_108, hash=TPM_ALG_SHA256),
            )
        },
        AttestationKeySchemeNotAllowed,
    ),
    "P-521": ({"parameters": ecdsa_parameters(curve=5)}, AttestationKeySchemeNotAllowed),
    "not on the curve": (
        {"unique": EccPoint(x=bytes(31) + b"\1", y=bytes(31) + b"\1")},
        AttestationKeyWeak,
    ),
    "point at infinity": ({"unique": EccPoint(x=b"", y=b"")}, AttestationKeyWeak),
}


@pytest.mark.parametrize(("changes", "error"), MUTATIONS.values(), ids=MUTATIONS)
def test_a1_other_keys_are_denied(
    public: PublicArea, changes: dict[str, Any], error: type[AttestationError]
) -> None:
    """Each is one change to a key that passes."""
    with pytest.raises(error):
        verify_attestation_key(replace(public, **changes).to_tpm2b(), POLICY)


RSA_MUTATIONS: dict[str, tuple[RsaParameters, bytes, type[AttestationError]]] = {
    "1024 bits": (rsa_parameters(1024), b"\xff" * 128, AttestationKeySchemeNotAllowed),
    "encryption": (
        rsa_parameters(algorithm=TPM_ALG_OAEP),
        b"\xff" * 256,
        AttestationKeySchemeNotAllowed,
    ),
    "PSS, not listed": (
        rsa_parameters(algorithm=TPM_ALG_RSAPSS),
        b"\xff" * 256,
        AttestationKeySchemeNotAllowed,
    ),
    "exponent 3": (replace(rsa_parameters(), exponent=3), b"\xff" * 256, AttestationKeyWeak),
    "exponent 1": (replace(rsa_parameters(), exponent=1), b"\xff" * 256, AttestationKeyWeak),
    "modulus is too short": (rsa_parameters(), b"\xff" * 255, AttestationKeyWeak),
    "modulus is even": (rsa_parameters(), b"\xff" * 255 + b"\xfe", AttestationKeyWeak),
    "modulus is divisible by 3": (rsa_parameters(), b"\xff" * 256, AttestationKeyWeak),
}


@pytest.mark.parametrize(
    ("parameters", "modulus", "error"), RSA_MUTATIONS.values(), ids=RSA_MUTATIONS
)
def test_a1_other_rsa_keys_are_denied(
    public: PublicArea, parameters: RsaParameters, modulus: bytes, error: type[AttestationError]
) -> None:
    """Size, scheme, exponent and modulus."""
    other = replace(public, parameters=parameters, unique=modulus)
    with pytest.raises(error):
        verify_attestation_key(other.to_tpm2b(), POLICY)


def test_a1_a_trivial_key_is_denied(public: PublicArea) -> None:
    """Anyone can sign with the private key 1."""
    weak = with_key(public, ec.derive_private_key(1, ec.SECP256R1()))
    with pytest.raises(AttestationKeyWeak):
        verify_attestation_key(weak.tpm2b, POLICY)


@pytest.mark.parametrize("data", [b"", b"\0\0", b"\0\x01\0"])
def test_a1_malformed_public_area_is_denied(data: bytes) -> None:
    """The bytes are not a TPM2B_PUBLIC."""
    with pytest.raises(AttestationKeyMalformed):
        verify_attestation_key(data, POLICY)


def test_a1_trailing_bytes_are_denied(public: PublicArea) -> None:
    """The Name would not cover them."""
    with pytest.raises(AttestationKeyMalformed):
        verify_attestation_key(public.to_tpm2b() + b"\0", POLICY)
