"""The operator's log: one JSON line for each verdict, with everything but secrets."""

import io
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from signer.controller import audit
from signer.controller.audit import AuditContext, JsonFormatter
from signer.errors import NodeOfAnotherMachine, RequesterNotAllowed
from signer.model import BootCounters
from signer.verify.measured_boot import MeasuredBoot
from tests.builders.scenario import HOME, Scenario

NOT_AFTER = datetime(2026, 11, 28, tzinfo=UTC)


class Log:
    """What a handler with our formatter wrote."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


@pytest.fixture
def log() -> Iterator[Log]:
    made = Log()
    handler = logging.StreamHandler(made.stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("signer")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield made
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def trail() -> AuditContext:
    return AuditContext(cluster=HOME, csr=Scenario().offer_csr(), started=0.0)


def test_a_verdict_tells_all_that_was_learnt(log: Log) -> None:
    made = trail()
    made.kind, made.node_name, made.machine = "answer", "node-1", "machine-1"
    made.boot = BootCounters(reset_count=3, restart_count=4, firmware_version=5)
    made.pcrs = {"sha256": {7: b"\x07" * 32, 0: b"\x00" * 32}}
    made.not_after = NOT_AFTER
    audit.log_verdict(made, "issued", seconds=0.0123)
    (line,) = log.lines
    assert line["event"] == "verdict"
    assert (line["outcome"], line["kind"], line["node"]) == ("issued", "answer", "node-1")
    assert (line["cluster"], line["csr"]) == ("tenants/blue", "kubelet-tpm-a")
    assert line["requester"] == "system:bootstrap:abcdef"
    assert list(line["pcrs"]["sha256"]) == ["0", "7"]
    assert (line["resetCount"], line["restartCount"]) == (3, 4)
    assert line["firmwareVersion"] == "0x0000000000000005"
    assert (line["notAfter"], line["milliseconds"]) == ("2026-11-28T00:00:00+00:00", 12.3)
    assert "endorsementKey" not in line
    datetime.fromisoformat(line["time"])


def test_a_measured_boot_is_told_in_the_words_of_the_policy(log: Log) -> None:
    """So that a draft can be made of it."""
    made = trail()
    made.measured_boot = MeasuredBoot(secure_boot=True, boot_loaders=frozenset({b"\2", b"\1"}))
    audit.log_verdict(made, "issued")
    (line,) = log.lines
    assert line["measuredBoot"] == {
        "secureBoot": True,
        "platformKeys": [],
        "signatureDatabases": [],
        "bootLoaders": ["01", "02"],
    }


def test_an_error_tells_reason_check_and_detail(log: Log) -> None:
    audit.log_verdict(
        trail(), "denied", error=RequesterNotAllowed("not you", detail="groups: none")
    )
    (line,) = log.lines
    assert (line["reason"], line["check"]) == ("RequesterNotAllowed", "R3")
    assert (line["message"], line["detail"]) == ("not you", "groups: none")
    assert (line["level"], "alarm" in line) == ("info", False)


def test_an_alarm_is_a_warning(log: Log) -> None:
    audit.log_verdict(trail(), "waiting", error=NodeOfAnotherMachine("look at this"))
    (line,) = log.lines
    assert (line["level"], line["alarm"]) == ("warning", True)


def test_what_was_told_is_not_told_each_minute(log: Log) -> None:
    audit.log_verdict(trail(), "waiting", error=NodeOfAnotherMachine("look"), new=False)
    assert log.lines == []


def test_a_bug_is_told_with_its_traceback_on_one_line(log: Log) -> None:
    try:
        json.loads("a bug")
    except ValueError:
        logging.getLogger("signer.x").exception("failed", extra={"fields": {"csr": "a\nb"}})
    (line,) = log.lines
    assert line["csr"] == "a\nb"
    assert "JSONDecodeError" in line["exception"]


def test_what_json_does_not_know_is_written_as_text(log: Log) -> None:
    logging.getLogger("signer.x").warning("x", extra={"fields": {"what": NOT_AFTER}})
    assert log.lines[0]["what"] == str(NOT_AFTER)
