"""Certificates in the NV indices of a TPM, cut apart and otherwise unchanged.

The signer judges NV headers, padding and odd encodings, so they go to it unchanged, and its
operator sees them. Only a chain needs to be cut here: one NV index may hold several certificates,
and one certificate may continue in the next index (on-die certificates of Intel).
"""

from collections.abc import Sequence
from typing import Final

_SEQUENCE: Final = b"\x30\x82"
"""A DER SEQUENCE with a 2-byte length, as every certificate is."""
_HEADER: Final = 4


def split_chain(contents: Sequence[bytes]) -> tuple[bytes, ...]:
    """Cut the contents of the NV indices of the chain, in their order, into certificates.

    Bytes that do not begin a certificate stay with the piece before them.
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


def certificate_der(content: bytes) -> bytes:
    """Return the first thing in an NV index that looks like a certificate; empty if nothing does.

    For a person to read: the header of the TPM vendor and the padding are left out.
    """
    start = content.find(_SEQUENCE)
    return b"" if start < 0 else content[start : start + _size(content[start:])]


def _size(der: bytes) -> int:
    return _HEADER + int.from_bytes(der[2:_HEADER], "big")
