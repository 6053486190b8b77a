"""The endorsement key (E1): a TCG template created it, and it is strong."""

from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from common.errors import AttestationError
from common.tpm.constants import (
    TPM_ALG_ECDH,
    TPM_ALG_SHA256,
    TPM_ALG_SHA384,
    ObjectAttributes,
)
from common.tpm.endorsement_templates import TEMPLATES as TEMPLATES_BY_NAME
from common.tpm.public import EccParameters, EccPoint, RsaParameters, Scheme
from signer.errors import EndorsementKeyMalformed, EndorsementKeyNotTemplate, EndorsementKeyWeak
from signer.verify.endorsement_key import verify_endorsement_key
from tests.builders.software_tpm import TpmKey, endorsement_key, with_key

TEMPLATES = tuple(TEMPLATES_BY_NAME.values())
ALL = range(len(TEMPLATES))
ECC, RSA = 1, 0
ECC_PARAMETERS, RSA_PARAMETERS = TEMPLATES[ECC].parameters, TEMPLATES[RSA].parameters
assert isinstance(ECC_PARAMETERS, EccParameters)
assert isinstance(RSA_PARAMETERS, RsaParameters)


@pytest.fixture(scope="module")
def keys() -> dict[int, TpmKey]:
    """Return one key of each template."""
    return {number: endorsement_key(number) for number in ALL}


@pytest.mark.parametrize("number", ALL)
def test_e1_every_template_is_accepted(keys: dict[int, TpmKey], number: int) -> None:
    """Low range RSA 2048 and P-256, high range also RSA 3072 and P-384."""
    key = keys[number]
    verified = verify_endorsement_key(key.tpm2b)
    assert verified.public == key.public
    assert verified.name == verified.spki_sha256.hex()
    assert load_pem_public_key(verified.pem.encode()) == key.private.public_key()


def test_e1_exponent_0_and_65537_are_one_key(keys: dict[int, TpmKey]) -> None:
    """They have two Names and one digest."""
    public = keys[RSA].public
    assert isinstance(public.parameters, RsaParameters)
    written_out = replace(public, parameters=replace(public.parameters, exponent=65537))
    one, other = (
        verify_endorsement_key(public.to_tpm2b()),
        verify_endorsement_key(written_out.to_tpm2b()),
    )
    assert one.spki_sha256 == other.spki_sha256
    assert one.public.name() != other.public.name()


@pytest.mark.parametrize("number", ALL)
@pytest.mark.parametrize("bit", list(ObjectAttributes))
def test_e1_key_with_another_attribute_is_denied(
    keys: dict[int, TpmKey], number: int, bit: ObjectAttributes
) -> None:
    """Each other attribute may allow other callers to use the key."""
    public = keys[number].public
    other = replace(public, attributes=public.attributes ^ bit)
    with pytest.raises(EndorsementKeyNotTemplate):
        verify_endorsement_key(other.to_tpm2b())


MUTATIONS: dict[str, tuple[int, dict[str, Any], type[AttestationError]]] = {
    "no policy": (ECC, {"auth_policy": b""}, EndorsementKeyNotTemplate),
    "another policy": (ECC, {"auth_policy": bytes(32)}, EndorsementKeyNotTemplate),
    "the high range's policy": (
        ECC,
        {"auth_policy": TEMPLATES[3].auth_policy},
        EndorsementKeyNotTemplate,
    ),
    "another name algorithm": (
        ECC,
        {"name_alg": TPM_ALG_SHA384, "auth_policy": bytes(48)},
        EndorsementKeyNotTemplate,
    ),
    "another curve": (
        ECC,
        {"parameters": replace(ECC_PARAMETERS, curve=4)},
        EndorsementKeyNotTemplate,
    ),
    "no symmetric algorithm": (
        ECC,
        {"parameters": replace(ECC_PARAMETERS, symmetric=None)},
        EndorsementKeyNotTemplate,
    ),
    "a scheme": (
        ECC,
        {
            "parameters": replace(
                ECC_PARAMETERS,
                scheme=Scheme(algorithm=TPM_ALG_ECDH, hash=TPM_ALG_SHA256),
            )
        },
        EndorsementKeyNotTemplate,
    ),
    "exponent 3": (
        RSA,
        {"parameters": replace(RSA_PARAMETERS, exponent=3)},
        EndorsementKeyNotTemplate,
    ),
    "RSA 1024": (
        RSA,
        {"parameters": replace(RSA_PARAMETERS, key_bits=1024)},
        EndorsementKeyNotTemplate,
    ),
    "not on the curve": (ECC, {"unique": EccPoint(x=b"\1", y=b"\1")}, EndorsementKeyWeak),
    "an empty point": (ECC, {"unique": EccPoint(x=b"", y=b"")}, EndorsementKeyWeak),
    "an empty modulus": (RSA, {"unique": b""}, EndorsementKeyWeak),
    "an even modulus": (RSA, {"unique": b"\xff" * 255 + b"\xfe"}, EndorsementKeyWeak),
    "a modulus divisible by 3": (RSA, {"unique": b"\xff" * 256}, EndorsementKeyWeak),
}


@pytest.mark.parametrize(("number", "changes", "error"), MUTATIONS.values(), ids=MUTATIONS)
def test_e1_other_keys_are_denied(
    keys: dict[int, TpmKey],
    number: int,
    changes: dict[str, Any],
    error: type[AttestationError],
) -> None:
    """Each is one change to a key that passes."""
    other = replace(keys[number].public, **changes)
    with pytest.raises(error):
        verify_endorsement_key(other.to_tpm2b())


def test_e1_a_trivial_key_is_denied() -> None:
    """Software that knows the private key can decrypt every challenge."""
    weak = with_key(TEMPLATES[ECC], ec.derive_private_key(1, ec.SECP256R1()))
    with pytest.raises(EndorsementKeyWeak):
        verify_endorsement_key(weak.tpm2b)


@pytest.mark.parametrize("data", [b"", b"\0\0", b"\0\x02\0\x01"])
def test_e1_malformed_public_area_is_denied(data: bytes) -> None:
    """The bytes are not a TPM2B_PUBLIC."""
    with pytest.raises(EndorsementKeyMalformed):
        verify_endorsement_key(data)


def test_e1_trailing_bytes_are_denied(keys: dict[int, TpmKey]) -> None:
    """Parsing covers every byte."""
    with pytest.raises(EndorsementKeyMalformed):
        verify_endorsement_key(keys[ECC].tpm2b + b"\0")
