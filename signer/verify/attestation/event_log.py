"""The TCG event log of a measured boot: parsing within limits, and replay.

A log proves nothing by itself. A replay to quoted PCRs proves the digests of its events and their
order. It does not prove the type of an event, and it proves the data of an event only if the digest
is that of the data (go-attestation, docs/event-log-disclosure.md).

Source: TCG PC Client Platform Firmware Profile, section 10 (event logging), crypto-agile format.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from common.tpm.constants import BANKS, DIGEST_SIZES, HASHES, PCR_COUNT
from common.tpm.reader import Reader, StructureMalformed
from signer.errors import EventLogMalformed

_EV_NO_ACTION: Final = 3
_EV_EFI_HCRTM_EVENT: Final = 0x80000010
_SPEC_ID: Final = b"Spec ID Event03\0"
_STARTUP_LOCALITY: Final = b"StartupLocality\0"
_MAX_ALGORITHMS: Final = 16
"""Limit of the banks in a log. The TCG has assigned five hash algorithms so far."""
_MAX_EVENTS: Final = 8192
"""Limit of the events in a log. The largest published logs have some hundred. A log of 4 MiB could
have 233,000: to parse them takes a second of CPU time and 30 MiB, for each answer."""
_HCRTM_LOCALITY: Final = 4
_LOCALITIES: Final = frozenset({0, 3, _HCRTM_LOCALITY})
"""Localities of TPM2_Startup (0 or 3) and of an H-CRTM (4): the start value of PCR 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PcrEvent:
    """One measurement; `data` is unproved until `digest_matches_data`."""

    pcr: int
    digests: Mapping[str, bytes]
    data: bytes

    def digest_matches_data(self, bank: str) -> bool:
        """Return whether the measured digest is that of the data."""
        return hashlib.new(bank, self.data).digest() == self.digests[bank]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLog:
    """All measurements of a log in their order, without events that extend no PCR."""

    banks: frozenset[str]
    startup_locality: int
    events: tuple[PcrEvent, ...]

    def replay(self, bank: str, pcr: int) -> bytes:
        """Return the value of the PCR after these events, from the start of the platform."""
        size = DIGEST_SIZES[BANKS[bank]]
        value = (self.startup_locality if pcr == 0 else 0).to_bytes(size, "big")
        for event in self.events:
            if event.pcr == pcr:
                value = hashlib.new(bank, value + event.digests[bank]).digest()
        return value


def parse_event_log(data: bytes) -> EventLog:
    """Parse a crypto-agile log. Each event must have one digest for each bank.

    Raises `EventLogMalformed`, which names the byte and the rule.
    """
    try:
        return _read_log(_Reader(data))
    except StructureMalformed as error:
        raise EventLogMalformed(f"event log: {error}") from None


class _Reader(Reader):
    """Reads little-endian structures within one buffer."""

    __slots__ = ()

    def integer(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")


def _read_log(reader: _Reader) -> EventLog:
    sizes = _read_header(reader)
    events: list[PcrEvent] = []
    recorded_locality: int | None = None
    default_locality = 0
    count = 0
    while not reader.at_end:
        count += 1
        if count > _MAX_EVENTS:
            raise reader.fail(f"a log must have at most {_MAX_EVENTS} events")
        event_type, event = _read_event(reader, sizes)
        if event_type != _EV_NO_ACTION:
            if event.pcr >= PCR_COUNT:
                raise reader.fail("a PCR must be at most 23")
            if event.pcr == 0 and event_type == _EV_EFI_HCRTM_EVENT:
                # TCG PC Client PFP: after an H-CRTM, PCR 0 starts at locality 4. Firmware may leave
                # out the StartupLocality event. No digest covers an event's type, but a false
                # type fails the replay of PCR 0.
                default_locality = _HCRTM_LOCALITY
            events.append(event)
        elif event.data.startswith(_STARTUP_LOCALITY):
            recorded_locality = _read_locality(reader, event.data)
    return EventLog(
        banks=frozenset(HASHES[alg] for alg in sizes if alg in HASHES),
        startup_locality=default_locality if recorded_locality is None else recorded_locality,
        events=tuple(events),
    )


def _read_header(reader: _Reader) -> Mapping[int, int]:
    """Read the first event, which has the SHA-1 format; return digest sizes by algorithm."""
    pcr, event_type, digest = reader.integer(4), reader.integer(4), reader.take(20)
    specification = _Reader(reader.take(reader.integer(4)))
    if (pcr, event_type, digest) != (0, _EV_NO_ACTION, bytes(20)):
        raise reader.fail("the first event must be the Specification ID event")
    if specification.take(16) != _SPEC_ID:
        raise reader.fail("the log must be crypto-agile")
    # Platform class, version, errata and uintnSize do not matter here.
    specification.take(8)
    count = specification.integer(4)
    if not 1 <= count <= _MAX_ALGORITHMS:
        raise reader.fail("the number of algorithms must be 1 to 16")
    sizes: dict[int, int] = {}
    for _ in range(count):
        algorithm, size = specification.integer(2), specification.integer(2)
        if algorithm in sizes or DIGEST_SIZES.get(algorithm, size) != size:
            raise reader.fail("an algorithm is repeated or has a wrong size")
        sizes[algorithm] = size
    specification.take(specification.integer(1))
    if not specification.at_end:
        raise reader.fail("the Specification ID event is too long")
    return sizes


def _read_event(reader: _Reader, sizes: Mapping[int, int]) -> tuple[int, PcrEvent]:
    """Read a TCG_PCR_EVENT2; return its type and the event."""
    pcr, event_type, count = (reader.integer(4) for _ in range(3))
    if count != len(sizes):
        raise reader.fail("an event must have one digest for each algorithm")
    digests: dict[int, bytes] = {}
    for _ in range(count):
        algorithm = reader.integer(2)
        if algorithm not in sizes or algorithm in digests:
            raise reader.fail("the algorithm of a digest is unknown or repeated")
        digests[algorithm] = reader.take(sizes[algorithm])
    data = reader.take(reader.integer(4))
    by_bank = {HASHES[alg]: digest for alg, digest in digests.items() if alg in HASHES}
    return event_type, PcrEvent(pcr=pcr, digests=by_bank, data=data)


def _read_locality(reader: _Reader, data: bytes) -> int:
    locality = data[len(_STARTUP_LOCALITY) :]
    if len(locality) != 1 or locality[0] not in _LOCALITIES:
        raise reader.fail("the startup locality must be 0, 3 or 4")
    return locality[0]
