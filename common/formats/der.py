"""Encode one DER value around content that is DER already.

`cryptography` does the decoding. Source: ITU-T X.690, sections 8.1 and 10.1.
"""

from typing import Final

UTF8_STRING: Final = 0x0C
SEQUENCE: Final = 0x30

_LONG: Final = 0x80
"""Flag of the long form, whose first byte counts the bytes of the length (8.1.3.5)."""


def encode(tag: int, content: bytes) -> bytes:
    """Return one value in DER, with the shortest length."""
    size = len(content)
    if size < _LONG:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, _LONG | len(length)]) + length + content
