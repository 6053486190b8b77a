"""TPMS_ATTEST of type quote: what a TPM says about its PCRs.

Every byte is accounted for, and written back the same. The three ways to fail are told apart,
because a wrong magic means that somebody signed bytes that no TPM made (tpm2-tools CVE-2024-29038).

Source: TPM 2.0 Part 2, section 10.12.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple, Self

from common.tpm.constants import TPM_GENERATED_VALUE, TPM_ST_ATTEST_QUOTE
from common.tpm.pcrs import PcrSelection, encode_selection, read_selection
from common.tpm.reader import Reader, StructureMalformed, tpm2b

_HEAD: Final = Struct(">IH")
"""Magic and type."""
_COUNTERS: Final = Struct(">QIIBQ")
"""TPMS_CLOCK_INFO and firmwareVersion."""
_MAX_NAME: Final = 2 + 64
"""A Name: the algorithm and its largest digest."""
_MAX_DATA: Final = 2 + 64
"""TPM2B_DATA: sizeof(TPMT_HA)."""
_MAX_DIGEST: Final = 64


class AttestNotGenerated(StructureMalformed):
    """The magic is wrong: this was not made inside a TPM."""


class AttestNotQuote(StructureMalformed):
    """A TPM made this, but it is no quote."""


class ClockInfo(NamedTuple):
    """TPMS_CLOCK_INFO; `clock` in milliseconds of the TPM's own, `safe` as its TPMI_YES_NO."""

    clock: int
    reset_count: int
    restart_count: int
    safe: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Attest:
    """TPMS_ATTEST with the right magic and type quote.

    Counters and `firmware_version` are obfuscated by the TPM for keys outside its endorsement and
    platform hierarchies.
    """

    qualified_signer: bytes
    extra_data: bytes
    clock_info: ClockInfo
    firmware_version: int
    selection: PcrSelection
    pcr_digest: bytes

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Read a TPMS_ATTEST (without size prefix) and nothing else.

        Raises AttestNotGenerated for the magic, AttestNotQuote for the type, else
        StructureMalformed, of which both are kinds.
        """
        reader = Reader(data)
        magic, kind = reader.unpack(_HEAD)
        if magic != TPM_GENERATED_VALUE:
            raise AttestNotGenerated("magic is not TPM_GENERATED_VALUE", 0)
        if kind != TPM_ST_ATTEST_QUOTE:
            raise AttestNotQuote("type is not TPM_ST_ATTEST_QUOTE", reader.position)
        qualified_signer = reader.tpm2b(_MAX_NAME)
        extra_data = reader.tpm2b(_MAX_DATA)
        clock, reset_count, restart_count, safe, firmware_version = reader.unpack(_COUNTERS)
        if safe not in {0, 1}:
            raise reader.fail("safe is neither YES nor NO")
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
        """Write the TPMS_ATTEST."""
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
