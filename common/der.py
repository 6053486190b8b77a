"""DER, strictly: what is read here has no other encoding, so it would re-encode to itself.

Definite minimal lengths, minimal integers and object identifiers, booleans 0x00 or 0xff, SET in
order, no unused bits set, strings of their alphabet, nothing trailing. Only what certification
requests are made of is known in depth; other primitive values are left to the caller as bytes.

Source: ITU-T X.690, sections 8, 10 and 11.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

BOOLEAN: Final = 0x01
INTEGER: Final = 0x02
BIT_STRING: Final = 0x03
OCTET_STRING: Final = 0x04
NULL: Final = 0x05
OBJECT_IDENTIFIER: Final = 0x06
UTF8_STRING: Final = 0x0C
PRINTABLE_STRING: Final = 0x13
SEQUENCE: Final = 0x30
SET: Final = 0x31
CONTEXT: Final = 0x80
CONTEXT_CONSTRUCTED: Final = 0xA0

_CONSTRUCTED: Final = 0x20
_CLASS: Final = 0xC0
_NUMBER: Final = 0x1F
_MAX_DEPTH: Final = 16
"""A request of the profile nests 9 deep; recursion ends well before Python's own limit."""
_MAX_LENGTH_BYTES: Final = 3
_LONG: Final = 0x80
"""The first length byte that is not the length itself (8.1.3.5)."""
_PRINTABLE: Final = re.compile(rb"[A-Za-z0-9 '()+,\-./:=?]*")


class DerMalformed(ValueError):
    """The bytes are not DER; the message tells the rule, never the bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """One value: its tag, its content, all of its bytes and, where constructed, its parts."""

    tag: int
    content: bytes
    der: bytes
    children: tuple["Element", ...]


def parse(data: bytes) -> Element:
    """Read one value and nothing else. The caller has bounded `data`.

    Raises DerMalformed.
    """
    element, end = _read(data, 0, _MAX_DEPTH)
    if end != len(data):
        raise DerMalformed("trailing bytes")
    return element


def encode(tag: int, content: bytes) -> bytes:
    """Write one value whose content is DER already."""
    size = len(content)
    if size < _LONG:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, _LONG | len(length)]) + length + content


def integer(element: Element) -> int:
    """Take an INTEGER.

    Raises DerMalformed.
    """
    if element.tag != INTEGER:
        raise DerMalformed("not an INTEGER")
    return int.from_bytes(element.content, "big", signed=True)


def whole_bits(element: Element) -> bytes:
    """Take a BIT STRING of whole bytes.

    Raises DerMalformed.
    """
    if element.tag != BIT_STRING or element.content[0] != 0:
        raise DerMalformed("not a BIT STRING of whole bytes")
    return element.content[1:]


def parts(element: Element, tag: int, *, at_least: int, at_most: int) -> tuple[Element, ...]:
    """Take the parts of a constructed value that has this tag and as many of them.

    Raises DerMalformed.
    """
    if element.tag != tag or not at_least <= len(element.children) <= at_most:
        raise DerMalformed("not the structure that is expected")
    return element.children


def _read(data: bytes, start: int, depth: int) -> tuple[Element, int]:
    if depth == 0:
        raise DerMalformed("nested too deeply")
    tag, size, start_of_content = _read_header(data, start)
    end = start_of_content + size
    if end > len(data):
        raise DerMalformed("data ends early")
    content = data[start_of_content:end]
    children: list[Element] = []
    if tag & _CONSTRUCTED:
        position = 0
        while position < size:
            child, position = _read(content, position, depth - 1)
            children.append(child)
    element = Element(tag=tag, content=content, der=data[start:end], children=tuple(children))
    _check(element)
    return element, end


def _read_header(data: bytes, start: int) -> tuple[int, int, int]:
    """Read tag and length; return (tag, length of the content, start of the content)."""
    if len(data) < start + 2:
        raise DerMalformed("data ends early")
    tag, first = data[start], data[start + 1]
    if tag & _CLASS not in {0, CONTEXT} or tag & _NUMBER == _NUMBER or tag == 0:
        raise DerMalformed("tag is not one of the profile")
    if first < _LONG:
        return tag, first, start + 2
    count = first & 0x7F
    encoded = data[start + 2 : start + 2 + count]
    if not 1 <= count <= _MAX_LENGTH_BYTES or len(encoded) != count:
        raise DerMalformed("length is indefinite or too large")
    size = int.from_bytes(encoded, "big")
    if size < _LONG or encoded[0] == 0:
        raise DerMalformed("length is not minimal")
    return tag, size, start + 2 + count


def _check(element: Element) -> None:
    """Check what X.690 sections 8 and 11 ask of the content of a type."""
    rule = _RULES.get(element.tag)
    if rule is None:
        # Other universal types are primitive, and opaque here; SEQUENCE and SET never are.
        number = element.tag & _NUMBER
        valid = bool(element.tag & _CLASS) or (element.tag == number and number not in {16, 17})
    else:
        valid = rule(element)
    if not valid:
        raise DerMalformed("content is not DER of its type")


def _is_boolean(element: Element) -> bool:
    return element.content in {b"\x00", b"\xff"}


def _is_integer(element: Element) -> bool:
    """No more bytes than two's complement needs (8.3.2)."""
    content = element.content
    if len(content) > 1:
        return content[0] not in {0x00, 0xFF} or content[0] >> 7 != content[1] >> 7
    return len(content) == 1


def _is_bit_string(element: Element) -> bool:
    """At most seven unused bits, all of them zero (8.6.2, 11.2.1)."""
    if not element.content:
        return False
    unused, *bits = element.content
    return unused < 8 and (not bits[-1] & ((1 << unused) - 1) if bits else unused == 0)  # noqa: PLR2004


def _is_object_identifier(element: Element) -> bool:
    """Each number ends, and none begins with a zero digit (8.19.2)."""
    *_, last = element.content or b"\x80"
    return last < _LONG and re.search(rb"(?:^|[\x00-\x7f])\x80", element.content, re.DOTALL) is None


def _is_utf8(element: Element) -> bool:
    try:
        element.content.decode("utf-8", errors="strict")
    except UnicodeDecodeError:
        return False
    return True


def _is_printable(element: Element) -> bool:
    return _PRINTABLE.fullmatch(element.content) is not None


def _is_ordered(element: Element) -> bool:
    encodings = [child.der for child in element.children]
    return encodings == sorted(encodings)


_RULES: Final[Mapping[int, Callable[[Element], bool]]] = MappingProxyType(
    {
        BOOLEAN: _is_boolean,
        INTEGER: _is_integer,
        BIT_STRING: _is_bit_string,
        NULL: lambda element: not element.content,
        OBJECT_IDENTIFIER: _is_object_identifier,
        UTF8_STRING: _is_utf8,
        PRINTABLE_STRING: _is_printable,
        SEQUENCE: lambda _: True,
        SET: _is_ordered,
    }
)
