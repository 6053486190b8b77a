"""The bounded reader returns all bytes, and never reads beyond the last one."""

from collections.abc import Callable
from struct import Struct

import pytest

from common.tpm.reader import Reader, StructureMalformed, pack_uints

READS: dict[str, tuple[Callable[[Reader], object], bytes, object]] = {
    "bytes": (lambda r: r.take(2), b"\1\2", b"\1\2"),
    "integer": (lambda r: r.uint(2), b"\1\2", 0x102),
    "word": (lambda r: r.uint16(), b"\1\2", 0x102),
    "integers": (lambda r: r.unpack(Struct(">BH")), b"\1\2\3", (1, 0x203)),
    "sized": (lambda r: r.tpm2b(1), b"\0\1\2", b"\2"),
    "sized, empty": (lambda r: r.tpm2b(0), b"\0\0", b""),
}


@pytest.mark.parametrize("name", READS)
def test_all_bytes_are_readable(name: str) -> None:
    read, data, value = READS[name]
    reader = Reader(data)
    assert read(reader) == value
    assert reader.position == len(data)
    reader.finish()


@pytest.mark.parametrize("name", READS)
def test_data_that_ends_a_byte_early_is_refused(name: str) -> None:
    read, data, _ = READS[name]
    with pytest.raises(StructureMalformed, match="data ends early"):
        read(Reader(data[:-1]))


def test_integers_are_concatenated() -> None:
    assert pack_uints((1, 1), (2, 2)) == b"\1\0\2"
