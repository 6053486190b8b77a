"""TPML_PCR_SELECTION: PCRs by bank.

Each selection has one accepted encoding (docs/protocol.md section 4): banks ascending by algorithm,
once each, with bitmaps of three bytes. Source: TPM 2.0 Part 2, sections 10.6 and 10.9.7.
"""

from collections.abc import Mapping
from functools import lru_cache
from struct import Struct
from typing import Final

from common.tpm.constants import BANKS, HASHES, PCR_COUNT
from common.tpm.reader import Reader

PcrSelection = Mapping[str, tuple[int, ...]]
"""PCR indices by bank, ascending. A bank that the TPM has not allocated is present and empty."""

_SIZEOF_SELECT: Final = PCR_COUNT // 8
_BANK: Final = Struct(">HB")
"""Hash algorithm and sizeofSelect."""


def read_selection(reader: Reader) -> PcrSelection:
    """Read a TPML_PCR_SELECTION from the reader's position.

    Raises `StructureMalformed` for every encoding that `encode_selection` does not write.
    """
    count = reader.uint(4)
    if count > len(BANKS):
        raise reader.fail("selection has too many banks")
    selection: dict[str, tuple[int, ...]] = {}
    last = 0
    for _ in range(count):
        bank, size = reader.unpack(_BANK)
        if bank not in HASHES:
            raise reader.fail("bank is unknown")
        if bank <= last:
            raise reader.fail("banks must be ascending, once each")
        if size != _SIZEOF_SELECT:
            raise reader.fail("sizeofSelect must be 3")
        selection[HASHES[bank]] = _indices(reader.take(_SIZEOF_SELECT))
        last = bank
    return selection


def parse_selection(data: bytes) -> PcrSelection:
    """Parse exactly one TPML_PCR_SELECTION.

    Raises `StructureMalformed`.
    """
    reader = Reader(data)
    selection = read_selection(reader)
    reader.finish()
    return selection


def encode_selection(selection: PcrSelection) -> bytes:
    """Return the TPML_PCR_SELECTION."""
    encoded = len(selection).to_bytes(4, "big")
    for bank, indices in sorted((BANKS[name], indices) for name, indices in selection.items()):
        bitmap = sum(1 << index for index in set(indices))
        encoded += _BANK.pack(bank, _SIZEOF_SELECT) + bitmap.to_bytes(_SIZEOF_SELECT, "little")
    return encoded


@lru_cache(maxsize=256)
def _indices(bitmap: bytes) -> tuple[int, ...]:
    bits = int.from_bytes(bitmap, "little")
    return tuple(index for index in range(PCR_COUNT) if bits >> index & 1)
