"""The attestation key (A1) is a restricted signing key that cannot leave its TPM."""

from dataclasses import replace

import pytest

from common.tpm.constants import ObjectAttributes
from common.tpm.public import PublicArea
from signer.policy.policy import Policy
from signer.verify.attestation.attestation_key import verify_attestation_key
from tests.builders.software_tpm import AK_KINDS, attestation_key

SCHEMES = Policy(name="test").attestation_key.schemes


@pytest.fixture(scope="module")
def public() -> PublicArea:
    """Return the public area of a key that passes."""
    return attestation_key().public


@pytest.mark.parametrize("scheme", AK_KINDS)
def test_a1_schemes_of_the_policy_are_accepted(scheme: str) -> None:
    ak = attestation_key(AK_KINDS[scheme])
    assert verify_attestation_key(ak.tpm2b, frozenset({scheme})).name == ak.public.name()


def test_a1_key_may_have_noda(public: PublicArea) -> None:
    """The attribute noDA may be set or not. The Name differs."""
    with_noda = replace(public, attributes=public.attributes | ObjectAttributes.NODA)
    name = verify_attestation_key(with_noda.to_tpm2b(), SCHEMES).name
    assert name == with_noda.name() != public.name()
