"""The DER parser of the tests: each value has one accepted encoding."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import vectors
from tests.builders import der
from tests.builders.der import DerMalformed, Element

REQUESTS = [bytes.fromhex(c["der"]) for c in vectors.cases("requests") if "der" in c]


def write(element: Element) -> bytes:
    """Encode an element from its parts."""
    constructed = element.tag & 0x20
    content = b"".join(write(c) for c in element.children) if constructed else element.content
    return der.encode(element.tag, content)


@pytest.mark.parametrize(
    "encoded",
    [
        "0101ff",
        "010100",
        "020100",
        "02017f",
        "02020080",
        "0201ff",
        "0202ff7f",
        "030100",
        "03020780",
        "030200ff",
        "0400",
        "0500",
        "06032a8648",
        "060a2b06010401d679020115",
        "0c03e282ac",
        "1305612d7a2f3f",
        "1603ff0001",
        "3000",
        "3006020100020100",
        "3106020100020101",
        "3106020100020100",
        "a000",
        "8000",
        "820161",
        "a003020100",
    ],
)
def test_der_is_parsed(encoded: str) -> None:
    assert write(der.parse(bytes.fromhex(encoded))).hex() == encoded


@pytest.mark.parametrize("size", [0, 127, 128, 255, 256, 65535, 65536])
def test_length_parses_to_itself(size: int) -> None:
    element = der.parse(der.encode(der.OCTET_STRING, bytes(size)))
    assert element.content == bytes(size)


@pytest.mark.parametrize(
    ("encoded", "rule"),
    [
        ("", "ends early"),
        ("02", "ends early"),
        ("0202", "ends early"),
        ("020200", "ends early"),
        ("30030201", "ends early"),
        ("3003020200", "ends early"),
        ("02010000", "trailing"),
        ("30800000", "indefinite"),
        ("0480000000", "indefinite"),
        ("04840000000101", "indefinite or too large"),
        ("0482ff", "indefinite or too large"),
        ("04ff", "indefinite or too large"),
        ("04810161", "not minimal"),
        ("0482008061", "not minimal"),
        ("0000", "tag"),
        ("1f0100", "tag"),
        ("bf0100", "tag"),
        ("410100", "tag"),
        ("c10100", "tag"),
        ("1000", "content"),
        ("1100", "content"),
        ("22020401", "ends early"),
        ("2403040161", "content"),
        ("2c030c0161", "content"),
        ("010101", "content"),
        ("0100", "content"),
        ("0102ffff", "content"),
        ("0200", "content"),
        ("0202007f", "content"),
        ("0202ff80", "content"),
        ("0300", "content"),
        ("030101", "content"),
        ("03020801", "content"),
        ("03020101", "content"),
        ("050100", "content"),
        ("0600", "content"),
        ("060180", "content"),
        ("06032a8086", "content"),
        ("0603802a01", "content"),
        ("06042a800a01", "content"),
        ("0c02c080", "content"),
        ("0c03eda080", "content"),
        ("130140", "content"),
        ("13015f", "content"),
        ("3106020101020100", "content"),
    ],
)
def test_other_encodings_than_der_are_refused(encoded: str, rule: str) -> None:
    with pytest.raises(DerMalformed, match=rule):
        der.parse(bytes.fromhex(encoded))


def nested(depth: int) -> bytes:
    """Nest a NULL in this many sequences."""
    encoded = b"\x05\x00"
    for _ in range(depth):
        encoded = der.encode(der.SEQUENCE, encoded)
    return encoded


def test_depth_is_limited() -> None:
    assert der.parse(nested(15)).tag == der.SEQUENCE
    with pytest.raises(DerMalformed, match="deeply"):
        der.parse(nested(16))


def test_depth_limit_is_below_the_recursion_limit() -> None:
    with pytest.raises(DerMalformed, match="deeply"):
        der.parse(nested(3000))


def test_bit_string_of_whole_bytes_is_accepted() -> None:
    assert der.whole_bits(der.parse(bytes.fromhex("030300abcd"))) == b"\xab\xcd"


@pytest.mark.parametrize("encoded", ["030201aa", "0402aabb"])
def test_other_values_are_not_accepted_as_bit_strings(encoded: str) -> None:
    with pytest.raises(DerMalformed, match="whole bytes"):
        der.whole_bits(der.parse(bytes.fromhex(encoded)))


@given(st.data())
def test_parsed_der_encodes_to_itself(data: st.DataObject) -> None:
    good = data.draw(st.sampled_from(REQUESTS))
    at = data.draw(st.integers(0, len(good) - 1))
    mutated = good[:at] + data.draw(st.binary(max_size=3)) + good[at + 1 :]
    try:
        element = der.parse(mutated)
    except DerMalformed:
        return
    assert write(element) == mutated


@given(st.binary(max_size=60))
def test_no_undocumented_error_is_raised(data: bytes) -> None:
    try:
        element = der.parse(data)
    except DerMalformed:
        return
    assert write(element) == data
