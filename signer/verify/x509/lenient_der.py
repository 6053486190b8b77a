"""A lenient reader of ASN.1: it accepts non-minimal lengths and unsorted sets.

Vendors' certificates are not all DER. An authority's signature covers everything that is read
here, before a check relies on it. Requests are signed by their own sender alone, so
common/requests/pkcs10.py reads them as strict DER. Source: ITU-T X.690, section 8.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

BOOLEAN: Final = 0x01
INTEGER: Final = 0x02
BIT_STRING: Final = 0x03
OCTET_STRING: Final = 0x04
OBJECT_IDENTIFIER: Final = 0x06
SEQUENCE: Final = 0x30
SET: Final = 0x31

_TAG_NUMBER_BITS: Final = 0x1F

_MAX_OID: Final = 128
"""Bytes. OIDs in certificates have about a dozen; Python cannot format a number of 4300 digits."""

Element = tuple[int, bytes, bytes]
"""Tag, content, and the whole encoding of one element."""


class CertificateMalformed(ValueError):
    """The bytes are not a readable certificate."""


def elements(data: bytes) -> Iterator[Element]:
    """Yield each element; only low tag numbers and definite lengths are supported.

    Raises `CertificateMalformed`.
    """
    position, end = 0, len(data)
    while position < end:
        start, tag = position, data[position]
        if tag & _TAG_NUMBER_BITS == _TAG_NUMBER_BITS or end < position + 2:
            raise CertificateMalformed("a tag or a length is not supported")
        size = data[position + 1]
        position += 2
        if size & 0x80:
            count = size & 0x7F
            if not 1 <= count <= 4 or end < position + count:  # noqa: PLR2004 - 4 GiB
                raise CertificateMalformed("a length is indefinite or too large")
            size = int.from_bytes(data[position : position + count], "big")
            position += count
        content, position = position, position + size
        if end < position:
            raise CertificateMalformed("the data ends early")
        yield tag, data[content:position], data[start:position]


def single_element(data: bytes) -> Element:
    """Return the element that makes up all of the data. Raises `CertificateMalformed`."""
    parsed = list(elements(data))
    if len(parsed) != 1:
        raise CertificateMalformed("there is not exactly one element")
    return parsed[0]


def children(element: Element) -> list[Element]:
    """Return the elements of a SEQUENCE or SET. Raises `CertificateMalformed`."""
    if element[0] not in {SEQUENCE, SET}:
        raise CertificateMalformed("a part is missing")
    return list(elements(element[1]))


def oid(element: Element) -> str:
    """Return an OBJECT IDENTIFIER in dotted form. Raises `CertificateMalformed`."""
    tag, content, _ = element
    if tag != OBJECT_IDENTIFIER or not content or content[-1] & 0x80:
        raise CertificateMalformed("an object identifier is missing")
    if len(content) > _MAX_OID:
        raise CertificateMalformed("an object identifier is too long")
    return _dotted(content)


@lru_cache(maxsize=256)
def _dotted(content: bytes) -> str:
    """Format the content of an OID; certificates repeat a few, so the results are cached."""
    arcs, value = list[int](), 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            arcs.append(value)
            value = 0
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, (first, arcs[0] - first * 40, *arcs[1:])))


def bits(element: Element) -> bytes:
    """Return the content of a BIT STRING of whole bytes. Raises `CertificateMalformed`."""
    if element[0] != BIT_STRING or element[1][:1] != b"\0":
        raise CertificateMalformed("a bit string is missing")
    return element[1][1:]
