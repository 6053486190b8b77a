"""The challenge annotation: the node parses it strictly, since any user may write annotations."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.challenge import MAX_CHALLENGE, MEMBERS, Challenge, decode_challenge, encode_challenge
from common.errors import ChallengeMalformed

GOOD = Challenge(
    issued_at="2026-11-21T06:40:00Z",
    key="f1a2e524dce39af2",
    credential_blob=b"blob",
    encrypted_secret=b"secret",
    pcrs={"sha256": (0, 1, 2, 3, 4, 5, 6, 7)},
    event_log=False,
    pcr_signatures=False,
    tag="0123abcd",
)
TEXT = (
    '{"version":"v1","issuedAt":"2026-11-21T06:40:00Z","key":"f1a2e524dce39af2",'
    '"credentialBlob":"YmxvYg==","encryptedSecret":"c2VjcmV0",'
    '"pcrs":{"sha256":[0,1,2,3,4,5,6,7]},"eventLog":false,"pcrSignatures":false,'
    '"tag":"0123abcd"}'
)

Change = Callable[[dict[str, Any]], object]
CHANGES: dict[str, Change] = {
    "another version": lambda d: d.update(version="v2"),
    "version is a number": lambda d: d.update(version=1),
    "no version": lambda d: d.pop("version"),
    "another key in a bank's place": lambda d: d["pcrs"].update(note=[0]),
    "no tag": lambda d: d.pop("tag"),
    "empty tag": lambda d: d.update(tag=""),
    "tag with a line break": lambda d: d.update(tag="a\n"),
    "tag of 129 characters": lambda d: d.update(tag="a" * 129),
    "time of another form": lambda d: d.update(issuedAt="2026-11-21T06:40:00.000Z"),
    "key of 15 digits": lambda d: d.update(key="f1a2e524dce39af"),
    "blob is null": lambda d: d.update(credentialBlob=None),
    "secret is no base64": lambda d: d.update(encryptedSecret="c2VjcmV"),
    "event log is 0": lambda d: d.update(eventLog=0),
    "event log is null": lambda d: d.update(eventLog=None),
    "signatures of PCRs are null": lambda d: d.update(pcrSignatures=None),
    "no banks": lambda d: d.update(pcrs={}),
    "pcrs is an array": lambda d: d.update(pcrs=[0]),
    "unknown bank": lambda d: d.update(pcrs={"sha3_256": [0]}),
    "empty bank": lambda d: d.update(pcrs={"sha256": []}),
    "bank is an object": lambda d: d.update(pcrs={"sha256": {"0": 1}}),
    "index is a string": lambda d: d.update(pcrs={"sha256": ["0"]}),
    "index is true": lambda d: d.update(pcrs={"sha256": [True]}),
    "index is a fraction": lambda d: d.update(pcrs={"sha256": [0.0]}),
    "index 24": lambda d: d.update(pcrs={"sha256": [0, 24]}),
    "index -1": lambda d: d.update(pcrs={"sha256": [-1, 0]}),
    "indices descend": lambda d: d.update(pcrs={"sha256": [1, 0]}),
    "index twice": lambda d: d.update(pcrs={"sha256": [0, 0]}),
}


def test_challenge_has_its_exact_encoding() -> None:
    assert encode_challenge(GOOD) == TEXT
    assert decode_challenge(TEXT) == GOOD


@pytest.mark.parametrize("change", [pytest.param(c, id=name) for name, c in CHANGES.items()])
def test_changed_challenge_is_refused(change: Change) -> None:
    document = json.loads(TEXT)
    change(document)
    with pytest.raises(ChallengeMalformed):
        decode_challenge(json.dumps(document))


@pytest.mark.parametrize("value", [None, True, "x", [{}], {"a": 1.5}])
def test_challenge_of_a_later_signer_is_read_without_its_new_member(value: object) -> None:
    later = json.loads(TEXT) | {"measureAgain": value}
    assert decode_challenge(json.dumps(later)) == GOOD


def test_members_are_all_that_the_node_acts_on() -> None:
    assert list(MEMBERS) == sorted(json.loads(TEXT).keys() - {"tag"})


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("[]", id="array"),
        pytest.param(TEXT[:-1], id="truncated"),
        pytest.param(TEXT.replace('"tag"', '"tag":"a","tag"'), id="tag twice"),
        pytest.param(TEXT.replace("YmxvYg==", "\ud800"), id="surrogate"),
        pytest.param(TEXT.ljust(MAX_CHALLENGE + 1), id="large"),
        pytest.param("[" * MAX_CHALLENGE, id="deep"),
    ],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ChallengeMalformed):
        decode_challenge(text)


def test_largest_challenge_is_parsed() -> None:
    assert MAX_CHALLENGE == 8192
    assert decode_challenge(TEXT.ljust(MAX_CHALLENGE)) == GOOD


def test_challenge_with_all_pcrs_and_largest_keys_fits() -> None:
    """All PCRs of all banks, RSA 4096 and SHA-512."""
    widest = replace(
        GOOD,
        credential_blob=bytes(2 + 2 + 64 + 2 + 64),
        encrypted_secret=bytes(2 + 512),
        pcrs={bank: tuple(range(24)) for bank in ("sha1", "sha256", "sha384", "sha512")},
        tag="~" * 128,
    )
    assert decode_challenge(encode_challenge(widest)) == widest


INDICES = st.sets(st.integers(0, 23), min_size=1).map(lambda indices: tuple(sorted(indices)))
BANKS = st.sampled_from(["sha1", "sha256", "sha384", "sha512"])


@given(
    st.builds(
        Challenge,
        issued_at=st.just(GOOD.issued_at),
        key=st.just(GOOD.key),
        credential_blob=st.binary(max_size=100),
        encrypted_secret=st.binary(max_size=100),
        pcrs=st.dictionaries(BANKS, INDICES, min_size=1),
        event_log=st.booleans(),
        pcr_signatures=st.booleans(),
        tag=st.text(alphabet='!~"\\a0', min_size=1, max_size=128),
    )
)
def test_encoded_value_parses_to_itself(challenge: Challenge) -> None:
    assert decode_challenge(encode_challenge(challenge)) == challenge
