"""The endorsement key (E1): a TCG template created it, and it is strong."""

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from common.tpm.endorsement_templates import TEMPLATES
from signer.verify.attestation.endorsement_key import verify_endorsement_key
from tests.builders.software_tpm import endorsement_key


@pytest.mark.parametrize("number", range(len(TEMPLATES)), ids=TEMPLATES)
def test_e1_every_template_is_accepted(number: int) -> None:
    """Low range RSA 2048 and P-256, high range also RSA 3072 and P-384."""
    key = endorsement_key(number)
    verified = verify_endorsement_key(key.tpm2b)
    assert verified.public == key.public
    assert verified.name == verified.spki_sha256.hex()
    assert load_pem_public_key(verified.pem.encode()) == key.private.public_key()
