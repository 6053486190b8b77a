"""One JSON line on stderr for each verdict, and for everything else that is logged.

Each verdict that is new is counted, too.

Public messages are constant; what differs is in fields. No secret and no expected value is in any
of them: `detail` says what only the operator may read.
"""

import json
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from common.errors import AttestationError
from signer.controller.metrics import VERDICTS
from signer.model import BootCounters, ClusterKey, Csr
from signer.verify.measured_boot import MeasuredBoot
from signer.verify.pcrs import Pcrs

_logger = logging.getLogger(__name__)


class JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON, with the fields that came as `extra={"fields": …}`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        when = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": when.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
        }
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


@dataclass(slots=True)
class AuditContext:
    """What has been learnt of a CSR so far: a verdict's line tells it, whatever the verdict."""

    cluster: ClusterKey
    csr: Csr
    started: float
    kind: str = ""
    node_name: str = ""
    provider_id: str = ""
    machine: str = ""
    endorsement_key: str = ""
    basis: str = ""
    boot: BootCounters | None = None
    pcrs: Pcrs | None = None
    measured_boot: MeasuredBoot | None = None
    not_after: datetime | None = None


def log_verdict(
    trail: AuditContext,
    outcome: str,
    *,
    seconds: float = 0.0,
    error: AttestationError | None = None,
    new: bool = True,
) -> None:
    """Log and count a verdict, and the error that led to it.

    `new` is false for one that was told before: it is only there for those who debug.
    What an operator should look at is a warning.
    """
    if new:
        _count(trail, outcome, error)
    fields = _fields(trail) | {"outcome": outcome, "milliseconds": round(seconds * 1000, 1)}
    level = logging.INFO
    if error is not None:
        fields |= {"reason": error.reason, "check": error.check, "message": error.message}
        fields |= {"detail": error.detail} if error.detail else {}
        fields |= {"alarm": True} if error.alarm else {}
        level = logging.WARNING if error.alarm else logging.INFO
    _logger.log(level if new else logging.DEBUG, "verdict", extra={"fields": fields})


def _count(trail: AuditContext, outcome: str, error: AttestationError | None) -> None:
    reason, check = ("", "") if error is None else (error.reason, error.check)
    VERDICTS.labels(_cluster(trail), trail.kind, outcome, reason, check).inc()


def _cluster(trail: AuditContext) -> str:
    return f"{trail.cluster.namespace}/{trail.cluster.name}"


def _fields(trail: AuditContext) -> dict[str, Any]:
    told: dict[str, Any] = {
        "cluster": _cluster(trail),
        "csr": trail.csr.name,
        "uid": trail.csr.uid,
        "signer": trail.csr.signer_name,
        "requester": trail.csr.username,
        "kind": trail.kind,
        "node": trail.node_name,
        "providerID": trail.provider_id,
        "machine": trail.machine,
        "endorsementKey": trail.endorsement_key,
        "basis": trail.basis,
        "notAfter": None if trail.not_after is None else trail.not_after.isoformat(),
    }
    if trail.boot is not None:
        told |= {
            "resetCount": trail.boot.reset_count,
            "restartCount": trail.boot.restart_count,
            "firmwareVersion": f"{trail.boot.firmware_version:#018x}",
        }
    if trail.pcrs is not None:
        told["pcrs"] = {
            bank: {str(index): value.hex() for index, value in sorted(values.items())}
            for bank, values in trail.pcrs.items()
        }
    if trail.measured_boot is not None:
        told["measuredBoot"] = _measured(trail.measured_boot)
    return {key: value for key, value in told.items() if value not in ("", None)}


def _measured(boot: MeasuredBoot) -> dict[str, Any]:
    """Write what a boot showed with the keys that a policy has for it."""
    digests = {
        "platformKeys": boot.platform_keys,
        "signatureDatabases": boot.signature_databases,
        "bootLoaders": boot.boot_loaders,
    }
    told: dict[str, Any] = {key: sorted(d.hex() for d in found) for key, found in digests.items()}
    return {"secureBoot": boot.secure_boot} | told
