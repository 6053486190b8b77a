"""Certificates as TPMs store them, cut into one piece each but otherwise left alone.

NV headers, padding and odd encodings go to the signer as they were found: it judges them, and
the operator sees them there. Only where one NV index holds several certificates, or one
certificate goes on in the next index (Intel's on-die chains), pieces have to be made here.
"""

from collections.abc import Sequence
from typing import Final

_SEQUENCE: Final = b"\x30\x82"
"""A DER SEQUENCE with a 2-byte length, as every certificate is."""
_HEADER: Final = 4


def split_chain(contents: Sequence[bytes]) -> tuple[bytes, ...]:
    """Cut the contents of the chain's NV indices, in their order, into certificates.

    Bytes that begin no certificate stay with the piece before them.
    """
    pieces: list[bytes] = []
    rest = b""
    for content in contents:
        rest += content
        while rest.startswith(_SEQUENCE) and len(rest) > (size := _size(rest)):
            if not rest.startswith(_SEQUENCE, size):
                break
            pieces.append(rest[:size])
            rest = rest[size:]
        if not rest.startswith(_SEQUENCE) or len(rest) >= _size(rest):
            pieces.append(rest)
            rest = b""
    return tuple(piece for piece in (*pieces, rest) if piece)


def _size(der: bytes) -> int:
    return _HEADER + int.from_bytes(der[2:_HEADER], "big")
