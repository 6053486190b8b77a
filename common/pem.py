"""PEM text in its one canonical form: 64 columns, LF, final LF, no headers, nothing between.

The API server reads only the first block of a request and skips what it does not know; here
nothing is skipped, so that both read the same (docs/protocol.md sections 2 and 4).
"""

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Final

_BEGIN: Final = re.compile(rb"-----BEGIN ([A-Z0-9 #]+)-----\n")
_COLUMNS: Final = 64


class PemMalformed(ValueError):
    """The text is not the canonical encoding of PEM blocks."""


def encode_block(label: str, data: bytes) -> bytes:
    """Write one block."""
    body = base64.b64encode(data)
    lines = [body[start : start + _COLUMNS] for start in range(0, len(body), _COLUMNS)]
    begin, end = (f"-----{word} {label}-----".encode() for word in ("BEGIN", "END"))
    return b"\n".join([begin, *lines, end, b""])


def _is_canonical(body: bytes, data: bytes) -> bool:
    """Tell whether this is what `encode_block` writes between its two lines."""
    encoded = binascii.b2a_base64(data, newline=False)
    full, rest = divmod(len(encoded), _COLUMNS)
    return (
        body.replace(b"\n", b"") == encoded
        and body[_COLUMNS :: _COLUMNS + 1] == b"\n" * full
        and len(body) == len(encoded) + full + bool(rest)
        and body.endswith(b"\n" if encoded else b"")
    )


def decode_blocks(text: bytes) -> Iterator[tuple[str, bytes]]:
    """Read block after block, as (label, bytes). The caller has bounded the text.

    Raises PemMalformed, at the latest at the end, unless `encode_block` writes the same text again.
    """
    position = 0
    while position < len(text):
        match = _BEGIN.match(text, position)
        if match is None:
            raise PemMalformed("text is not a sequence of PEM blocks")
        end_line = b"-----END %b-----\n" % match[1]
        end = text.find(end_line, match.end())
        if end < 0:
            raise PemMalformed("a PEM block does not end")
        body = text[match.end() : end]
        try:
            data = binascii.a2b_base64(body)
        except binascii.Error:
            raise PemMalformed("a PEM block is not base64") from None
        if not _is_canonical(body, data):
            raise PemMalformed("a PEM block is not written canonically")
        yield match[1].decode("ascii"), data
        position = end + len(end_line)
