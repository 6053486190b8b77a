"""The measured boot (Q4): the log is of the quoted boot, and the boot keeps the policy's rules."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from signer.policy.policy import EventLogRules
from signer.verify.attestation.event_log import parse_event_log
from signer.verify.attestation.measured_boot import (
    MeasuredBoot,
    describe_event_log,
    verify_event_log,
)
from tests.builders.event_logs import (
    EV_EFI_ACTION,
    InOneBank,
    Measured,
    application,
    extended,
    firmware,
    log_of,
    separator,
    variable,
)
from tests.builders.scenario import Scenario

VECTORS = Path(__file__).parents[4] / "vectors" / "event-logs"
SELECTION = {"sha256": range(8)}
NO_RULES = EventLogRules(
    secure_boot=False,
    platform_keys=frozenset(),
    signature_databases=frozenset(),
    boot_loaders=frozenset(),
)


def digest(event: Measured, bank: str = "sha256") -> bytes:
    """Return the digest as policies list it."""
    return event.digest(bank)


PLATFORM_KEY, DATABASE = firmware()[2], firmware()[4]
SHIM, KERNEL = application(b"shim"), application(b"kernel")
ALL_RULES = EventLogRules(
    secure_boot=True,
    platform_keys=frozenset({digest(PLATFORM_KEY), bytes(32)}),
    signature_databases=frozenset({digest(DATABASE)}),
    boot_loaders=frozenset({digest(SHIM), digest(KERNEL)}),
)
SECURE_BOOT = replace(NO_RULES, secure_boot=True)
LOADERS = replace(NO_RULES, boot_loaders=ALL_RULES.boot_loaders)

Events = list[Measured]


def boot(events: Events, rules: EventLogRules, logged: Events | None = None) -> None:
    """Boot with `events`, and send a log of `logged`, by default the same."""
    log = log_of(events if logged is None else logged)
    verify_event_log(log, extended(events, SELECTION), rules)


def published(name: str) -> tuple[bytes, dict[str, dict[int, bytes]]]:
    """Return the log of a real machine, and the PCRs to which it replays; README.md has sources."""
    data = (VECTORS / f"{name}.bin").read_bytes()
    log = parse_event_log(data)
    return data, {"sha256": {index: log.replay("sha256", index) for index in range(8)}}


def test_boot_that_keeps_all_rules_passes() -> None:
    """Secure Boot on, known platform key and database, known loaders."""
    boot(firmware(), ALL_RULES)


def test_other_pcrs_without_events_are_not_replayed() -> None:
    """The kernel logs its measurements of files elsewhere."""
    for index in (8, 10):
        values = extended(firmware(), SELECTION)
        values["sha256"][index] = hashlib.sha256(b"ima").digest()
        verify_event_log(log_of(firmware()), values, ALL_RULES)


@pytest.mark.parametrize("index", range(8))
def test_firmware_pcr_without_events_may_have_its_start_value(index: int) -> None:
    untouched: Events = [e for e in firmware() if e.pcr != index]
    verify_event_log(log_of(untouched), extended(untouched, {"sha256": (index,)}), NO_RULES)


def test_digest_of_any_bank_satisfies_a_rule() -> None:
    banks = ("sha256", "sha384")
    values = extended(firmware(), dict.fromkeys(banks, range(8)))
    in_384 = replace(NO_RULES, platform_keys=frozenset({digest(PLATFORM_KEY, "sha384")}))
    verify_event_log(log_of(firmware(), banks), values, in_384)


def relabelled(events: Events) -> Events:
    """Log another type, which no digest covers."""
    return [events[0], replace(events[1], type=EV_EFI_ACTION), *events[2:]]


def test_event_types_do_not_matter() -> None:
    boot(firmware(), SECURE_BOOT, relabelled(firmware()))


def without_value(characters: int) -> Events:
    """Claim this length for the name of a platform key without a value."""
    data = variable("PK", b"").data
    data = data[:16] + characters.to_bytes(8, "little") + data[24:]
    return [*firmware()[:2], Measured(pcr=7, type=1, data=data), *firmware()[3:]]


def test_variable_without_a_value_is_accepted() -> None:
    """A rule is about its digest."""
    boot(without_value(2), SECURE_BOOT)


def test_return_from_a_loader_is_allowed() -> None:
    returned = b"Returning from EFI Application from Boot Option"
    action = Measured(pcr=4, type=EV_EFI_ACTION, data=returned)
    boot([*firmware(), action, application(b"shim")], LOADERS)


def test_q4_event_log_that_was_not_requested_is_ignored() -> None:
    """Its content does not matter."""
    Scenario(event_log=b"junk").verify_answer()


def test_boot_is_described_whatever_the_rules() -> None:
    """In mode Record a policy has few rules, and its draft needs all digests."""
    for rules in (ALL_RULES, SECURE_BOOT, LOADERS):
        shown = verify_event_log(log_of(firmware()), extended(firmware(), SELECTION), rules)
        assert shown == MeasuredBoot(
            secure_boot=True,
            platform_keys=frozenset({digest(PLATFORM_KEY)}),
            signature_databases=frozenset({digest(DATABASE)}),
            boot_loaders=frozenset({digest(SHIM), digest(KERNEL)}),
        )


def test_incomplete_secure_boot_variables_are_not_described() -> None:
    """Not even the variables before the wrong one."""
    events = firmware()
    events[3] = variable("KEK", b"other", measured=b"what is not in the log")
    shown = verify_event_log(log_of(events), extended(events, SELECTION), LOADERS)
    assert shown == MeasuredBoot(boot_loaders=LOADERS.boot_loaders)


@pytest.mark.parametrize("value", [b"", b"\0", b"\2", b"\1\0"])
def test_secure_boot_is_on_for_the_value_1_alone(value: bytes) -> None:
    events = [variable("SecureBoot", value), *firmware()[2:]]
    shown = verify_event_log(log_of(events), extended(events, SELECTION), LOADERS)
    assert shown.secure_boot is False


def test_pcrs_that_are_not_quoted_are_not_described() -> None:
    pcrs = extended(firmware(), {"sha256": (7,)})
    shown = verify_event_log(log_of(firmware()), pcrs, SECURE_BOOT)
    assert shown.secure_boot
    assert shown.boot_loaders == frozenset()
    pcrs = extended(firmware(), {"sha256": (4,)})
    shown = verify_event_log(log_of(firmware()), pcrs, LOADERS)
    assert shown == MeasuredBoot(boot_loaders=LOADERS.boot_loaders)


def test_number_of_described_loaders_is_limited() -> None:
    """Root on the node can extend PCR 4."""
    few = [*firmware(), *(application(b"%d" % n) for n in range(62))]
    shown = verify_event_log(log_of(few), extended(few, SELECTION), SECURE_BOOT)
    assert len(shown.boot_loaders) == 64
    many = [*few, application(b"one more")]
    shown = verify_event_log(log_of(many), extended(many, SELECTION), SECURE_BOOT)
    assert shown.boot_loaders == frozenset()


@pytest.mark.parametrize("on", [True, False])
def test_boot_of_a_published_log_is_described(*, on: bool) -> None:
    data, pcrs = published(f"secure-boot-{'on' if on else 'off'}")
    shown = verify_event_log(data, pcrs, SECURE_BOOT if on else NO_RULES)
    assert shown.secure_boot is on
    assert shown.boot_loaders
    assert shown.platform_keys


def described(events: Sequence[Measured]) -> MeasuredBoot:
    boot = describe_event_log(log_of(events), extended(events, SELECTION))
    assert boot is not None
    return boot


def test_version_of_the_firmware_is_the_first_text_before_the_separator() -> None:
    assert described(firmware(version="1.5 (2026)")).firmware == "1.5 (2026)"
    boot = describe_event_log(*published("secure-boot-off"))
    assert boot is not None
    assert boot.firmware == "GCE Virtual Firmware v1"


@pytest.mark.parametrize("version", ["1", "1" * 64])
def test_version_after_an_empty_text_is_described(version: str) -> None:
    empty, text = (replace(VERSION, data=each.encode("utf-16-le")) for each in ("", version))
    assert described([empty, text]).firmware == version


VERSION = Measured(pcr=0, type=8, data="1.5".encode("utf-16-le"))


@pytest.mark.parametrize(
    "events",
    [
        [separator(0), VERSION],
        [replace(separator(0), data=b"text", measured=b"\0\0\0\0"), VERSION],
        [replace(VERSION, measured=b"another version")],
        [replace(VERSION, data=("1" * 65).encode("utf-16-le"))],
        [replace(VERSION, data="1.\u0435".encode("utf-16-le"))],
        [replace(VERSION, data="1.\n5".encode("utf-16-le"))],
        [replace(VERSION, pcr=1)],
    ],
    ids=["later", "hidden separator", "not measured", "long", "no ASCII", "lines", "other PCR"],
)
def test_text_that_firmware_did_not_measure_is_no_version(events: list[Measured]) -> None:
    """Root can append events to a PCR, and write any log that replays."""
    assert described(events).firmware == ""


def test_version_that_was_measured_in_one_bank_alone_is_no_version() -> None:
    events = [InOneBank(pcr=VERSION.pcr, type=VERSION.type, data=VERSION.data), *firmware()]
    banks = ("sha256", "sha384")
    values = extended(events, dict.fromkeys(banks, range(8)))
    read = describe_event_log(log_of(events, banks), values)
    assert read is not None
    assert read.firmware == ""


def test_log_that_does_not_replay_describes_nothing() -> None:
    pcrs = extended(firmware(version="1.4"), SELECTION)
    assert describe_event_log(log_of(firmware(version="1.5")), pcrs) is None
    assert describe_event_log(b"no log", pcrs) is None
    assert describe_event_log(None, pcrs) is None
