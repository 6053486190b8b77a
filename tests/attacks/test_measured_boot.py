"""Event logs of another boot than the measured one.

The log is a file on the node, so root on the node can write any log. Only events that replay to
the quoted PCRs are proved, and of those only the digests: never a type, and data only if the digest
is that of the data (go-attestation, docs/event-log-disclosure.md). The TPM works correctly in all
cases. The attacker chooses which code runs and which log is sent (Q4).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from common.errors import AttestationError
from signer.errors import (
    EventLogMalformed,
    EventLogMismatch,
    EventLogMissing,
    EventLogPolicyMismatch,
    PcrDigestMismatch,
)
from signer.kinds.csr import Csr
from signer.policy.policy import EventLogRules
from tests.attacks.measured_nodes import (
    KERNEL,
    ROOTKIT,
    RULES,
    SELECTION,
    SHIM,
    digests,
    measured,
)
from tests.attacks.runner import Attack, Mutation, Table, assert_issued, assert_refused, attacks
from tests.builders.event_logs import (
    EV_EFI_ACTION,
    EV_NO_ACTION,
    IMAGE_SECURITY,
    InOneBank,
    Measured,
    event_1,
    extended,
    firmware,
    header,
    log_of,
    startup_locality,
    variable,
)
from tests.builders.scenario import Scenario

Events = list[Measured]


def booted(events: Events, logged: Events | None = None) -> Callable[[Scenario], Csr]:
    """Boot with `events`, and send a log of `logged`, by default the same."""

    def mutate(scenario: Scenario) -> Csr:
        scenario.pcrs = extended(events, SELECTION)
        scenario.event_log = log_of(events if logged is None else logged)
        return scenario.answer_csr()

    return mutate


def quoted(
    events: Events, selection: Mapping[str, Sequence[int]], **others: dict[int, bytes]
) -> Mutation:
    """Log `events`, and quote the selection, with other values of some PCRs."""

    def mutate(scenario: Scenario) -> Csr:
        scenario.change_policy("pcrs", selection=selection)
        values = extended(events, selection)
        scenario.pcrs = {bank: values[bank] | others.get(bank, {}) for bank in values}
        scenario.event_log = log_of(events, selection)
        return scenario.answer_csr()

    return mutate


def with_log(log: bytes | None) -> Mutation:
    """Boot as usual, and send this log."""

    def mutate(scenario: Scenario) -> Csr:
        scenario.event_log = log
        return scenario.answer_csr()

    return mutate


def good_values_and_log(scenario: Scenario) -> Csr:
    """Send a good log and good values with a quote of a rootkit."""
    answer = scenario.answer()
    quoted = extended([*firmware(), ROOTKIT], SELECTION)
    scenario.pcrs = quoted
    return scenario.answer_csr(replace(scenario.answer(), pcrs=answer.pcrs))


def log(*parts: bytes) -> bytes:
    """Concatenate a log."""
    return header(("sha256",)) + b"".join(parts)


def raw(pcr: int, kind: int, count: int, body: bytes) -> bytes:
    """Return the head of an event, and these bytes after it."""
    return b"".join(n.to_bytes(4, "little") for n in (pcr, kind, count)) + body


def long_locality() -> Measured:
    """Record two localities in one event."""
    event = startup_locality(3)
    return replace(event, data=event.data + b"\0")


NO_RULES = EventLogRules(
    secure_boot=False,
    platform_keys=frozenset(),
    signature_databases=frozenset(),
    boot_loaders=frozenset(),
)
NINE = {"sha256": (*range(8), 9)}
TWO_BANKS = dict.fromkeys(("sha256", "sha384"), tuple(range(8)))
GOOD = log_of(firmware())
OFF = firmware(secure_boot=False)
ON, PLATFORM_KEY, DATABASE = (firmware()[index] for index in (1, 2, 4))
LATER = [
    variable("SecureBoot", b"\1"),
    variable("PK", b"platform key"),
    variable("KEK", b"key exchange keys"),
    variable("db", b"signature database", guid=IMAGE_SECURITY),
]


def ruled(events: Events, **rules: Any) -> Mutation:  # noqa: ANN401 - fields of EventLogRules
    """Boot with `events` under these rules alone."""

    def mutate(scenario: Scenario) -> Csr:
        scenario.policy = replace(scenario.policy, event_log=replace(NO_RULES, **rules))
        return booted(events)(scenario)

    return mutate


def measured_in_two_banks() -> Scenario:
    """Join with a quote of two banks."""
    scenario = measured()
    quoted(firmware(), TWO_BANKS)(scenario)
    return scenario


def with_rules(**changes: Any) -> Callable[[], Scenario]:  # noqa: ANN401 - as above
    """Join under fewer rules, after a boot without Secure Boot."""

    def make() -> Scenario:
        scenario = measured()
        scenario.policy = replace(scenario.policy, event_log=replace(RULES, **changes))
        scenario.pcrs, scenario.event_log = extended(OFF, SELECTION), log_of(OFF)
        return scenario

    return make


def attack(
    name: str,
    reason: type[AttestationError],
    mutate: Mutation,
    says: str = "",
) -> Attack:
    """Return an attack."""
    return Attack(name, reason, mutate, measured, says=says)


MALFORMED = [
    attack("no log", EventLogMissing, with_log(None)),
] + [
    attack(name, EventLogMalformed, with_log(data))
    for name, data in {
        "an empty log": b"",
        "zeros": bytes(1000),
        "text": b"Secure Boot: enabled",
        "cut in the header": GOOD[:40],
        "cut in an event": GOOD[:-1],
        "a trailing byte": GOOD + b"\0",
        "two logs": GOOD + GOOD,
        "no header": GOOD[len(header(("sha256",))) :],
        "a log of the old form": GOOD[:32] + b"Spec ID Event02\0" + GOOD[48:],
        "no banks": header(()),
        "a bank twice": header(("sha256", "sha256")),
        "four gigabytes of header": GOOD[:28] + b"\xff\xff\xff\xff" + GOOD[32:],
        "an event without digests": log(raw(0, 4, 0, bytes(4))),
        "an event of a bank that is not in the header": log(
            raw(0, 4, 1, b"\x0c\0" + bytes(48) + bytes(4))
        ),
        "an event of one bank twice": log(raw(0, 4, 2, (b"\x0b\0" + bytes(32)) * 2 + bytes(4))),
        "four gigadigests": log(raw(0, 4, 0xFFFFFFFF, bytes(100))),
        "four gigabytes of data": log(raw(0, 4, 1, b"\x0b\0" + bytes(32) + b"\xff" * 4)),
        "PCR 24": log(raw(24, 4, 1, b"\x0b\0" + bytes(32) + bytes(4))),
        "PCR 4294967295": log(raw(0xFFFFFFFF, 4, 1, b"\x0b\0" + bytes(32) + bytes(4))),
        "locality 1": log_of([startup_locality(1), *firmware()]),
        "two localities in one": log_of([long_locality(), *firmware()]),
        "a header that is measured": GOOD[:4] + b"\4\0\0\0" + GOOD[8:],
        "a header in another PCR": b"\1" + GOOD[1:],
        "a header with a digest": GOOD[:8] + b"\1" + GOOD[9:],
        "a header that ends early": event_1(EV_NO_ACTION, b"Spec ID Event03\0"),
        "a header with a trailing byte": event_1(EV_NO_ACTION, header(("sha256",))[32:] + b"\0"),
        "SHA-256 of 20 bytes": header(("sha256",)).replace(b"\x0b\0\x20\0", b"\x0b\0\x14\0")
        + raw(0, 4, 1, b"\x0b\0" + bytes(20) + bytes(4)),
        "an event of SHA-256 twice, of SHA-384 never": header(("sha256", "sha384"))
        + raw(0, 4, 2, (b"\x0b\0" + bytes(32)) * 2 + bytes(4)),
    }.items()
]
OTHER_BOOTS = [
    attack(name, EventLogMismatch, booted(events, log_events))
    for name, events, log_events in (
        ("a rootkit that is not logged", [*firmware(), ROOTKIT], firmware()),
        ("a rootkit logged as another loader", [*firmware(), ROOTKIT], [*firmware(), KERNEL]),
        (
            "a rootkit logged as no action",
            [*firmware(), ROOTKIT],
            [*firmware(), replace(ROOTKIT, type=EV_NO_ACTION)],
        ),
        (
            "a rootkit logged in another PCR",
            [*firmware(), ROOTKIT],
            [*firmware(), replace(ROOTKIT, pcr=5)],
        ),
        ("an event that did not happen", firmware(), [*firmware(), KERNEL]),
        (
            "two events in another order",
            firmware(),
            [*firmware()[:1], *reversed(firmware()[1:3]), *firmware()[3:]],
        ),
        ("Secure Boot off, logged as on", OFF, [OFF[0], ON, *OFF[2:]]),
        (
            "another platform key, logged as ours",
            [*firmware()[:2], variable("PK", b"mine"), *firmware()[3:]],
            firmware(),
        ),
        ("a log without events", firmware(), []),
        (
            "a locality that the platform did not start from",
            firmware(),
            [startup_locality(3), *firmware()],
        ),
    )
] + [
    attack(
        "no digests of the quoted bank", EventLogMismatch, with_log(log_of(firmware(), ("sha384",)))
    ),
    *(
        attack(
            f"a rule on PCR {index}, which is not quoted",
            EventLogMismatch,
            quoted(firmware(), {"sha256": tuple(i for i in range(8) if i != index)}),
        )
        for index in (4, 7)
    ),
    attack("digests of SHA-1 alone", EventLogMismatch, with_log(log_of(firmware(), ("sha1",)))),
    attack(
        "another value in the second bank",
        EventLogMismatch,
        quoted(firmware(), TWO_BANKS, sha384={7: bytes(48)}),
        "sha384:7",
    ),
    *(
        attack(
            f"another value of PCR {index}",
            EventLogMismatch,
            quoted(firmware(), NINE, sha256={index: bytes(32)}),
            f"sha256:{index}",
        )
        for index in (0, 3, 9)
    ),
    *(
        attack(
            f"PCR {index} extended without an event",
            EventLogMismatch,
            quoted([e for e in firmware() if e.pcr != index], NINE, sha256={index: b"\1" * 32}),
            f"sha256:{index}",
        )
        for index in range(8)
    ),
]


def event_7(index: int, data: bytes) -> Events:
    """Replace an event of PCR 7."""
    events = firmware()
    return [*events[:index], Measured(pcr=7, type=1, data=data), *events[index + 1 :]]


def overwritten(index: int, position: int, value: bytes) -> Events:
    """Overwrite bytes of a variable that was measured so."""
    data = (variable("PK", b"") if index == 2 else ON).data
    return event_7(index, data[:position] + value + data[position + len(value) :])


SECURE_BOOT: Table = {
    EventLogPolicyMismatch: {
        f"Secure Boot: {name}": booted(events)
        for name, events in {
            **{
                f"no variable {index} of PCR 7": [*firmware()[:index], *firmware()[index + 1 :]]
                for index in range(1, 5)
            },
            "SecureBoot alone": firmware()[:2],
            "a longer name": [variable("SecureBootX", b"\1"), *firmware()[2:]],
            "a longer value": [variable("SecureBoot", b"\1\0"), *firmware()[2:]],
            "a value of more bytes than it has": overwritten(1, 24, b"\2"),
            "a value of more bytes than a log has": overwritten(1, 31, b"\1"),
            "a value of fewer bytes than it has": overwritten(1, 24, b"\0"),
            "a name of more characters than a log has": overwritten(1, 23, b"\1"),
            "a name that ends early": overwritten(2, 16, b"\3" + bytes(7)),
            "a name that is no text": overwritten(1, 32, b"\0\xd8"),
            "cut short": event_7(1, ON.data[:-1]),
            "empty": event_7(1, b""),
        }.items()
    }
}
BAD_BOOTS = [
    attack(name, EventLogPolicyMismatch, booted(events, log_events))
    for name, events, log_events in (
        ("Secure Boot off", OFF, None),
        (
            "Secure Boot off, other data with the digest",
            OFF,
            [OFF[0], replace(OFF[1], data=ON.data, measured=OFF[1].data), *OFF[2:]],
        ),
        (
            "Secure Boot off, its type an action",
            OFF,
            [OFF[0], replace(OFF[1], type=EV_EFI_ACTION), *OFF[2:]],
        ),
        ("Secure Boot off, and measured as on later", [*OFF, *LATER], None),
        ("Secure Boot never measured", [e for e in firmware() if e.pcr != 7], None),
        (
            "Secure Boot after debug mode",
            [Measured(pcr=7, type=EV_EFI_ACTION, data=b"UEFI Debug Mode"), *firmware()],
            None,
        ),
        (
            "SecureBoot of another vendor's GUID",
            [firmware()[0], variable("SecureBoot", b"\1", guid=IMAGE_SECURITY), *firmware()[2:]],
            None,
        ),
        (
            "SecureBoot of value 2",
            [firmware()[0], variable("SecureBoot", b"\2"), *firmware()[2:]],
            None,
        ),
        (
            "SecureBoot without a value",
            [firmware()[0], variable("SecureBoot", b""), *firmware()[2:]],
            None,
        ),
        (
            "a name of four gigabytes",
            [
                firmware()[0],
                Measured(pcr=7, type=1, data=bytes(16) + b"\xff" * 16 + b"x"),
                *firmware()[2:],
            ],
            None,
        ),
        ("an empty platform key", [*firmware()[:2], variable("PK", b""), *firmware()[3:]], None),
        ("another platform key", [*firmware()[:2], variable("PK", b"mine"), *firmware()[3:]], None),
        (
            "another database",
            [*firmware()[:4], variable("db", b"mine", guid=IMAGE_SECURITY), *firmware()[5:]],
            None,
        ),
        (
            "a database of another GUID",
            [*firmware()[:4], variable("db", b"signature database"), *firmware()[5:]],
            None,
        ),
        ("a rootkit that is logged", [*firmware(), ROOTKIT], None),
        ("a rootkit before the loader", [ROOTKIT, *firmware()], None),
        (
            "a rootkit logged as an action",
            [*firmware(), ROOTKIT],
            [
                *firmware(),
                replace(
                    ROOTKIT, type=EV_EFI_ACTION, data=b"Calling EFI Application from Boot Option"
                ),
            ],
        ),
        (
            "an option ROM as an action of another text",
            [*firmware(), Measured(pcr=4, type=EV_EFI_ACTION, data=b"mine")],
            None,
        ),
        (
            "a separator that reports an error",
            [*firmware(), Measured(pcr=4, type=4, data=b"\1\0\0\0")],
            None,
        ),
        ("no loader at all", [e for e in firmware() if e not in {SHIM, KERNEL}], None),
    )
] + [
    attack(
        "Secure Boot off in the second bank",
        EventLogPolicyMismatch,
        quoted([InOneBank(pcr=7, type=1, data=ON.data), *firmware()[2:]], TWO_BANKS),
        "does not contain the measured Secure Boot variable",
    ),
    attack(
        "Secure Boot off, under its rule alone",
        EventLogPolicyMismatch,
        ruled(OFF, secure_boot=True),
        "Secure Boot is off",
    ),
    attack(
        "the database for the platform key",
        EventLogPolicyMismatch,
        ruled(firmware(), platform_keys=digests(DATABASE)),
        PLATFORM_KEY.digest("sha256").hex(),
    ),
    attack(
        "the platform key for the database",
        EventLogPolicyMismatch,
        ruled(firmware(), signature_databases=digests(PLATFORM_KEY)),
        DATABASE.digest("sha256").hex(),
    ),
]
QUOTED = [
    attack(
        "good values and a good log with an honest quote", PcrDigestMismatch, good_values_and_log
    ),
]
ATTACKS = MALFORMED + OTHER_BOOTS + attacks(SECURE_BOOT, scenario=measured) + BAD_BOOTS + QUOTED


@pytest.mark.parametrize("scenario", [measured, measured_in_two_banks])
def test_the_good_case_passes(scenario: Callable[[], Scenario]) -> None:
    assert_issued(scenario)


@pytest.mark.parametrize("without", ["platform_keys", "signature_databases", "boot_loaders"])
def test_rules_that_the_policy_does_not_have_refuse_no_boot(without: str) -> None:
    assert_issued(with_rules(secure_boot=False, **{without: frozenset()}))


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_attack_is_refused(attack: Attack) -> None:
    assert_refused(attack)
