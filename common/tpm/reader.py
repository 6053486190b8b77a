"""A bounded reader of big-endian structures: nothing is read twice, skipped or left over.

Its errors tell position and broken rule, never the bytes: they may end in a CSR's condition.
"""

from struct import Struct


class StructureMalformed(ValueError):
    """The bytes are not the TPM structure that they should be.

    Callers turn it into the leaf of common/errors.py that tells which of their inputs is bad.
    """

    def __init__(self, rule: str, position: int) -> None:
        """Tell which rule is broken at which byte."""
        super().__init__(f"{rule} at byte {position}")
        self.rule = rule
        self.position = position


class Reader:
    """Reads one buffer from its start to its very end."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        """Start at the first byte of `data`."""
        self._data = data
        self._position = 0

    @property
    def position(self) -> int:
        """How many bytes have been read."""
        return self._position

    def fail(self, rule: str) -> StructureMalformed:
        """Make the error for a rule that what was just read breaks."""
        return StructureMalformed(rule, self._position)

    def take(self, size: int) -> bytes:
        """Read exactly `size` bytes."""
        end = self._position + size
        if end > len(self._data):
            raise self.fail("data ends early")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def uint(self, size: int) -> int:
        """Read an unsigned integer of `size` bytes."""
        return int.from_bytes(self.take(size), "big")

    def uint16(self) -> int:
        """Read an unsigned integer of 2 bytes, as `integer` does, but in one step."""
        data, begin = self._data, self._position
        if begin + 2 > len(data):
            raise self.fail("data ends early")
        self._position = begin + 2
        return data[begin] << 8 | data[begin + 1]

    def unpack(self, form: Struct) -> tuple[int, ...]:
        """Read several unsigned integers at once: `form` is big-endian and has nothing else."""
        begin = self._position
        end = begin + form.size
        if end > len(self._data):
            raise self.fail("data ends early")
        self._position = end
        return form.unpack_from(self._data, begin)

    def tpm2b(self, limit: int) -> bytes:
        """Read a TPM2B: a 2-byte size, at most `limit`, and as many bytes."""
        # As integer and take, but in one: half of what is read is read here
        data, begin = self._data, self._position + 2
        if begin > len(data):
            raise self.fail("data ends early")
        size = data[begin - 2] << 8 | data[begin - 1]
        self._position = begin
        if size > limit:
            raise self.fail("buffer is over its size limit")
        end = begin + size
        if end > len(data):
            raise self.fail("data ends early")
        self._position = end
        return data[begin:end]

    def finish(self) -> None:
        """Require that everything has been read."""
        if self._position != len(self._data):
            raise self.fail("trailing bytes")


def tpm2b(data: bytes) -> bytes:
    """Write a TPM2B: a 2-byte size and the bytes."""
    return len(data).to_bytes(2, "big") + data


def pack_uints(*values: tuple[int, int]) -> bytes:
    """Write unsigned integers, each given as (value, bytes)."""
    return b"".join(value.to_bytes(size, "big") for value, size in values)
