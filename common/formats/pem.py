"""PEM in one canonical form: 64 columns, LF, final LF, no headers, nothing between blocks.

The API server parses the first block of a request alone and skips unknown text. This module skips
nothing, so both parse the same bytes (docs/protocol.md sections 2 and 4).
"""

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Final

_BEGIN: Final = re.compile(rb"-----BEGIN ([A-Z0-9 #]+)-----\n")
_COLUMNS: Final = 64


class PemMalformed(ValueError):
    """The text is not the canonical encoding of its PEM blocks."""


def encode_block(label: str, data: bytes) -> bytes:
    """Return one block."""
    body = base64.b64encode(data)
    lines = [body[start : start + _COLUMNS] for start in range(0, len(body), _COLUMNS)]
    begin, end = (f"-----{word} {label}-----".encode() for word in ("BEGIN", "END"))
    return b"\n".join([begin, *lines, end, b""])


def _is_canonical(body: bytes, data: bytes) -> bool:
    """Return whether `encode_block` writes this body for the data."""
    encoded = binascii.b2a_base64(data, newline=False)
    full_lines, partial_line = divmod(len(encoded), _COLUMNS)
    return (
        body.replace(b"\n", b"") == encoded
        and body[_COLUMNS :: _COLUMNS + 1] == b"\n" * full_lines
        and len(body) == len(encoded) + full_lines + bool(partial_line)
        and body.endswith(b"\n" if encoded else b"")
    )


def decode_blocks(text: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield label and content of each block. The caller has limited the size of the text.

    Raises `PemMalformed`, at the latest after the last block, unless the text is canonical.
    """
    position = 0
    while position < len(text):
        match = _BEGIN.match(text, position)
        if match is None:
            raise PemMalformed("the text must be a sequence of PEM blocks")
        end_line = b"-----END %b-----\n" % match[1]
        end = text.find(end_line, match.end())
        if end < 0:
            raise PemMalformed("a PEM block has no end line")
        body = text[match.end() : end]
        try:
            data = binascii.a2b_base64(body)
        except binascii.Error:
            raise PemMalformed("a PEM block is not base64") from None
        if not _is_canonical(body, data):
            raise PemMalformed("a PEM block is not in canonical form")
        yield match[1].decode("ascii"), data
        position = end + len(end_line)
