"""The HMACs of the exchange are equal to those of openssl over hand-made fields."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.requests import binding
from common.requests.binding import ChallengeInputs
from tests import vectors

CHALLENGE_KEY = bytes.fromhex("5c" * 32)
NAME = "kubelet-tpm-00112233445566778899aabbccddeeff"
USAGES = ("digital signature", "client auth")
INPUTS = ChallengeInputs(
    cluster_uid="99999999-8888-4777-8666-555555555555",
    signer_name="cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm",
    username="system:bootstrap:abcdef",
    offer_uid="11111111-2222-4333-8444-555555555555",
    issued_at="2026-11-21T06:40:00Z",
    pkcs10_sha256=bytes.fromhex("a1" * 32),
    ek_spki_sha256=bytes.fromhex("b2" * 32),
    ak_name=bytes.fromhex("000b" + "c3" * 32),
)
EXPECTED = {case["name"]: case["result"] for case in vectors.cases("digests")}


def test_key_id_is_the_first_eight_bytes_of_an_hmac() -> None:
    assert binding.challenge_key_id(CHALLENGE_KEY) == EXPECTED["key id"]


def test_secret_is_what_openssl_computes() -> None:
    assert binding.challenge_secret(CHALLENGE_KEY, INPUTS).hex() == EXPECTED["secret"]


@pytest.mark.parametrize(
    ("expiration_seconds", "case"),
    [(3600, "extraData"), (None, "extraData without expirationSeconds")],
)
def test_extra_data_is_what_openssl_computes(expiration_seconds: int | None, case: str) -> None:
    extra_data = binding.answer_extra_data(
        bytes.fromhex(EXPECTED["secret"]),
        name=NAME,
        pkcs10_sha256=INPUTS.pkcs10_sha256,
        expiration_seconds=expiration_seconds,
        usages=USAGES,
        members=("pcrs", "eventLog"),
    )
    assert extra_data.hex() == EXPECTED[case]


@pytest.mark.parametrize("field", ChallengeInputs._fields)
def test_every_input_changes_the_secret(field: str) -> None:
    value = getattr(INPUTS, field)
    other = value[:-1] + (b"!" if isinstance(value, bytes) else "!")
    changed = INPUTS._replace(**{field: other})
    assert binding.challenge_secret(CHALLENGE_KEY, changed) != binding.challenge_secret(
        CHALLENGE_KEY, INPUTS
    )


@given(st.lists(st.binary(max_size=20), max_size=5), st.lists(st.binary(max_size=20), max_size=5))
def test_no_two_lists_of_fields_share_an_encoding(one: list[bytes], other: list[bytes]) -> None:
    assert (binding.encode_fields(*one) == binding.encode_fields(*other)) == (one == other)


def test_sha256_is_that_of_fips_180() -> None:
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert binding.sha256(b"abc").hex() == expected
