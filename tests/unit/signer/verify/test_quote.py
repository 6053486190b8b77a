"""C1, Q1 and Q2: the answer is fresh, signed by the attestation key, and bound to everything."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from common.binding import challenge_key_id, sha256
from common.errors import AttestationError
from common.evidence import Answer
from common.tpm.attest import Attest
from common.tpm.constants import (
    TPM_ALG_ECDSA,
    TPM_ALG_RSAPSS,
    TPM_ALG_RSASSA,
    TPM_ALG_SHA256,
    TPM_ALG_SHA384,
)
from common.tpm.signature import EcdsaValue, Signature
from signer.errors import (
    AnswerExpired,
    AnswerNotBound,
    ChallengeKeyUnknown,
    PcrDigestMismatch,
    QuoteMalformed,
    QuoteSignatureInvalid,
    SignatureMalformed,
)
from signer.model import ChallengeKeys
from signer.verify.recognize import CsrKind
from tests.builders.scenario import Scenario
from tests.builders.software_tpm import AK_KINDS, attestation_key, endorsement_key


@pytest.mark.parametrize("scheme", AK_KINDS)
def test_an_answer_passes_with_every_kind_of_attestation_key(scheme: str) -> None:
    """Signature scheme and hash follow the key."""
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
def test_an_answer_passes_with_every_endorsement_key_template(number: int) -> None:
    """All six."""
    scenario = Scenario(ek=endorsement_key(number))
    scenario.judge_offer()
    assert (
        scenario.judge_answer().endorsement_key.name
        == scenario.machine.registered_keys[0].spki_sha256.hex()
    )


@pytest.mark.parametrize("seconds", [0, 899, 900, -60])
def test_c1_an_answer_in_time_passes(seconds: int) -> None:
    """Fifteen minutes; and a minute for another replica's clock."""
    scenario = Scenario()
    csr = scenario.answer_csr()
    scenario.now += timedelta(seconds=seconds)
    scenario.judge_answer(csr)


@pytest.mark.parametrize("seconds", [901, -61, 86400])
def test_c1_an_answer_out_of_time_is_denied(seconds: int) -> None:
    """By the signer's clock alone."""
    scenario = Scenario()
    csr = scenario.answer_csr()
    scenario.now += timedelta(seconds=seconds)
    with pytest.raises(AnswerExpired):
        scenario.judge_answer(csr)


def test_c1_the_previous_master_counts() -> None:
    """Until it is destroyed."""
    scenario = Scenario()
    csr = scenario.answer_csr()
    scenario.challenge_keys = ChallengeKeys(
        current=sha256(b"next"), previous=scenario.challenge_keys.current
    )
    scenario.judge_answer(csr)


@pytest.mark.parametrize("previous", [None, sha256(b"other")])
def test_c1_an_unknown_key_is_ignored(previous: bytes | None) -> None:
    """It may be another signer's."""
    scenario = Scenario()
    csr = scenario.answer_csr()
    scenario.challenge_keys = ChallengeKeys(current=sha256(b"next"), previous=previous)
    with pytest.raises(ChallengeKeyUnknown):
        scenario.judge_answer(csr)


def test_masters_are_never_shown() -> None:
    """Not in a log, not in a traceback."""
    masters = Scenario().challenge_keys
    assert repr(masters) == "ChallengeKeys()"


def signed_by_another(scenario: Scenario) -> Answer:
    """Sign with a key that is not the one sent."""
    answer = scenario.answer()
    return replace(answer, signature=attestation_key().sign(answer.quote))


def other_hash_named(scenario: Scenario) -> Answer:
    """Name SHA-384 in a signature under a SHA-256 key."""
    answer = scenario.answer()
    signature = Signature.parse(answer.signature)
    return replace(answer, signature=replace(signature, hash=TPM_ALG_SHA384).encode())


def rsa_signature(scenario: Scenario) -> Answer:
    """Give an RSA signature under an ECDSA key."""
    signature = Signature(scheme=TPM_ALG_RSASSA, hash=TPM_ALG_SHA256, value=bytes(256))
    return scenario.answer(signature=signature.encode())


def null_signature(scenario: Scenario) -> Answer:
    """Give r = s = 0 (CVE-2022-21449)."""
    value = EcdsaValue(r=bytes(32), s=bytes(32))
    signature = Signature(scheme=TPM_ALG_ECDSA, hash=TPM_ALG_SHA256, value=value)
    return scenario.answer(signature=signature.encode())


def one_bit_of_the_quote(scenario: Scenario) -> Answer:
    """Change the quote after it was signed."""
    answer = scenario.answer()
    quote = answer.quote[:-1] + bytes([answer.quote[-1] ^ 1])
    return replace(answer, quote=quote)


def statement(change: Callable[[bytes], bytes]) -> Callable[[Scenario], Answer]:
    """Sign other bytes than a quote."""
    return lambda scenario: scenario.answer(change(scenario.attest().encode()))


Q1_MUTATIONS: dict[str, tuple[Callable[[Scenario], Answer], type[AttestationError]]] = {
    "signed by another key": (signed_by_another, QuoteSignatureInvalid),
    "another hash named": (other_hash_named, SignatureMalformed),
    "another scheme": (rsa_signature, SignatureMalformed),
    "zero signature": (null_signature, QuoteSignatureInvalid),
    "one bit changed": (one_bit_of_the_quote, QuoteSignatureInvalid),
    "empty signature": (lambda s: s.answer(signature=b""), SignatureMalformed),
    "trailing byte in signature": (
        lambda s: s.answer(signature=s.answer().signature + b"\0"),
        SignatureMalformed,
    ),
    "not made by a TPM": (statement(lambda q: b"\0" + q[1:]), QuoteMalformed),
    "certify instead of quote": (
        statement(lambda q: q[:4] + b"\x80\x17" + q[6:]),
        QuoteMalformed,
    ),
    "creation instead of quote": (
        statement(lambda q: q[:4] + b"\x80\x1a" + q[6:]),
        QuoteMalformed,
    ),
    "trailing byte in quote": (statement(lambda q: q + b"\0"), QuoteMalformed),
    "quote cut short": (statement(lambda q: q[:-1]), QuoteMalformed),
    "empty quote": (statement(lambda _: b""), QuoteMalformed),
}


@pytest.mark.parametrize(("mutate", "error"), Q1_MUTATIONS.values(), ids=Q1_MUTATIONS)
def test_q1_other_statements_are_denied(
    mutate: Callable[[Scenario], Answer], error: type[AttestationError]
) -> None:
    """Only a quote, whole, under the key that was sent."""
    scenario = Scenario()
    with pytest.raises(error):
        scenario.judge_answer(scenario.answer_csr(mutate(scenario)))


def test_q1_rsa_signatures_are_verified() -> None:
    """A signature over other bytes by the right RSA key."""
    scenario = Scenario(ak=attestation_key(AK_KINDS["rsassa-2048-sha256"]))
    answer = scenario.answer()
    other = replace(answer, signature=scenario.ak.sign(b"other"))
    with pytest.raises(QuoteSignatureInvalid):
        scenario.judge_answer(scenario.answer_csr(other))


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


MADE_FOR: dict[str, dict[str, Any]] = {
    "another cluster": {"cluster_uid": "00000000-8888-4777-8666-555555555555"},
    "another signer": {"signer_name": CsrKind.SERVING.value},
    "another requester": {"username": "system:bootstrap:zzzzzz"},
    "another offer": {"offer_uid": "00000000-2222-4333-8444-555555555555"},
    "another time": {"issued_at": "2026-11-21T09:30:01Z"},
    "another request": {"pkcs10_sha256": bytes(32)},
    "another endorsement key": {"ek_spki_sha256": bytes(32)},
    "another attestation key": {"ak_name": b"\0\x0b" + bytes(32)},
}


@pytest.mark.parametrize("changes", MADE_FOR.values(), ids=MADE_FOR)
def test_q2_a_challenge_made_for_something_else_is_no_use(changes: dict[str, Any]) -> None:
    """Each input of the secret."""
    scenario = Scenario()
    attest = scenario.attest(extra_data=scenario.extra_data("kubelet-tpm-b", **changes))
    with pytest.raises(AnswerNotBound):
        scenario.judge_answer(scenario.answer_csr(scenario.answer(attest)))


def with_extra_data(value: bytes) -> Callable[[Attest], Attest]:
    """Put something else into extraData."""
    return lambda attest: replace(attest, extra_data=value)


Q2_EXTRA: dict[str, Callable[[Attest], Attest]] = {
    "empty": with_extra_data(b""),
    "zeros": with_extra_data(bytes(32)),
    "prefix": lambda a: replace(a, extra_data=a.extra_data[:31]),
    "longer": lambda a: replace(a, extra_data=a.extra_data + b"\0"),
}


@pytest.mark.parametrize("mutate", Q2_EXTRA.values(), ids=Q2_EXTRA)
def test_q2_other_extra_data_is_denied(mutate: Callable[[Attest], Attest]) -> None:
    """A recorded quote without nonce passed elsewhere (Kairos #4828)."""
    scenario = Scenario()
    answer = scenario.answer(mutate(scenario.attest()))
    with pytest.raises(AnswerNotBound):
        scenario.judge_answer(scenario.answer_csr(answer))


CSR_CHANGES: dict[str, dict[str, Any]] = {
    "copied under another name": {"name": "kubelet-tpm-c"},
    "expiration added": {"expiration_seconds": 3600},
    "usages widened": {"usages": ("client auth", "digital signature", "key encipherment")},
    "another bootstrapper": {"username": "system:bootstrap:zzzzzz"},
}


@pytest.mark.parametrize("changes", CSR_CHANGES.values(), ids=CSR_CHANGES)
def test_q2_an_answer_is_worth_nothing_in_another_object(changes: dict[str, Any]) -> None:
    """Whoever reads all CSRs can copy it, and gets nothing."""
    scenario = Scenario()
    with pytest.raises(AnswerNotBound):
        scenario.judge_answer(scenario.answer_csr(**changes))


def test_q2_an_answer_is_worth_nothing_in_another_cluster() -> None:
    """Even one with equal Machine and Node names."""
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
    """The kubelet's key is bound: an attacker's own request does not fit the quote."""
    scenario = Scenario()
    answer = scenario.answer()
    scenario.kubelet_key, scenario.request_der = ec.generate_private_key(ec.SECP256R1()), b""
    with pytest.raises(AnswerNotBound):
        scenario.judge_answer(scenario.answer_csr(answer))


def test_an_answer_under_the_named_key_only() -> None:
    """The secret is of the master that is named, not of any that is known."""
    scenario = Scenario()
    answer = scenario.answer()
    assert scenario.challenge_keys.previous is not None
    other = replace(answer.challenge, key=challenge_key_id(scenario.challenge_keys.previous))
    with pytest.raises(AnswerNotBound):
        scenario.judge_answer(scenario.answer_csr(replace(answer, challenge=other)))


def test_nothing_expected_is_told() -> None:
    """No expected value in any message (Keylime CVE-2023-38201)."""
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
