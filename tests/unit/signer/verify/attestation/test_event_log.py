"""Event logs (Q4): parsing within limits, and replay as a TPM extends."""

import hashlib
import json
from pathlib import Path

import pytest

from signer.errors import EventLogMalformed
from signer.verify.attestation.event_log import parse_event_log
from tests.builders.event_logs import (
    EV_NO_ACTION,
    EV_SEPARATOR,
    Measured,
    event_2,
    extended,
    firmware,
    hcrtm_event,
    header,
    log_of,
    separator,
    startup_locality,
)

VECTORS = Path(__file__).parents[4] / "vectors" / "event-logs"
BOTH = ("sha256", "sha384")


@pytest.mark.parametrize("banks", [("sha256",), ("sha1", "sha256"), BOTH, ("sha512",)], ids=str)
def test_log_replays_to_the_pcrs_of_a_tpm(banks: tuple[str, ...]) -> None:
    """Every PCR of every bank; PCRs without events stay zero."""
    log = parse_event_log(log_of(firmware(), banks))
    assert log.banks == set(banks)
    for bank, values in extended(firmware(), dict.fromkeys(banks, range(24))).items():
        for index, value in values.items():
            assert log.replay(bank, index) == value
    assert log.replay(banks[0], 23) == bytes(hashlib.new(banks[0]).digest_size)


@pytest.mark.parametrize("locality", [0, 3, 4])
def test_pcr_0_starts_with_the_locality(locality: int) -> None:
    """The locality of TPM2_Startup, or of an H-CRTM."""
    events = [startup_locality(locality), *firmware()]
    log = parse_event_log(log_of(events))
    values = extended(events, {"sha256": (0, 1)}, locality=locality)["sha256"]
    assert {index: log.replay("sha256", index) for index in (0, 1)} == values


def test_pcr_0_starts_at_locality_4_after_an_hcrtm_event() -> None:
    """Firmware may leave out the StartupLocality event; such machines were refused."""
    events = [hcrtm_event(), *firmware()]
    log = parse_event_log(log_of(events))
    values = extended(events, {"sha256": (0, 1)}, locality=4)["sha256"]
    assert {index: log.replay("sha256", index) for index in (0, 1)} == values


@pytest.mark.parametrize("locality", [0, 3])
def test_a_recorded_locality_outranks_an_hcrtm_event(locality: int) -> None:
    for events in (
        [startup_locality(locality), hcrtm_event()],
        [hcrtm_event(), startup_locality(locality)],
    ):
        assert parse_event_log(log_of(events)).startup_locality == locality


def test_an_hcrtm_event_of_another_pcr_does_not_change_the_start_of_pcr_0() -> None:
    assert parse_event_log(log_of([hcrtm_event(pcr=1), *firmware()])).startup_locality == 0


def test_events_without_action_extend_nothing() -> None:
    """Whatever their PCR."""
    nothing = Measured(pcr=0xFFFFFFFF, type=EV_NO_ACTION, data=b"SP800-155 Event\0")
    log = parse_event_log(log_of([nothing, *firmware()]))
    assert len(log.events) == len(firmware())


def test_digests_of_unknown_algorithms_are_skipped() -> None:
    """SM3 next to SHA-256."""
    sm3 = b"\x12\0" + (32).to_bytes(2, "little")
    plain = header(("sha256",))
    head = plain[:28] + (len(plain) - 32 + 4).to_bytes(4, "little") + plain[32:56]
    head += (2).to_bytes(4, "little") + plain[60:64] + sm3 + b"\0"
    event = event_2(separator(4), ("sha256",))
    event = (
        event[:8] + (2).to_bytes(4, "little") + event[12:46] + b"\x12\0" + bytes(32) + event[46:]
    )
    log = parse_event_log(head + event)
    assert log.banks == {"sha256"}
    assert log.replay("sha256", 4) == extended([separator(4)], {"sha256": (4,)})["sha256"][4]


def of_algorithms(count: int) -> bytes:
    """Return a Specification ID event with this many algorithms, most of them unknown."""
    plain = header(("sha256",))
    more = b"".join(n.to_bytes(2, "little") + b"\x20\0" for n in range(0x100, 0xFF + count))
    size = (len(plain) - 32 + len(more)).to_bytes(4, "little")
    return (
        plain[:28] + size + plain[32:56] + count.to_bytes(4, "little") + plain[60:64] + more + b"\0"
    )


def test_log_has_sixteen_algorithms_at_most() -> None:
    """The TCG has assigned five so far."""
    assert parse_event_log(of_algorithms(16)).banks == {"sha256"}
    with pytest.raises(EventLogMalformed, match="1 to 16"):
        parse_event_log(of_algorithms(17))


@pytest.mark.parametrize("name", ["secure-boot-on", "secure-boot-off", "h-crtm"])
def test_recorded_logs_replay_to_their_pcrs(name: str) -> None:
    """Logs of real machines, and one whose PCRs swtpm held; README.md has the sources."""
    expected = json.loads((VECTORS / "pcrs.json").read_text())[name]
    log = parse_event_log((VECTORS / f"{name}.bin").read_bytes())
    for bank, values in expected.items():
        for index, value in values.items():
            assert log.replay(bank, int(index)).hex() == value


@pytest.mark.parametrize("event_type", [EV_NO_ACTION, EV_SEPARATOR])
def test_log_with_more_events_than_firmware_measures_is_refused(event_type: int) -> None:
    """Each answer with a log of 10 KiB took a second of CPU time and 30 MiB."""
    event = event_2(Measured(pcr=8, type=event_type, data=b""), ("sha256",))
    parse_event_log(log_of([]) + 8192 * event)
    with pytest.raises(EventLogMalformed, match="a log must have at most 8192 events"):
        parse_event_log(log_of([]) + 8193 * event)
