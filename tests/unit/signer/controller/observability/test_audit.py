"""Audit log: one JSON line for each verdict, with everything but secrets."""

import io
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from signer.controller.observability import audit
from signer.controller.observability.audit import AuditContext
from signer.errors import NodeOfAnotherMachine, RequesterNotAllowed
from signer.kinds.attested_node import BootCounters
from signer.logs import JsonFormatter
from signer.verify.attestation.measured_boot import MeasuredBoot
from tests.builders.scenario import HOME, Scenario

NOT_AFTER = datetime(2026, 11, 28, tzinfo=UTC)


class Log:
    """Output of a handler with the formatter."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


@pytest.fixture
def log() -> Iterator[Log]:
    written = Log()
    handler = logging.StreamHandler(written.stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("signer")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield written
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def audit_context() -> AuditContext:
    return AuditContext(cluster=HOME, csr=Scenario().offer_csr(), started=0.0)


def test_a_verdict_contains_all_that_is_known(log: Log) -> None:
    context = audit_context()
    context.kind, context.node_name, context.machine = "answer", "node-1", "machine-1"
    context.boot = BootCounters(
        reset_count=3, restart_count=4, firmware_version="0x0000000000000005"
    )
    context.pcrs = {"sha256": {7: b"\x07" * 32, 0: b"\x00" * 32}}
    context.not_after = NOT_AFTER
    audit.log_verdict(context, "issued", seconds=0.0123)
    (line,) = log.lines
    assert line["event"] == "verdict"
    assert (line["outcome"], line["kind"], line["node"]) == ("issued", "answer", "node-1")
    assert (line["cluster"], line["csr"]) == ("tenants/blue", "kubelet-tpm-a")
    assert line["namespace"] == "tenants"
    assert line["requester"] == "system:bootstrap:abcdef"
    assert list(line["pcrs"]["sha256"]) == ["0", "7"]
    assert (line["resetCount"], line["restartCount"]) == (3, 4)
    assert line["firmwareVersion"] == "0x0000000000000005"
    assert (line["notAfter"], line["milliseconds"]) == ("2026-11-28T00:00:00+00:00", 12.3)
    assert "endorsementKey" not in line
    datetime.fromisoformat(line["time"])


def test_a_measured_boot_is_logged_under_the_keys_of_a_policy(log: Log) -> None:
    """An operator compares it with the policy."""
    context = audit_context()
    context.measured_boot = MeasuredBoot(secure_boot=True, boot_loaders=frozenset({b"\2", b"\1"}))
    audit.log_verdict(context, "issued")
    (line,) = log.lines
    assert line["measuredBoot"] == {
        "secureBoot": True,
        "platformKeys": [],
        "signatureDatabases": [],
        "bootLoaders": ["01", "02"],
    }


def test_an_alarm_is_logged_once_as_a_warning(log: Log) -> None:
    for new in (True, False):
        alarm = NodeOfAnotherMachine("message")
        audit.log_verdict(audit_context(), "waiting", error=alarm, new=new)
    (line,) = log.lines
    assert (line["level"], line["alarm"]) == ("warning", True)


def test_an_error_is_logged_with_reason_check_and_detail(log: Log) -> None:
    audit.log_verdict(
        audit_context(), "denied", error=RequesterNotAllowed("not you", detail="groups: none")
    )
    (line,) = log.lines
    assert (line["reason"], line["check"]) == ("RequesterNotAllowed", "R3")
    assert (line["message"], line["detail"]) == ("not you", "groups: none")
    assert (line["level"], "alarm" in line) == ("info", False)


def test_a_traceback_is_logged_on_one_line(log: Log) -> None:
    try:
        json.loads("a bug")
    except ValueError:
        logging.getLogger("signer.x").exception("failed", extra={"fields": {"csr": "a\nb"}})
    (line,) = log.lines
    assert line["csr"] == "a\nb"
    assert "JSONDecodeError" in line["exception"]


def test_a_value_that_is_not_json_is_logged_as_text(log: Log) -> None:
    logging.getLogger("signer.x").warning("x", extra={"fields": {"what": NOT_AFTER}})
    assert log.lines[0]["what"] == str(NOT_AFTER)
