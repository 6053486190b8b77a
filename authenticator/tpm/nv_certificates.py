"""Certificates in the NV indices of a TPM, cut apart and otherwise unchanged.

NV headers, padding and unusual encodings go to the signer unchanged: it verifies them, and its
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
    buffer = b""
    for content in contents:
        buffer += content
        while buffer.startswith(_SEQUENCE) and len(buffer) > (size := _size(buffer)):
            if not buffer.startswith(_SEQUENCE, size):
                break
            pieces.append(buffer[:size])
            buffer = buffer[size:]
        if not buffer.startswith(_SEQUENCE) or len(buffer) >= _size(buffer):
            pieces.append(buffer)
            buffer = b""
    return tuple(piece for piece in (*pieces, buffer) if piece)


def certificate_der(content: bytes) -> bytes:
    """Return the first bytes of an NV index that have the form of a certificate, or empty bytes.

    For output to users: the header of the TPM vendor and the padding are removed.
    """
    start = content.find(_SEQUENCE)
    return b"" if start < 0 else content[start : start + _size(content[start:])]


def _size(der: bytes) -> int:
    return _HEADER + int.from_bytes(der[2:_HEADER], "big")
