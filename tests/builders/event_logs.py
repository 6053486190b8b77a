"""Event logs in the format that firmware writes. Tests change single events."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from common.tpm.constants import BANKS

GLOBAL = UUID("8be4df61-93ca-11d2-aa0d-00e098032b8c")
IMAGE_SECURITY = UUID("d719b2cb-3d3a-4596-a3bc-dad00e67656f")

EV_NO_ACTION = 0x00000003
EV_SEPARATOR = 0x00000004
EV_EFI_VARIABLE_DRIVER_CONFIG = 0x80000001
EV_EFI_BOOT_SERVICES_APPLICATION = 0x80000003
EV_EFI_ACTION = 0x80000007
EV_EFI_HCRTM_EVENT = 0x80000010

SEPARATOR = b"\0\0\0\0"
CALLING = b"Calling EFI Application from Boot Option"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One event. Its digest is that of `measured`, by default that of the data."""

    pcr: int
    type: int
    data: bytes
    measured: bytes | None = None

    def digest(self, bank: str) -> bytes:
        """Return the digest of the measured bytes."""
        content = self.data if self.measured is None else self.measured
        return hashlib.new(bank, content).digest()


class InOneBank(Measured):
    """An event whose data was measured in SHA-256, and something else in the other banks."""

    def digest(self, bank: str) -> bytes:
        """Return the digest of the measured bytes."""
        content = self.data if bank == "sha256" else b"something else"
        return hashlib.new(bank, content).digest()


def variable(
    name: str, value: bytes, *, guid: UUID = GLOBAL, pcr: int = 7, measured: bytes | None = None
) -> Measured:
    """Measure a UEFI variable."""
    text = name.encode("utf-16-le")
    data = (
        guid.bytes_le
        + len(name).to_bytes(8, "little")
        + len(value).to_bytes(8, "little")
        + text
        + value
    )
    return Measured(pcr=pcr, type=EV_EFI_VARIABLE_DRIVER_CONFIG, data=data, measured=measured)


def application(image: bytes) -> Measured:
    """Measure an application: the digest is that of its image, the data is its path."""
    return Measured(
        pcr=4, type=EV_EFI_BOOT_SERVICES_APPLICATION, data=b"path of " + image[:4], measured=image
    )


def separator(pcr: int) -> Measured:
    """Measure the separator: the firmware extends a PCR no more after it."""
    return Measured(pcr=pcr, type=EV_SEPARATOR, data=SEPARATOR)


def firmware(
    *, secure_boot: bool = True, version: str = "", kernel: bytes = b"kernel"
) -> list[Measured]:
    """Return the events of a boot: Secure Boot variables, a shim and a kernel."""
    return [
        Measured(pcr=0, type=8, data=f"{version}\0".encode("utf-16-le")),
        variable("SecureBoot", b"\1" if secure_boot else b"\0"),
        variable("PK", b"platform key"),
        variable("KEK", b"key exchange keys"),
        variable("db", b"signature database", guid=IMAGE_SECURITY),
        variable("dbx", b"revoked signatures", guid=IMAGE_SECURITY),
        *(separator(pcr) for pcr in (0, 1, 2, 3)),
        Measured(pcr=4, type=EV_EFI_ACTION, data=CALLING),
        *(separator(pcr) for pcr in (4, 5, 6, 7)),
        application(b"shim"),
        application(kernel),
        Measured(pcr=9, type=13, data=b"initrd"),
    ]


def header(banks: Iterable[str]) -> bytes:
    """Return the Specification ID event, with the sizes of all digests."""
    algorithms = b"".join(
        BANKS[bank].to_bytes(2, "little") + hashlib.new(bank).digest_size.to_bytes(2, "little")
        for bank in banks
    )
    count = len(list(banks)).to_bytes(4, "little")
    data = b"Spec ID Event03\0" + bytes(4) + b"\0\2\0\2" + count + algorithms + b"\0"
    return event_1(EV_NO_ACTION, data)


def event_1(event_type: int, data: bytes) -> bytes:
    """Return an event of the SHA-1 format, in PCR 0."""
    head = bytes(4) + event_type.to_bytes(4, "little") + bytes(20)
    return head + len(data).to_bytes(4, "little") + data


def event_2(event: Measured, banks: Iterable[str]) -> bytes:
    """Return an event with a digest for each bank."""
    digests = [BANKS[bank].to_bytes(2, "little") + event.digest(bank) for bank in banks]
    return (
        event.pcr.to_bytes(4, "little")
        + event.type.to_bytes(4, "little")
        + len(digests).to_bytes(4, "little")
        + b"".join(digests)
        + len(event.data).to_bytes(4, "little")
        + event.data
    )


def hcrtm_event(pcr: int = 0) -> Measured:
    """Measure what the H-CRTM hashed before TPM2_Startup."""
    return Measured(pcr=pcr, type=EV_EFI_HCRTM_EVENT, data=b"HCRTM", measured=b"code of the H-CRTM")


def startup_locality(locality: int) -> Measured:
    """Record the locality of TPM2_Startup. This event extends no PCR."""
    data = b"StartupLocality\0" + bytes([locality])
    return Measured(pcr=0, type=EV_NO_ACTION, data=data)


def log_of(events: Iterable[Measured], banks: Iterable[str] = ("sha256",)) -> bytes:
    """Return a log."""
    banks = tuple(banks)
    return header(banks) + b"".join(event_2(event, banks) for event in events)


def extended(
    events: Iterable[Measured], selection: Mapping[str, Iterable[int]], *, locality: int = 0
) -> dict[str, dict[int, bytes]]:
    """Return the PCR values of a TPM after these events."""
    events = list(events)
    values: dict[str, dict[int, bytes]] = {}
    for bank, indices in selection.items():
        values[bank] = {}
        for index in indices:
            value = bytes(hashlib.new(bank).digest_size)
            if index == 0:
                value = value[:-1] + bytes([locality])
            for event in events:
                if event.pcr == index and event.type != EV_NO_ACTION:
                    value = hashlib.new(bank, value + event.digest(bank)).digest()
            values[bank][index] = value
    return values
