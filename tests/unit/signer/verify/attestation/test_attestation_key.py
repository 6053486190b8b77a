"""The attestation key (A1) is a restricted signing key that cannot leave its TPM."""

from dataclasses import replace

from common.tpm.constants import ObjectAttributes
from signer.policy.policy import Policy
from signer.verify.attestation.attestation_key import verify_attestation_key
from tests.builders.software_tpm import attestation_key


def test_a1_key_may_have_noda() -> None:
    """The attribute noDA may be set or not. The Name differs."""
    public = attestation_key().public
    with_noda = replace(public, attributes=public.attributes | ObjectAttributes.NODA)
    schemes = Policy(name="test").attestation_key.schemes
    name = verify_attestation_key(with_noda.to_tpm2b(), schemes).tpm_name
    assert name == with_noda.name() != public.name()
