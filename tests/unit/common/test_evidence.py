"""Attestation data (P1, P6): a good document passes, and each change is refused."""

import base64
import gzip
import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.challenge import MEMBERS
from common.errors import AttestationDataMalformed, TooLarge, UnsupportedVersion
from common.evidence import (
    MAX_EVENT_LOG,
    MAX_PCR_SIGNATURES,
    MAX_SIZE,
    MAX_SIZE_WITH_EVENT_LOG,
    Answer,
    ChallengeReference,
    Offer,
    Statement,
    decode_attestation_data,
    encode_attestation_data,
)
from common.tpm.constants import BANKS, DIGEST_SIZES

OFFER = Offer(ek_public=b"ek", ek_certificates=(b"leaf", b"intermediate"), ak_public=b"ak")
ANSWER = Answer(
    ek_public=b"ek",
    ek_certificates=(),
    ak_public=b"ak",
    challenge=ChallengeReference(
        uid="11111111-2222-4333-8444-555555555555",
        issued_at="2026-11-21T06:40:00Z",
        key="f1a2e524dce39af2",
    ),
    quote=b"quote",
    signature=b"signature",
    pcrs={"sha1": {23: b"\1" * 20}, "sha256": {0: b"\2" * 32, 10: b"\3" * 32}},
    event_log=None,
)
WITH_LOG = replace(ANSWER, event_log=b"log" * 1000)
STATEMENT = Statement(attest=b"attest", signature=b"signature")
CERTIFIED = replace(OFFER, ak_certificate=b"certificate", ek_creation=STATEMENT)
WITH_SIGNATURES = replace(ANSWER, pcr_signatures=b"{}" * (MAX_PCR_SIGNATURES // 2))

OFFER_TEXT = (
    b'{"version":"v1","kind":"offer","ek":{"public":"ZWs=",'
    b'"certificates":["bGVhZg==","aW50ZXJtZWRpYXRl"]},"ak":{"public":"YWs="}}'
)

Change = Callable[[dict[str, Any]], object]


def changed(good: Offer | Answer, change: Change) -> bytes:
    document = json.loads(encode_attestation_data(good))
    change(document)
    return json.dumps(document).encode()


def packed(log: bytes) -> str:
    """Compress an event log as another program does."""
    return base64.b64encode(gzip.compress(log)).decode()


def test_offer_has_its_exact_encoding() -> None:
    assert encode_attestation_data(OFFER) == OFFER_TEXT
    assert decode_attestation_data(OFFER_TEXT) == OFFER


def test_answer_has_the_keys_of_the_protocol() -> None:
    document = json.loads(encode_attestation_data(ANSWER))
    assert document["challenge"] == {
        "uid": "11111111-2222-4333-8444-555555555555",
        "issuedAt": "2026-11-21T06:40:00Z",
        "key": "f1a2e524dce39af2",
        "members": list(MEMBERS),
    }
    assert document["pcrs"] == {
        "sha1": {"23": "01" * 20},
        "sha256": {"0": "02" * 32, "10": "03" * 32},
    }
    assert document.keys() == {
        *("version", "kind", "ek", "ak", "challenge", "quote", "signature", "pcrs"),
    }


@pytest.mark.parametrize(
    "good",
    [OFFER, ANSWER, WITH_LOG, WITH_SIGNATURES, CERTIFIED],
    ids=["offer", "answer", "with log", "with signatures", "certified"],
)
def test_good_document_parses_to_itself(good: Offer | Answer) -> None:
    assert decode_attestation_data(encode_attestation_data(good)) == good
    assert decode_attestation_data(changed(good, lambda _: None)) == good


def test_event_log_of_another_gzip_program_is_accepted() -> None:
    data = changed(WITH_LOG, lambda d: d.update(eventLog=packed(b"another")))
    assert decode_attestation_data(data) == replace(WITH_LOG, event_log=b"another")


def test_event_log_with_distant_repetitions_is_accepted() -> None:
    """Other programs use the whole window of gzip, 32 KiB."""
    log = random.Random(1).randbytes(30000) * 2
    assert len(gzip.compress(log)) < 31000
    data = changed(WITH_LOG, lambda d: d.update(eventLog=packed(log)))
    assert decode_attestation_data(data) == replace(WITH_LOG, event_log=log)


def test_bank_that_is_not_allocated_may_be_empty() -> None:
    """So that Q3 can say PcrBankUnavailable."""
    answer = replace(ANSWER, pcrs={"sha512": {}})
    assert decode_attestation_data(encode_attestation_data(answer)) == answer


def test_error_does_not_repeat_the_unsupported_version() -> None:
    with pytest.raises(UnsupportedVersion) as caught:
        decode_attestation_data(b'{"version":"v2; drop"}')
    assert "drop" not in caught.value.message


def test_error_names_the_rule_but_no_value() -> None:
    with pytest.raises(AttestationDataMalformed) as caught:
        decode_attestation_data(changed(OFFER, lambda d: d.update(kind="guess", secret="s3cret")))
    assert caught.value.message == "attestation data: kind must be offer or answer"


def sized(good: Offer | Answer, size: int) -> bytes:
    """Pad a document with spaces to this many bytes."""
    data = encode_attestation_data(good)
    return data + b" " * (size - len(data))


def test_p1_limits_are_those_of_the_protocol() -> None:
    assert (MAX_SIZE, MAX_SIZE_WITH_EVENT_LOG, MAX_EVENT_LOG) == (65536, 1048576, 4194304)


@pytest.mark.parametrize(
    ("good", "most"),
    [(OFFER, MAX_SIZE), (WITH_LOG, MAX_SIZE_WITH_EVENT_LOG)],
    ids=["without event log", "with event log"],
)
def test_p1_size_is_limited(good: Offer | Answer, most: int) -> None:
    assert decode_attestation_data(sized(good, most)) == good
    with pytest.raises(TooLarge):
        decode_attestation_data(sized(good, most + 1))


def test_p1_size_is_checked_before_parsing() -> None:
    with pytest.raises(TooLarge):
        decode_attestation_data(b"\xff" * (MAX_SIZE_WITH_EVENT_LOG + 1))


def test_p1_decompressed_event_log_is_limited() -> None:
    largest = replace(ANSWER, event_log=bytes(MAX_EVENT_LOG))
    assert decode_attestation_data(encode_attestation_data(largest)) == largest
    with pytest.raises(TooLarge):
        decode_attestation_data(
            encode_attestation_data(replace(ANSWER, event_log=bytes(MAX_EVENT_LOG + 1)))
        )


BYTES = st.binary(max_size=40)
OFFERS = st.builds(
    Offer,
    ek_public=BYTES,
    ek_certificates=st.lists(BYTES, max_size=3).map(tuple),
    ak_public=BYTES,
)


@st.composite
def pcr_values(draw: st.DrawFn) -> dict[str, dict[int, bytes]]:
    banks = draw(st.sets(st.sampled_from(sorted(BANKS)), min_size=1))
    return {
        bank: {
            index: draw(st.binary(min_size=size, max_size=size))
            for index in draw(st.sets(st.integers(0, 23), max_size=3))
        }
        for bank, size in ((bank, DIGEST_SIZES[BANKS[bank]]) for bank in sorted(banks))
    }


ANSWERS = st.builds(
    Answer,
    ek_public=BYTES,
    ek_certificates=st.lists(BYTES, max_size=3).map(tuple),
    ak_public=BYTES,
    challenge=st.just(ANSWER.challenge),
    quote=BYTES,
    signature=BYTES,
    pcrs=pcr_values(),
    event_log=st.none() | st.binary(max_size=200),
)


@given(OFFERS | ANSWERS)
def test_encoded_value_parses_to_itself(document: Offer | Answer) -> None:
    assert decode_attestation_data(encode_attestation_data(document)) == document
