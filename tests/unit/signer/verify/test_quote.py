"""Quotes (C1, Q1, Q2): fresh, signed by the attestation key, and bound to the exchange."""

from dataclasses import replace
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from common.binding import challenge_key_id, sha256
from common.tpm.constants import (
    TPM_ALG_RSAPSS,
    TPM_ALG_SHA256,
)
from common.tpm.signature import Signature
from signer.errors import (
    AnswerExpired,
    AnswerNotBound,
    ChallengeKeyUnknown,
    PcrDigestMismatch,
)
from signer.model import ChallengeKeys
from tests.builders.scenario import Scenario
from tests.builders.software_tpm import AK_KINDS, attestation_key, endorsement_key


@pytest.mark.parametrize("scheme", AK_KINDS)
def test_answer_passes_with_every_type_of_attestation_key(scheme: str) -> None:
    """The key determines signature scheme and hash."""
    scenario = Scenario(ak=attestation_key(AK_KINDS[scheme]))
    scenario.policy = replace(scenario.policy, attestation_key_schemes=frozenset({scheme}))
    verified = scenario.judge_answer()
    assert (verified.holder.node_name, verified.holder.provider_id) == (
        scenario.node_name,
        scenario.provider_id,
    )
    assert verified.pcrs == scenario.pcrs
    assert (verified.boot.reset_count, verified.boot.restart_count) == (5, 6)


@pytest.mark.parametrize("number", range(6))
def test_answer_passes_with_every_endorsement_key_template(number: int) -> None:
    scenario = Scenario(ek=endorsement_key(number))
    scenario.judge_offer()
    assert (
        scenario.judge_answer().endorsement_key.name
        == scenario.machine.registered_keys[0].spki_sha256.hex()
    )


@pytest.mark.parametrize("seconds", [0, 899, 900, -60])
def test_c1_answer_in_time_passes(seconds: int) -> None:
    """Up to 15 minutes old, and up to a minute ahead for another replica's clock."""
    scenario = Scenario()
    csr = scenario.answer_csr()
    scenario.now += timedelta(seconds=seconds)
    scenario.judge_answer(csr)


@pytest.mark.parametrize("seconds", [901, -61, 86400])
def test_c1_expired_answer_is_denied(seconds: int) -> None:
    """Only the signer's clock counts."""
    scenario = Scenario()
    csr = scenario.answer_csr()
    scenario.now += timedelta(seconds=seconds)
    with pytest.raises(AnswerExpired):
        scenario.judge_answer(csr)


def test_c1_previous_challenge_key_is_accepted() -> None:
    """It counts until it is destroyed."""
    scenario = Scenario()
    csr = scenario.answer_csr()
    scenario.challenge_keys = ChallengeKeys(
        current=sha256(b"next"), previous=scenario.challenge_keys.current
    )
    scenario.judge_answer(csr)


@pytest.mark.parametrize("previous", [None, sha256(b"other")])
def test_c1_answer_under_an_unknown_challenge_key_is_ignored(previous: bytes | None) -> None:
    """It may belong to another signer."""
    scenario = Scenario()
    csr = scenario.answer_csr()
    scenario.challenge_keys = ChallengeKeys(current=sha256(b"next"), previous=previous)
    with pytest.raises(ChallengeKeyUnknown):
        scenario.judge_answer(csr)


def test_challenge_keys_are_not_in_their_repr() -> None:
    """So no log and no traceback contains them."""
    masters = Scenario().challenge_keys
    assert repr(masters) == "ChallengeKeys()"


@pytest.mark.parametrize("size", [32, 222])
def test_q1_both_pss_salt_lengths_of_tpms_are_accepted(size: int) -> None:
    """TPM 2.0 Part 1, annex B.7: as long as the digest, or as the key allows."""
    scenario = Scenario(ak=attestation_key(AK_KINDS["rsapss-2048-sha256"]))
    scenario.policy = replace(
        scenario.policy, attestation_key_schemes=frozenset({"rsapss-2048-sha256"})
    )
    key, answer = scenario.ak.private, scenario.answer()
    assert isinstance(key, rsa.RSAPrivateKey)
    pss = padding.PSS(padding.MGF1(hashes.SHA256()), size)
    signature = Signature(
        scheme=TPM_ALG_RSAPSS,
        hash=TPM_ALG_SHA256,
        value=key.sign(answer.quote, pss, hashes.SHA256()),
    )
    answer = replace(answer, signature=signature.encode())
    assert scenario.judge_answer(scenario.answer_csr(answer)).holder.node_name


def test_q2_answer_is_denied_in_another_cluster() -> None:
    """Even if Machine and Node have equal names there."""
    scenario = Scenario()
    csr = scenario.answer_csr()
    scenario.change_cluster(uid="00000000-8888-4777-8666-555555555555")
    with pytest.raises(AnswerNotBound):
        scenario.judge_answer(csr)


def test_q2_keys_swapped_in_the_answer_change_the_secret() -> None:
    """The keys of the offer are those of the answer (Keylime CVE-2021-3406)."""
    scenario = Scenario()
    answer = scenario.answer()
    swapped = replace(answer, ek_public=endorsement_key().tpm2b)
    with pytest.raises(AnswerNotBound):
        scenario.judge_answer(scenario.answer_csr(swapped))
    other = attestation_key()
    swapped = replace(answer, ak_public=other.tpm2b, signature=other.sign(answer.quote))
    with pytest.raises(AnswerNotBound):
        scenario.judge_answer(scenario.answer_csr(swapped))


def test_q2_another_request_changes_the_secret() -> None:
    """The quote is bound to the kubelet's key, so it does not fit another request."""
    scenario = Scenario()
    answer = scenario.answer()
    scenario.kubelet_key, scenario.request_der = ec.generate_private_key(ec.SECP256R1()), b""
    with pytest.raises(AnswerNotBound):
        scenario.judge_answer(scenario.answer_csr(answer))


def test_q2_secret_is_derived_from_the_named_challenge_key() -> None:
    """Other known challenge keys do not count."""
    scenario = Scenario()
    answer = scenario.answer()
    assert scenario.challenge_keys.previous is not None
    other = replace(answer.challenge, key=challenge_key_id(scenario.challenge_keys.previous))
    with pytest.raises(AnswerNotBound):
        scenario.judge_answer(scenario.answer_csr(replace(answer, challenge=other)))


def test_errors_contain_no_expected_value() -> None:
    """Keylime CVE-2023-38201."""
    scenario = Scenario()
    expected = scenario.extra_data("kubelet-tpm-b").hex()
    answer = scenario.answer(scenario.attest(extra_data=bytes(32)))
    with pytest.raises(AnswerNotBound) as bound:
        scenario.judge_answer(scenario.answer_csr(answer))
    wrong = scenario.answer(scenario.attest(pcr_digest=bytes(32)))
    with pytest.raises(PcrDigestMismatch) as digest:
        scenario.judge_answer(scenario.answer_csr(wrong))
    for error in (bound.value, digest.value):
        assert expected not in error.message + error.detail
        assert scenario.attest().pcr_digest.hex() not in error.message + error.detail
