"""The measured boot (Q4): an event log that replays to the quoted PCRs, and the policy's rules.

The rules use digests, and data only if the digest is that of the data. The first events of a PCR
are those of the firmware, since later code can only append. So the Secure Boot variables are read
from the first events of PCR 7 alone, and every event of PCR 4 must be allowed.

Source: TCG PC Client Platform Firmware Profile, sections 3.3.4.5 (PCR 4) and 3.3.4.8 (PCR 7);
UEFI section 3.3 and 32.3 (variables).
"""

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from signer.errors import (
    EventLogMalformed,
    EventLogMismatch,
    EventLogMissing,
    EventLogPolicyMismatch,
)
from signer.policy.policy import EventLogRules
from signer.verify.attestation.event_log import EventLog, PcrEvent, parse_event_log
from signer.verify.attestation.quoted_pcrs import Pcrs

_FIRMWARE_PCR: Final = 0
_BOOT_LOADER_PCR: Final = 4
_SECURE_BOOT_PCR: Final = 7
_FIRMWARE_PCRS: Final = range(8)
"""PCRs that firmware extends. The log must replay to each quoted one."""

_GLOBAL: Final = UUID("8be4df61-93ca-11d2-aa0d-00e098032b8c").bytes_le
_IMAGE_SECURITY: Final = UUID("d719b2cb-3d3a-4596-a3bc-dad00e67656f").bytes_le

_Name = tuple[bytes, str]
"""Vendor GUID and name of a UEFI variable."""

_SECURE_BOOT: Final = (_GLOBAL, "SecureBoot")
_PLATFORM_KEY: Final = (_GLOBAL, "PK")
_KEY_EXCHANGE_KEYS: Final = (_GLOBAL, "KEK")
_SIGNATURE_DATABASE: Final = (_IMAGE_SECURITY, "db")
_VARIABLES: Final = (_SECURE_BOOT, _PLATFORM_KEY, _KEY_EXCHANGE_KEYS, _SIGNATURE_DATABASE)
"""Firmware measures these first into PCR 7, in this order."""
_ENABLED: Final = b"\1"

_SEPARATOR: Final = b"\0\0\0\0"
"""Data of the event after which firmware starts other code."""
_FIRMWARE_EVENTS: Final = (
    _SEPARATOR,
    b"Calling EFI Application from Boot Option",
    b"Returning from EFI Application from Boot Option",
)
"""Data of the events that firmware itself measures into PCR 4: separator and boot attempts."""

_MAX_VERSION: Final = 64
_MAX_LOADERS: Final = 64
"""Boot loaders in a `MeasuredBoot`. A node may measure any number; audit records have limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBoot:
    """The boot in terms of `EventLogRules`. Sets hold the digests of all quoted banks."""

    secure_boot: bool | None = None
    """None if PCR 7 was not quoted, or its first events are not the Secure Boot variables.

    `platform_keys` and `signature_databases` are then empty.
    """
    platform_keys: frozenset[bytes] = frozenset()
    signature_databases: frozenset[bytes] = frozenset()
    boot_loaders: frozenset[bytes] = frozenset()
    """Empty if PCR 4 was not quoted, or has more than 64 boot loaders."""
    firmware: str = ""
    """Version of the firmware; empty if PCR 0 was not quoted, or no event has a readable one."""


def verify_event_log(data: bytes | None, pcrs: Pcrs, rules: EventLogRules) -> MeasuredBoot:
    """Verify that the log replays to the quoted PCRs and keeps the rules; return the boot.

    Raises:
        EventLogMissing: the answer has no log.
        EventLogMalformed: the log cannot be parsed.
        EventLogMismatch: the log is not that of the quoted boot.
        EventLogPolicyMismatch: the boot breaks a rule of the policy.

    """
    if data is None:
        raise EventLogMissing("the policy requires an event log, and the answer has none")
    log = parse_event_log(data)
    _require_replay(log, pcrs)
    if rules.secure_boot or rules.platform_keys or rules.signature_databases:
        _require_secure_boot(_events(log, pcrs, _SECURE_BOOT_PCR), rules)
    if rules.boot_loaders:
        _require_boot_loaders(_events(log, pcrs, _BOOT_LOADER_PCR), rules)
    return _summarize(log, pcrs)


def describe_event_log(data: bytes | None, pcrs: Pcrs) -> MeasuredBoot | None:
    """Describe the boot of a node that was refused; `None` without the log of the quoted boot."""
    if data is None:
        return None
    try:
        log = parse_event_log(data)
        _require_replay(log, pcrs)
    except (EventLogMalformed, EventLogMismatch):
        return None
    return _summarize(log, pcrs)


def _summarize(log: EventLog, pcrs: Pcrs) -> MeasuredBoot:
    """Describe the boot for the audit record, also where no rule needs it."""
    boot = MeasuredBoot()
    with suppress(EventLogMismatch, EventLogPolicyMismatch):
        measured = _events(log, pcrs, _SECURE_BOOT_PCR)
        variables = {name: (event, value) for name, event, value in _variables(measured)}
        boot = replace(
            boot,
            secure_boot=variables[_SECURE_BOOT][1] == _ENABLED,
            platform_keys=measured.digests(variables[_PLATFORM_KEY][0]),
            signature_databases=measured.digests(variables[_SIGNATURE_DATABASE][0]),
        )
    with suppress(EventLogMismatch):
        loaders = _boot_loaders(_events(log, pcrs, _BOOT_LOADER_PCR))
        if len(loaders) <= _MAX_LOADERS:
            boot = replace(boot, boot_loaders=frozenset().union(*loaders))
    with suppress(EventLogMismatch):
        boot = replace(boot, firmware=_firmware_version(_events(log, pcrs, _FIRMWARE_PCR)))
    return boot


def _require_replay(log: EventLog, pcrs: Pcrs) -> None:
    """Replay every quoted PCR that firmware or an event extends, in every quoted bank."""
    if not pcrs.keys() <= log.banks:
        raise EventLogMismatch("the event log has no digests of a quoted bank")
    replayed = {event.pcr for event in log.events} | set(_FIRMWARE_PCRS)
    for bank, values in pcrs.items():
        for index in sorted(values.keys() & replayed):
            if not hmac.compare_digest(log.replay(bank, index), values[index]):
                raise EventLogMismatch(
                    "the event log does not replay to the quoted PCRs", detail=f"{bank}:{index}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class _PcrEvents:
    """The events of one PCR, and the banks in which it is quoted. Other digests are unproved."""

    events: tuple[PcrEvent, ...]
    banks: tuple[str, ...]

    def digests(self, event: PcrEvent) -> frozenset[bytes]:
        return frozenset(event.digests[bank] for bank in self.banks)


def _events(log: EventLog, pcrs: Pcrs, pcr: int) -> _PcrEvents:
    banks = tuple(bank for bank, values in pcrs.items() if pcr in values)
    if not banks:
        raise EventLogMismatch(f"a rule needs PCR {pcr}, which is not quoted")
    return _PcrEvents(events=tuple(e for e in log.events if e.pcr == pcr), banks=banks)


def _firmware_version(measured: _PcrEvents) -> str:
    """Return the first text that firmware measured before the separator, as EV_S_CRTM_VERSION.

    Later code can only append events. The type of an event is not proved, so it is not used.
    """
    separator = {hashlib.new(bank, _SEPARATOR).digest() for bank in measured.banks}
    for event in measured.events:
        if not measured.digests(event).isdisjoint(separator):
            break
        text = event.data.decode("utf-16-le", errors="replace").rstrip("\0")
        if (
            0 < len(text) <= _MAX_VERSION
            and text.isascii()
            and text.isprintable()
            and all(event.digest_matches_data(bank) for bank in measured.banks)
        ):
            return text
    return ""


def _require_secure_boot(measured: _PcrEvents, rules: EventLogRules) -> None:
    """Check the Secure Boot variables in the first events of PCR 7."""
    variables: dict[_Name, PcrEvent] = {}
    for name, event, value in _variables(measured):
        if name == _SECURE_BOOT and rules.secure_boot and value != _ENABLED:
            raise EventLogPolicyMismatch("Secure Boot is off")
        variables[name] = event
    _require_allowed(measured, variables[_PLATFORM_KEY], rules.platform_keys, "platform key")
    _require_allowed(
        measured, variables[_SIGNATURE_DATABASE], rules.signature_databases, "signature database"
    )


def _variables(measured: _PcrEvents) -> Iterator[tuple[_Name, PcrEvent, bytes]]:
    """Yield the variables that firmware measures first. Each must be at its position."""
    count = 0
    for event, expected in zip(measured.events, _VARIABLES, strict=False):
        if any(not event.digest_matches_data(bank) for bank in measured.banks):
            raise EventLogPolicyMismatch(
                "the event log does not contain the measured Secure Boot variable",
                detail=expected[1],
            )
        name, value = _variable(event.data)
        if name != expected:
            raise EventLogPolicyMismatch(
                "the first events of PCR 7 must be the Secure Boot variables",
                detail=f"not {expected[1]}",
            )
        yield name, event, value
        count += 1
    if count != len(_VARIABLES):
        raise EventLogPolicyMismatch("the Secure Boot variables were not measured")


def _require_allowed(
    measured: _PcrEvents, event: PcrEvent, allowed: Iterable[bytes], what: str
) -> None:
    digests, allowed = measured.digests(event), frozenset(allowed)
    if allowed and digests.isdisjoint(allowed):
        raise EventLogPolicyMismatch(
            f"the policy does not allow this {what}", detail=_format(digests)
        )


def _variable(data: bytes) -> tuple[_Name, bytes]:
    """Parse UEFI_VARIABLE_DATA: vendor GUID and name, and the content of the variable."""
    name_size = int.from_bytes(data[16:24], "little") * 2
    value_size = int.from_bytes(data[24:32], "little")
    name, value = data[32 : 32 + name_size], data[32 + name_size :]
    if len(name) != name_size or len(value) != value_size:
        raise EventLogPolicyMismatch("a measured variable is not UEFI_VARIABLE_DATA")
    return (data[:16], name.decode("utf-16-le", errors="replace")), value


def _require_boot_loaders(measured: _PcrEvents, rules: EventLogRules) -> None:
    """Require that the policy allows every event of PCR 4, and that one of them is a loader."""
    loaders = _boot_loaders(measured)
    if not loaders:
        raise EventLogPolicyMismatch("no boot loader was measured")
    for digests in loaders:
        if digests.isdisjoint(rules.boot_loaders):
            raise EventLogPolicyMismatch(
                "the policy does not allow this boot loader", detail=_format(digests)
            )


def _boot_loaders(measured: _PcrEvents) -> Sequence[frozenset[bytes]]:
    of_firmware = {
        hashlib.new(bank, data).digest() for bank in measured.banks for data in _FIRMWARE_EVENTS
    }
    all_digests = map(measured.digests, measured.events)
    return [digests for digests in all_digests if digests.isdisjoint(of_firmware)]


def _format(digests: Iterable[bytes]) -> str:
    return " or ".join(sorted(digest.hex() for digest in digests))
