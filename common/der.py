"""DER, written: one tag and one length around content that is DER already.

Reading is left to `cryptography`. Source: ITU-T X.690, sections 8.1 and 10.1.
"""

from typing import Final

UTF8_STRING: Final = 0x0C
SEQUENCE: Final = 0x30

_LONG: Final = 0x80
"""The first length byte that is not the length itself (8.1.3.5)."""


def encode(tag: int, content: bytes) -> bytes:
    """Write one value, its length in as few bytes as can be."""
    size = len(content)
    if size < _LONG:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, _LONG | len(length)]) + length + content
