"""The lenient reader of ASN.1: accepted encodings, and its limits."""

from collections.abc import Callable
from functools import partial

import pytest

from signer.verify.x509.lenient_der import (
    CertificateMalformed,
    Element,
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


@pytest.mark.parametrize("tag", [0x30, 0x31], ids=["SEQUENCE", "SET"])
def test_sequence_and_set_have_children(tag: int) -> None:
    assert children((tag, b"\x05\0\x05\0", b"")) == [(5, b"", b"\x05\0")] * 2


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


def test_longest_object_identifier_has_128_bytes() -> None:
    assert oid((6, b"\x55" * 128, b"")).startswith("2.5.85.85")


def test_single_element_and_bit_string_are_read() -> None:
    assert single_element(b"\x05\0") == (5, b"", b"\x05\0")
    assert bits((3, b"\0ab", b"")) == b"ab"


def read_all(data: bytes) -> list[Element]:
    return list(elements(data))


TAG, LENGTH, EARLY = "tag or a length", "indefinite or too large", "ends early"
ONE, PART, IDENTIFIER, BITS = "exactly one", "a part is", "identifier is missing", "bit string"
MALFORMED: dict[str, tuple[Callable[[], object], str]] = {
    **{
        f"{what}, {where}": (partial(read_all, before + data), rule)
        for where, before in {"first": b"", "second": b"\x04\x03abc"}.items()
        for what, data, rule in (
            ("a tag alone", b"\x04", TAG),
            ("a high tag number", b"\x1f\x01\0", TAG),
            ("a high tag number of a context", b"\xbf\x01\0", TAG),
            ("an indefinite length", b"\x30\x80\0\0", LENGTH),
            ("a length of five bytes", b"\x04\x85\0\0\0\0\0", LENGTH),
            ("a length that is cut", b"\x04\x82\0", LENGTH),
            ("a content that is cut", b"\x04\x02a", EARLY),
            ("a content that is absent", b"\x04\x81\x01", EARLY),
        )
    },
    "no element": (lambda: single_element(b""), ONE),
    "two elements": (lambda: single_element(b"\x05\0\x05\0"), ONE),
    **{
        f"children of type {tag:#x}": (partial(children, (tag, b"\x05\0", b"")), PART)
        for tag in (0x04, 0x10, 0xA0)
    },
    "an identifier of another tag": (lambda: oid((4, b"\x55", b"")), IDENTIFIER),
    "an identifier of a higher tag": (lambda: oid((0x0D, b"\x55", b"")), IDENTIFIER),
    "an empty identifier": (lambda: oid((6, b"", b"")), IDENTIFIER),
    "an identifier without end": (lambda: oid((6, b"\x55\x81", b"")), IDENTIFIER),
    "an identifier of 129 bytes": (lambda: oid((6, b"\x55" * 129, b"")), "too long"),
    "bits of another tag": (lambda: bits((4, b"\0ab", b"")), BITS),
    "bits of a lower tag": (lambda: bits((2, b"\0ab", b"")), BITS),
    "bits that are left over": (lambda: bits((3, b"\1ab", b"")), BITS),
    "no bits": (lambda: bits((3, b"", b"")), BITS),
}


@pytest.mark.parametrize(("read", "rule"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_data_is_refused(read: Callable[[], object], rule: str) -> None:
    """Reading stays within the data, at every position."""
    with pytest.raises(CertificateMalformed, match=rule):
        read()
