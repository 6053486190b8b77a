"""Certificates' ASN.1 as it occurs: lengths that are not minimal and sets out of order are let be.

What is read so is covered by an authority's signature before it counts; requests, which nobody has
signed but their maker, are read by common/pkcs10.py instead. Source: ITU-T X.690, section 8.
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

_NUMBER: Final = 0x1F

_MAX_OID: Final = 128
"""Bytes; those of certificates have a dozen, and Python writes no number of 4300 digits."""

Element = tuple[int, bytes, bytes]
"""Tag, content, and all bytes of one element."""


class CertificateMalformed(ValueError):
    """The bytes are no certificate that can be read."""


def elements(data: bytes) -> Iterator[Element]:
    """Walk over elements with low tag numbers and definite lengths, minimal or not.

    Raises CertificateMalformed.
    """
    position = 0
    while position < len(data):
        start, tag = position, data[position]
        if tag & _NUMBER == _NUMBER or len(data) < position + 2:
            raise CertificateMalformed("a tag or length is not one of a certificate")
        size = data[position + 1]
        position += 2
        if size & 0x80:
            count = size & 0x7F
            if not 1 <= count <= 4 or len(data) < position + count:  # noqa: PLR2004 - 4 GiB
                raise CertificateMalformed("a length is indefinite or too large")
            size = int.from_bytes(data[position : position + count], "big")
            position += count
        if len(data) < position + size:
            raise CertificateMalformed("it ends early")
        yield tag, data[position : position + size], data[start : position + size]
        position += size


def single_element(data: bytes) -> Element:
    """Take the one element that the data is. Raises CertificateMalformed."""
    found = list(elements(data))
    if len(found) != 1:
        raise CertificateMalformed("there is not exactly one element")
    return found[0]


def children(element: Element) -> list[Element]:
    """Take the parts of a SEQUENCE or SET. Raises CertificateMalformed."""
    if element[0] not in {SEQUENCE, SET}:
        raise CertificateMalformed("a part is missing")
    return list(elements(element[1]))


def oid(element: Element) -> str:
    """Write an OBJECT IDENTIFIER with dots. Raises CertificateMalformed."""
    tag, content, _ = element
    if tag != OBJECT_IDENTIFIER or not content or content[-1] & 0x80:
        raise CertificateMalformed("an object identifier is missing")
    if len(content) > _MAX_OID:
        raise CertificateMalformed("an object identifier is too long")
    return _dotted(content)


@lru_cache(maxsize=256)
def _dotted(content: bytes) -> str:
    """Write what certificates have again and again; one of strangers costs no more than a miss."""
    arcs, value = list[int](), 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            arcs.append(value)
            value = 0
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, (first, arcs[0] - first * 40, *arcs[1:])))


def bits(element: Element) -> bytes:
    """Take a BIT STRING of whole bytes. Raises CertificateMalformed."""
    if element[0] != BIT_STRING or element[1][:1] != b"\0":
        raise CertificateMalformed("a bit string is missing")
    return element[1][1:]
