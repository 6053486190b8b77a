"""A strict DER parser for tests: a tree to edit, and a second opinion on the product's parser.

It accepts exactly the values whose encoding re-encodes to itself: definite minimal lengths, minimal
integers and object identifiers, booleans 0x00 or 0xff, sorted SETs, no unused bits set, strings of
their alphabet, no trailing bytes. It checks the types of certification requests; the content of
other primitive types is opaque.

Source: ITU-T X.690, sections 8, 10 and 11.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from common.formats.der import SEQUENCE, UTF8_STRING, encode

__all__ = [
    "BIT_STRING",
    "BOOLEAN",
    "CONTEXT",
    "CONTEXT_CONSTRUCTED",
    "INTEGER",
    "NULL",
    "OBJECT_IDENTIFIER",
    "OCTET_STRING",
    "PRINTABLE_STRING",
    "SEQUENCE",
    "SET",
    "UTF8_STRING",
    "DerMalformed",
    "Element",
    "encode",
    "parse",
    "whole_bits",
]

BOOLEAN: Final = 0x01
INTEGER: Final = 0x02
BIT_STRING: Final = 0x03
OCTET_STRING: Final = 0x04
NULL: Final = 0x05
OBJECT_IDENTIFIER: Final = 0x06
PRINTABLE_STRING: Final = 0x13
SET: Final = 0x31
CONTEXT: Final = 0x80
CONTEXT_CONSTRUCTED: Final = 0xA0

_CONSTRUCTED: Final = 0x20
_CLASS: Final = 0xC0
_NUMBER: Final = 0x1F
_MAX_DEPTH: Final = 16
"""A request of the profile nests 9 deep. The limit is well below Python's recursion limit."""
_MAX_LENGTH_BYTES: Final = 3
_LONG: Final = 0x80
"""Flag of the long form of a length (8.1.3.5)."""
_TAGS: Final = frozenset(
    tag for tag in range(1, 256) if tag & _CLASS in {0, CONTEXT} and tag & _NUMBER != _NUMBER
)
"""First bytes that are a whole tag: universal or context-specific, with a low number."""
_STRUCTURES: Final = frozenset({SEQUENCE, SET})
_PRINTABLE: Final = re.compile(rb"[A-Za-z0-9 '()+,\-./:=?]*")
_LEADING_ZERO: Final = re.compile(rb"(?:^|[\x00-\x7f])\x80", re.DOTALL)


class DerMalformed(ValueError):
    """The bytes are not DER. The message names the rule, never the bytes."""


class Element(NamedTuple):
    """One value: tag, content, whole encoding and, if constructed, its parts."""

    tag: int
    content: bytes
    der: bytes
    children: tuple["Element", ...]


def parse(data: bytes) -> Element:
    """Parse exactly one value. The caller has limited the size of `data`.

    Raises DerMalformed.
    """
    element, end = _read(data, 0, len(data), _MAX_DEPTH)
    if end != len(data):
        raise DerMalformed("trailing bytes")
    return element


def whole_bits(element: Element) -> bytes:
    """Return the content of a BIT STRING of whole bytes.

    Raises DerMalformed.
    """
    if element.tag != BIT_STRING or element.content[0] != 0:
        raise DerMalformed("not a BIT STRING of whole bytes")
    return element.content[1:]


def _read(data: bytes, start: int, limit: int, depth: int) -> tuple[Element, int]:
    """Parse the value that begins at `start` and ends before `limit`; return it and its end."""
    if depth == 0:
        raise DerMalformed("nested too deeply")
    if limit < start + 2:
        raise DerMalformed("data ends early")
    tag, size, begin = data[start], data[start + 1], start + 2
    if tag not in _TAGS:
        raise DerMalformed("tag is not one of the profile")
    if size >= _LONG:
        size, begin = _read_length(data, begin, limit)
    end = begin + size
    if end > limit:
        raise DerMalformed("data ends early")
    content = data[begin:end]
    children: list[Element] = []
    if tag & _CONSTRUCTED:
        while begin < end:
            child, begin = _read(data, begin, end, depth - 1)
            children.append(child)
        _require_structure(tag, children)
    else:
        _require_primitive(tag, content)
    return Element(tag, content, data[start:end], tuple(children)), end


def _read_length(data: bytes, begin: int, limit: int) -> tuple[int, int]:
    """Parse a length of the long form, after its first byte; return it and its end."""
    count = data[begin - 1] & 0x7F
    end = begin + count
    if not 1 <= count <= _MAX_LENGTH_BYTES or end > limit:
        raise DerMalformed("length is indefinite or too large")
    size = int.from_bytes(data[begin:end], "big")
    if size < _LONG or data[begin] == 0:
        raise DerMalformed("length is not minimal")
    return size, end


def _require_structure(tag: int, children: Sequence[Element]) -> None:
    """Refuse other constructed universal types, and unsorted sets (10.2, 11.6)."""
    if tag < CONTEXT and tag not in _STRUCTURES:
        raise DerMalformed("content is not DER of its type")
    if tag == SET and len(children) > 1:
        encodings = [child.der for child in children]
        if encodings != sorted(encodings):
            raise DerMalformed("content is not DER of its type")


def _require_primitive(tag: int, content: bytes) -> None:
    """Check the content of a type by X.690, sections 8 and 11."""
    rule = _RULES.get(tag)
    if rule is not None and not rule(content):
        raise DerMalformed("content is not DER of its type")


def _is_boolean(content: bytes) -> bool:
    return content in {b"\x00", b"\xff"}


def _is_integer(content: bytes) -> bool:
    """Return whether the integer has no leading bytes (8.3.2)."""
    if len(content) > 1:
        return content[0] not in {0x00, 0xFF} or content[0] >> 7 != content[1] >> 7
    return len(content) == 1


def _is_bit_string(content: bytes) -> bool:
    """Return whether there are at most seven unused bits, all zero (8.6.2, 11.2.1)."""
    if len(content) > 1:
        return content[0] < 8 and not content[-1] & ((1 << content[0]) - 1)
    return content == b"\0"


def _is_object_identifier(content: bytes) -> bool:
    """Return whether each number ends, and has no leading zero digit (8.19.2)."""
    return bool(content) and content[-1] < _LONG and _LEADING_ZERO.search(content) is None


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode("utf-8", errors="strict")
    except UnicodeDecodeError:
        return False
    return True


_RULES: Final[Mapping[int, Callable[[bytes], bool]]] = MappingProxyType(
    {
        BOOLEAN: _is_boolean,
        INTEGER: _is_integer,
        BIT_STRING: _is_bit_string,
        NULL: lambda content: not content,
        OBJECT_IDENTIFIER: _is_object_identifier,
        UTF8_STRING: _is_utf8,
        PRINTABLE_STRING: lambda content: _PRINTABLE.fullmatch(content) is not None,
        SEQUENCE & ~_CONSTRUCTED: lambda _: False,
        SET & ~_CONSTRUCTED: lambda _: False,
    }
)
