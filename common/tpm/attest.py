"""TPMS_ATTEST of type quote: a TPM's statement about its PCRs.

Parsing covers every byte, and encoding returns the same bytes. A wrong magic and a wrong type have
errors of their own: a wrong magic means that no TPM made the bytes (tpm2-tools CVE-2024-29038).

Source: TPM 2.0 Part 2, section 10.12.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple, Self

from common.tpm.constants import (
    TPM_GENERATED_VALUE,
    TPM_ST_ATTEST_CREATION,
    TPM_ST_ATTEST_QUOTE,
)
from common.tpm.pcrs import PcrSelection, encode_selection, read_selection
from common.tpm.reader import Reader, StructureMalformed, tpm2b

_HEAD: Final = Struct(">IH")
"""Magic and type."""
_COUNTERS: Final = Struct(">QIIBQ")
"""TPMS_CLOCK_INFO and firmwareVersion."""
_MAX_NAME: Final = 2 + 64
"""Bytes of a Name: the algorithm and the largest digest."""
_MAX_DATA: Final = 2 + 64
"""Bytes of TPM2B_DATA: sizeof(TPMT_HA)."""
_MAX_DIGEST: Final = 64


class AttestNotGenerated(StructureMalformed):
    """The magic is wrong: no TPM made these bytes."""


class AttestNotQuote(StructureMalformed):
    """A TPM made these bytes, but they are not a quote."""


class ClockInfo(NamedTuple):
    """TPMS_CLOCK_INFO; `clock` is in milliseconds of the TPM's clock."""

    clock: int
    reset_count: int
    restart_count: int
    safe: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Attest:
    """TPMS_ATTEST with the right magic and of type quote.

    For keys outside the endorsement and platform hierarchies the TPM obfuscates the counters and
    `firmware_version`.
    """

    qualified_signer: bytes
    extra_data: bytes
    clock_info: ClockInfo
    firmware_version: int
    selection: PcrSelection
    pcr_digest: bytes

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Parse exactly one TPMS_ATTEST, without a size prefix.

        Raises:
            AttestNotGenerated: the magic is wrong.
            AttestNotQuote: the type is not quote.
            StructureMalformed: another rule is broken.

        """
        reader = Reader(data)
        magic, kind = reader.unpack(_HEAD)
        if magic != TPM_GENERATED_VALUE:
            raise AttestNotGenerated("magic must be TPM_GENERATED_VALUE", 0)
        if kind != TPM_ST_ATTEST_QUOTE:
            raise AttestNotQuote("type must be TPM_ST_ATTEST_QUOTE", reader.position)
        qualified_signer = reader.tpm2b(_MAX_NAME)
        extra_data = reader.tpm2b(_MAX_DATA)
        clock, reset_count, restart_count, safe, firmware_version = reader.unpack(_COUNTERS)
        if safe not in {0, 1}:
            raise reader.fail("safe must be YES or NO")
        attest = cls(
            qualified_signer=qualified_signer,
            extra_data=extra_data,
            clock_info=ClockInfo(clock, reset_count, restart_count, bool(safe)),
            firmware_version=firmware_version,
            selection=read_selection(reader),
            pcr_digest=reader.tpm2b(_MAX_DIGEST),
        )
        reader.finish()
        return attest

    def encode(self) -> bytes:
        """Return the TPMS_ATTEST."""
        clock = self.clock_info
        return (
            _HEAD.pack(TPM_GENERATED_VALUE, TPM_ST_ATTEST_QUOTE)
            + tpm2b(self.qualified_signer)
            + tpm2b(self.extra_data)
            + _COUNTERS.pack(
                clock.clock,
                clock.reset_count,
                clock.restart_count,
                clock.safe,
                self.firmware_version,
            )
            + encode_selection(self.selection)
            + tpm2b(self.pcr_digest)
        )


def created_object(data: bytes) -> bytes:
    """Return the Name of the object that a TPMS_ATTEST of type creation says the TPM created.

    Raises `StructureMalformed`: the bytes are no such statement of a TPM.
    """
    reader = Reader(data)
    if reader.unpack(_HEAD) != (TPM_GENERATED_VALUE, TPM_ST_ATTEST_CREATION):
        raise reader.fail("magic and type must be those of a statement about a creation")
    reader.tpm2b(_MAX_NAME)
    reader.tpm2b(_MAX_DATA)
    reader.unpack(_COUNTERS)
    name = reader.tpm2b(_MAX_NAME)
    reader.tpm2b(_MAX_DIGEST)
    reader.finish()
    return name
