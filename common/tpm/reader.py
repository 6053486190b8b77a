"""A bounded reader of big-endian structures, from the first byte to the last.

Its errors name position and broken rule, but never the bytes: a CSR's condition may show them.
"""

from struct import Struct


class StructureMalformed(ValueError):
    """The bytes are not the expected TPM structure.

    Each caller raises its own error, which names the input.
    """

    def __init__(self, rule: str, position: int) -> None:
        """Name the broken rule, and the byte after which it was found."""
        super().__init__(f"{rule} at byte {position}")
        self.rule = rule
        self.position = position


class Reader:
    """Reads one buffer from its start to its end."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        """Start at the first byte of `data`."""
        self._data = data
        self._position = 0

    @property
    def position(self) -> int:
        """Number of bytes that were read."""
        return self._position

    @property
    def at_end(self) -> bool:
        """Whether all bytes were read."""
        return self._position == len(self._data)

    def fail(self, rule: str) -> StructureMalformed:
        """Return the error for a rule that the last read value breaks."""
        return StructureMalformed(rule, self._position)

    def take(self, size: int) -> bytes:
        """Read exactly `size` bytes."""
        end = self._position + size
        if end > len(self._data):
            raise self.fail("data ends early")
        data = self._data[self._position : end]
        self._position = end
        return data

    def uint(self, size: int) -> int:
        """Read an unsigned integer of `size` bytes."""
        return int.from_bytes(self.take(size), "big")

    def uint16(self) -> int:
        """Read an unsigned integer of 2 bytes, faster than `uint`."""
        data, begin = self._data, self._position
        if begin + 2 > len(data):
            raise self.fail("data ends early")
        self._position = begin + 2
        return data[begin] << 8 | data[begin + 1]

    def unpack(self, form: Struct) -> tuple[int, ...]:
        """Read several unsigned integers. `form` is big-endian and has integers only."""
        begin = self._position
        end = begin + form.size
        if end > len(self._data):
            raise self.fail("data ends early")
        self._position = end
        return form.unpack_from(self._data, begin)

    def tpm2b(self, limit: int) -> bytes:
        """Read a TPM2B: a 2-byte size, at most `limit`, and as many bytes."""
        # This is `uint16` and `take` in one step, since half of all reads are TPM2Bs.
        data, begin = self._data, self._position + 2
        if begin > len(data):
            raise self.fail("data ends early")
        size = data[begin - 2] << 8 | data[begin - 1]
        self._position = begin
        if size > limit:
            raise self.fail("buffer exceeds its size limit")
        end = begin + size
        if end > len(data):
            raise self.fail("data ends early")
        self._position = end
        return data[begin:end]

    def finish(self) -> None:
        """Require that all bytes were read."""
        if not self.at_end:
            raise self.fail("trailing bytes")


def tpm2b(data: bytes) -> bytes:
    """Return a TPM2B: a 2-byte size and the bytes."""
    return len(data).to_bytes(2, "big") + data


def pack_uints(*values: tuple[int, int]) -> bytes:
    """Return unsigned integers in big-endian form, each given as (value, number of bytes)."""
    return b"".join(value.to_bytes(size, "big") for value, size in values)
