"""The endorsement key (E1): a TCG template created it, and it is strong."""

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from common.tpm.endorsement_templates import TEMPLATES as TEMPLATES_BY_NAME
from common.tpm.public import RsaParameters
from signer.verify.attestation.endorsement_key import verify_endorsement_key
from tests.builders.software_tpm import TpmKey, endorsement_key

TEMPLATES = tuple(TEMPLATES_BY_NAME.values())
ALL = range(len(TEMPLATES))
RSA = 0


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
