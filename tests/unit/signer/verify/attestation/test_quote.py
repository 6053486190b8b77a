"""Quotes (C1, Q1, Q2): fresh, signed by the attestation key, and bound to the exchange."""

from dataclasses import replace
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from common.requests.binding import sha256
from common.tpm.constants import (
    TPM_ALG_RSAPSS,
    TPM_ALG_SHA256,
)
from common.tpm.signature import Signature
from signer.seams import ChallengeKeys
from tests.builders.scenario import Scenario
from tests.builders.software_tpm import AK_KINDS, attestation_key


@pytest.mark.parametrize("scheme", AK_KINDS)
def test_answer_passes_with_every_type_of_attestation_key(scheme: str) -> None:
    """The key determines signature scheme and hash."""
    scenario = Scenario(ak=attestation_key(AK_KINDS[scheme]))
    scenario.change_policy("attestation_key", schemes=frozenset({scheme}))
    verified = scenario.verify_answer()
    assert (verified.holder.node_name, verified.holder.provider_id) == (
        scenario.node_name,
        scenario.provider_id,
    )
    assert verified.pcrs == scenario.pcrs
    assert (verified.boot.reset_count, verified.boot.restart_count) == (5, 6)


@pytest.mark.parametrize("seconds", [0, 899, 900, -60])
def test_c1_answer_in_time_passes(seconds: int) -> None:
    """Up to 15 minutes old, and up to a minute ahead for another replica's clock."""
    scenario = Scenario()
    csr = scenario.answer_csr()
    scenario.now += timedelta(seconds=seconds)
    scenario.verify_answer(csr)


def test_c1_previous_challenge_key_is_accepted() -> None:
    """It counts until it is destroyed."""
    scenario = Scenario()
    csr = scenario.answer_csr()
    scenario.challenge_keys = ChallengeKeys(
        current=sha256(b"next"), previous=scenario.challenge_keys.current
    )
    scenario.verify_answer(csr)


@pytest.mark.parametrize("size", [32, 222])
def test_q1_both_pss_salt_lengths_of_tpms_are_accepted(size: int) -> None:
    """TPM 2.0 Part 1, annex B.7: as long as the digest, or as the key allows."""
    scenario = Scenario(ak=attestation_key(AK_KINDS["rsapss-2048-sha256"]))
    scenario.change_policy("attestation_key", schemes=frozenset({"rsapss-2048-sha256"}))
    key, answer = scenario.ak.private, scenario.answer()
    assert isinstance(key, rsa.RSAPrivateKey)
    pss = padding.PSS(padding.MGF1(hashes.SHA256()), size)
    signature = Signature(
        scheme=TPM_ALG_RSAPSS,
        hash=TPM_ALG_SHA256,
        value=key.sign(answer.quote, pss, hashes.SHA256()),
    )
    answer = replace(answer, signature=signature.encode())
    assert scenario.verify_answer(scenario.answer_csr(answer)).holder.node_name
