"""The lenient reader of ASN.1: accepted encodings, and its limits."""

import pytest

from signer.verify.x509.lenient_der import (
    CertificateMalformed,
    bits,
    children,
    elements,
    oid,
    single_element,
)

BMP_STRING = 0x1E
LENGTHS: dict[str, bytes] = {
    "short": b"\x02",
    "one byte": b"\x81\x02",
    "two bytes": b"\x82\0\x02",
    "three bytes": b"\x83\0\0\x02",
    "four bytes": b"\x84\0\0\0\x02",
}


@pytest.mark.parametrize("tag", [0x04, BMP_STRING, 0x30, 0xA3])
@pytest.mark.parametrize("length", LENGTHS.values(), ids=LENGTHS)
def test_non_minimal_lengths_are_accepted(length: bytes, tag: int) -> None:
    """Each element has its whole encoding, also after another element."""
    first, second = b"\x05\0", bytes([tag]) + length + b"ab"
    parsed = list(elements(first + second + first))
    assert parsed == [(5, b"", first), (tag, b"ab", second), (5, b"", first)]


def test_long_form_lengths_are_parsed() -> None:
    """The first byte counts the bytes of the length."""
    assert single_element(b"\x04\x81\xc8" + bytes(200))[1] == bytes(200)
    assert single_element(b"\x04\x82\x01\x2c" + bytes(300))[1] == bytes(300)


MALFORMED: dict[str, tuple[bytes, str]] = {
    "a tag alone": (b"\x04", "not supported"),
    "a high tag number": (b"\x1f\x01\0", "not supported"),
    "a high tag number, of a context": (b"\xbf\x01\0", "not supported"),
    "an indefinite length": (b"\x30\x80\0\0", "indefinite or too large"),
    "a length of five bytes": (b"\x04\x85\0\0\0\0\0", "indefinite or too large"),
    "a length that is cut": (b"\x04\x82\0", "indefinite or too large"),
    "a content that is cut": (b"\x04\x02a", "ends early"),
    "a content that is absent": (b"\x04\x81\x01", "ends early"),
}


@pytest.mark.parametrize("before", [b"", b"\x04\x03abc"], ids=["first", "second"])
@pytest.mark.parametrize(("data", "rule"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_element_is_refused(data: bytes, rule: str, before: bytes) -> None:
    """Reading stays within the data, at every position."""
    with pytest.raises(CertificateMalformed, match=rule):
        list(elements(before + data))


@pytest.mark.parametrize("data", [b"", b"\x05\0\x05\0"], ids=["none", "two"])
def test_single_element_must_be_alone(data: bytes) -> None:
    assert single_element(b"\x05\0") == (5, b"", b"\x05\0")
    with pytest.raises(CertificateMalformed, match="exactly one"):
        single_element(data)


@pytest.mark.parametrize("tag", [0x30, 0x31], ids=["SEQUENCE", "SET"])
def test_sequence_and_set_have_children(tag: int) -> None:
    assert children((tag, b"\x05\0\x05\0", b"")) == [(5, b"", b"\x05\0")] * 2


@pytest.mark.parametrize("tag", [0x04, 0x10, 0xA0])
def test_other_types_have_no_children(tag: int) -> None:
    with pytest.raises(CertificateMalformed, match="a part is missing"):
        children((tag, b"\x05\0", b""))


IDENTIFIERS: dict[str, str] = {
    "0.9.2342": "09 9226",
    "0.39": "27",
    "1.0": "28",
    "1.39.1": "4f 01",
    "1.2.840.113549.1.1.11": "2a 864886f70d01010b",
    "2.0": "50",
    "2.5.29.37": "55 1d25",
    "2.23.133.8.1": "67 8105 0801",
    "2.48": "8100",
    "2.999.3": "8837 03",
}


@pytest.mark.parametrize(("text", "content"), IDENTIFIERS.items())
def test_object_identifiers_are_formatted_with_dots(text: str, content: str) -> None:
    """The first number encodes two arcs (X.690, section 8.19)."""
    assert oid((6, bytes.fromhex(content), b"")) == text


NO_IDENTIFIERS: dict[str, tuple[int, bytes, str]] = {
    "another tag": (4, b"\x55", "is missing"),
    "a higher tag": (0x0D, b"\x55", "is missing"),
    "nothing": (6, b"", "is missing"),
    "a number without end": (6, b"\x55\x81", "is missing"),
    "too long": (6, b"\x55" * 129, "too long"),
}


@pytest.mark.parametrize(("tag", "content", "rule"), NO_IDENTIFIERS.values(), ids=NO_IDENTIFIERS)
def test_malformed_object_identifiers_are_refused(tag: int, content: bytes, rule: str) -> None:
    """Each is one change to a valid identifier."""
    assert oid((6, b"\x55" * 128, b"")).startswith("2.5.85.85")
    with pytest.raises(CertificateMalformed, match=rule):
        oid((tag, content, b""))


NO_BITS: dict[str, tuple[int, bytes]] = {
    "another tag": (4, b"\0ab"),
    "a lower tag": (2, b"\0ab"),
    "bits that are left over": (3, b"\1ab"),
    "nothing": (3, b""),
}


@pytest.mark.parametrize(("tag", "content"), NO_BITS.values(), ids=NO_BITS)
def test_bit_strings_must_have_whole_bytes(tag: int, content: bytes) -> None:
    assert bits((3, b"\0ab", b"")) == b"ab"
    with pytest.raises(CertificateMalformed, match="bit string"):
        bits((tag, content, b""))
