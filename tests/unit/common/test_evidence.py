"""Attestation data (P1, P6): a good document passes, and each change is refused."""

import base64
import gzip
import json
import random
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import (
    AttestationDataMalformed,
    AttestationError,
    TooLarge,
    UnsupportedVersion,
)
from common.evidence import (
    MAX_EVENT_LOG,
    MAX_SIZE,
    MAX_SIZE_WITH_EVENT_LOG,
    Answer,
    ChallengeReference,
    Offer,
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

OFFER_TEXT = (
    b'{"version":"v1","kind":"offer","ek":{"public":"ZWs=",'
    b'"certificates":["bGVhZg==","aW50ZXJtZWRpYXRl"]},"ak":{"public":"YWs="}}'
)

Change = Callable[[dict[str, Any]], object]


def changed(good: Offer | Answer, change: Change) -> bytes:
    """Change the JSON of a good document."""
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
    }
    assert document["pcrs"] == {
        "sha1": {"23": "01" * 20},
        "sha256": {"0": "02" * 32, "10": "03" * 32},
    }
    assert document.keys() == {
        *("version", "kind", "ek", "ak", "challenge", "quote", "signature", "pcrs"),
    }


@pytest.mark.parametrize("good", [OFFER, ANSWER, WITH_LOG], ids=["offer", "answer", "with log"])
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


@pytest.mark.parametrize("version", ["v2", "v1beta1", "", "V1", "v1 ", "\ud800"])
def test_p6_unsupported_version_is_reported_before_other_rules(version: str) -> None:
    document = {"version": version, "kind": 7, "new": [1.5, -3, {"deep": None}]}
    with pytest.raises(UnsupportedVersion):
        decode_attestation_data(json.dumps(document).encode())


def test_p6_unsupported_version_is_reported_despite_repeated_names() -> None:
    with pytest.raises(UnsupportedVersion):
        decode_attestation_data(b'{"version":"v2","x":1,"x":2,"n":NaN}')


def test_error_does_not_repeat_the_unsupported_version() -> None:
    with pytest.raises(UnsupportedVersion) as caught:
        decode_attestation_data(b'{"version":"v2; drop"}')
    assert "drop" not in caught.value.message


OFFER_CHANGES: dict[str, Change] = {
    "no version": lambda d: d.pop("version"),
    "version is a number": lambda d: d.update(version=1),
    "no kind": lambda d: d.pop("kind"),
    "another kind": lambda d: d.update(kind="Offer"),
    "kind is an object": lambda d: d.update(kind={}),
    "kind of an answer": lambda d: d.update(kind="answer"),
    "no ek": lambda d: d.pop("ek"),
    "another key": lambda d: d.update(quote=""),
    "another key in ek": lambda d: d["ek"].update(name=""),
    "no certificates": lambda d: d["ek"].pop("certificates"),
    "certificates are a string": lambda d: d["ek"].update(certificates="bGVhZg=="),
    "certificate is no base64": lambda d: d["ek"].update(certificates=["bGVhZg"]),
    "certificate is null": lambda d: d["ek"].update(certificates=[None]),
    "ek is a string": lambda d: d.update(ek="ZWs="),
    "ek.public is null": lambda d: d["ek"].update(public=None),
    "ak.public is url-safe base64": lambda d: d["ak"].update(public="_-_-"),
    "flat keys": lambda d: d.update({"ak.public": d.pop("ak")["public"]}),
    "event log in an offer": lambda d: d.update(eventLog=packed(b"log")),
}

ANSWER_CHANGES: dict[str, Change] = {
    "kind of an offer": lambda d: d.update(kind="offer"),
    "no challenge": lambda d: d.pop("challenge"),
    "another key in challenge": lambda d: d["challenge"].update(name="x"),
    "uid in upper case": lambda d: d["challenge"].update(
        uid="A" * 8 + "-2222-4333-8444-" + "5" * 12
    ),
    "uid is a number": lambda d: d["challenge"].update(uid=1),
    "time with an offset": lambda d: d["challenge"].update(issuedAt="2026-11-21T06:40:00+00:00"),
    "time that does not exist": lambda d: d["challenge"].update(issuedAt="2026-11-31T06:40:00Z"),
    "key in upper case": lambda d: d["challenge"].update(key="F1A2E524DCE39AF2"),
    "key of 17 digits": lambda d: d["challenge"].update(key="f1a2e524dce39af20"),
    "quote is null": lambda d: d.update(quote=None),
    "no signature": lambda d: d.pop("signature"),
    "signature is not padded": lambda d: d.update(signature="YQ"),
    "pcrs is empty": lambda d: d.update(pcrs={}),
    "pcrs is an array": lambda d: d.update(pcrs=[]),
    "unknown bank": lambda d: d["pcrs"].update(sm3_256={}),
    "bank in upper case": lambda d: d["pcrs"].update(SHA256=d["pcrs"].pop("sha256")),
    "bank is an array": lambda d: d["pcrs"].update(sha1=[]),
    "PCR 24": lambda d: d["pcrs"]["sha1"].update({"24": "01" * 20}),
    "PCR -1": lambda d: d["pcrs"]["sha1"].update({"-1": "01" * 20}),
    "PCR 00": lambda d: d["pcrs"]["sha1"].update({"00": "01" * 20}),
    "PCR in other digits": lambda d: d["pcrs"]["sha1"].update({"\u0661": "01" * 20}),
    "digest of another bank": lambda d: d["pcrs"]["sha1"].update({"1": "01" * 32}),
    "digest in upper case": lambda d: d["pcrs"]["sha1"].update({"1": "AB" * 20}),
    "digest is null": lambda d: d["pcrs"]["sha1"].update({"1": None}),
    "event log is null": lambda d: d.update(eventLog=None),
    "event log is not gzip": lambda d: d.update(eventLog="YWJj"),
    "event log is zlib": lambda d: d.update(eventLog=base64.b64encode(zlib.compress(b"")).decode()),
    "event log is empty": lambda d: d.update(eventLog=""),
}
TWO_MEMBERS = base64.b64encode(gzip.compress(b"a") + gzip.compress(b"b")).decode()
TRAILING = base64.b64encode(gzip.compress(b"a") + b"\0").decode()
TRUNCATED = base64.b64encode(gzip.compress(b"a" * 99)[:-1]).decode()
FALSE_SUM = base64.b64encode(gzip.compress(b"a" * 99)[:-1] + b"\1").decode()
LOG_CHANGES: dict[str, Change] = {
    "two gzip members": lambda d: d.update(eventLog=TWO_MEMBERS),
    "trailing byte": lambda d: d.update(eventLog=TRAILING),
    "truncated": lambda d: d.update(eventLog=TRUNCATED),
    "false length": lambda d: d.update(eventLog=FALSE_SUM),
}
CHANGES = [
    *((OFFER, name, change) for name, change in OFFER_CHANGES.items()),
    *((ANSWER, name, change) for name, change in ANSWER_CHANGES.items()),
    *((WITH_LOG, name, change) for name, change in LOG_CHANGES.items()),
]


@pytest.mark.parametrize(
    ("good", "change"), [pytest.param(good, change, id=name) for good, name, change in CHANGES]
)
def test_p6_changed_document_is_refused(good: Offer | Answer, change: Change) -> None:
    with pytest.raises(AttestationDataMalformed):
        decode_attestation_data(changed(good, change))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"null", id="null"),
        pytest.param(OFFER_TEXT + b"{}", id="two documents"),
        pytest.param(OFFER_TEXT[:-1], id="truncated"),
        pytest.param(OFFER_TEXT.replace(b'"kind"', b'"version":"v1","kind"'), id="version twice"),
        pytest.param(OFFER_TEXT.replace(b'{"public"', b'{"public":"","public"'), id="public twice"),
        pytest.param(OFFER_TEXT.replace(b"offer", b"off\xff"), id="not UTF-8"),
        pytest.param(b'{"version":"v1","a":' + b"[" * 30000, id="deep"),
        pytest.param(b'{"version":"v1","kind":' + b"9" * 30000 + b"}", id="huge number"),
    ],
)
def test_p6_other_text_is_refused(data: bytes) -> None:
    with pytest.raises(AttestationDataMalformed):
        decode_attestation_data(data)


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


def test_p1_size_without_event_log_is_limited() -> None:
    assert decode_attestation_data(sized(OFFER, MAX_SIZE)) == OFFER
    with pytest.raises(TooLarge):
        decode_attestation_data(sized(OFFER, MAX_SIZE + 1))


def test_p1_size_with_event_log_is_limited() -> None:
    assert decode_attestation_data(sized(WITH_LOG, MAX_SIZE_WITH_EVENT_LOG)) == WITH_LOG
    with pytest.raises(TooLarge):
        decode_attestation_data(sized(WITH_LOG, MAX_SIZE_WITH_EVENT_LOG + 1))


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


def test_p1_decompression_bomb_is_refused() -> None:
    with pytest.raises(TooLarge):
        decode_attestation_data(
            encode_attestation_data(replace(ANSWER, event_log=bytes(8 * MAX_EVENT_LOG)))
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
    """Make PCR values of at least one bank."""
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


@given(st.sampled_from([OFFER, ANSWER, WITH_LOG]), st.data())
def test_only_documented_errors_are_raised(good: Offer | Answer, data: st.DataObject) -> None:
    text = encode_attestation_data(good)
    at = data.draw(st.integers(0, len(text) - 1))
    mutated = text[:at] + data.draw(st.binary(max_size=3)) + text[at + 1 :]
    try:
        document = decode_attestation_data(mutated)
    except AttestationError:
        return
    assert isinstance(document, Offer | Answer)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=5), values),
    max_leaves=5,
)


@given(st.sampled_from([OFFER, ANSWER, WITH_LOG]), st.data())
def test_unexpected_value_anywhere_raises_documented_errors_alone(
    good: Offer | Answer, data: st.DataObject
) -> None:
    document = json.loads(encode_attestation_data(good))
    place = document
    name = data.draw(st.sampled_from(sorted(place)))
    while isinstance(place[name], dict) and place[name] and data.draw(st.booleans()):
        place = place[name]
        name = data.draw(st.sampled_from(sorted(place)))
    place[name] = data.draw(JSON)
    try:
        decode_attestation_data(json.dumps(document).encode())
    except AttestationError:
        return
