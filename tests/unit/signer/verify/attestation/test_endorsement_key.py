"""The endorsement key (E1): a TCG template created it, and it is strong."""

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from common.tpm.constants import ObjectAttributes
from common.tpm.endorsement_templates import TEMPLATES as TEMPLATES_BY_NAME
from common.tpm.public import EccParameters, RsaParameters
from signer.errors import EndorsementKeyNotTemplate, EndorsementKeyWeak
from signer.verify.attestation.endorsement_key import verify_endorsement_key
from tests.builders.software_tpm import TpmKey, endorsement_key

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


def test_e1_refused_key_is_refused_each_time(keys: dict[int, TpmKey]) -> None:
    """Accepted keys are cached, refused ones are not."""
    accepted = keys[RSA]
    assert isinstance(accepted.public.unique, bytes)
    weak = replace(accepted.public, unique=b"\xff" * len(accepted.public.unique)).to_tpm2b()
    for _ in range(2):
        assert verify_endorsement_key(accepted.tpm2b).public == accepted.public
        with pytest.raises(EndorsementKeyWeak):
            verify_endorsement_key(weak)


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
