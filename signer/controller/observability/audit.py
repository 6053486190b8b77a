"""Audit log: one JSON line on stderr for each verdict, and a counter.

The event name of a line is constant, and all that varies is in fields. No field holds a secret or
an expected value. `detail` is for the operator alone: it goes to no object of the cluster.
"""

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from common.errors import AttestationError
from signer.controller.observability.metrics import VERDICT_SECONDS, VERDICTS, cluster_label
from signer.kinds.attested_node import BootCounters
from signer.kinds.cluster import ClusterKey
from signer.kinds.csr import Csr
from signer.logs import AUDIT
from signer.verify.attestation.measured_boot import MeasuredBoot
from signer.verify.attestation.quoted_pcrs import Pcrs

_logger = logging.getLogger(__name__)

ALARM: Final = "alarm"
"""Outcome of an error that does not stop the request."""


@dataclass(slots=True)
class AuditContext:
    """What is known of a CSR so far. The log line of every verdict contains it."""

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
    issued_credential: str = ""
    alarms: tuple[str, ...] = ()
    """Reasons of the alarms about a request that was verified."""


def log_verdict(
    context: AuditContext,
    outcome: str,
    *,
    seconds: float = 0.0,
    error: AttestationError | None = None,
    new: bool = True,
) -> None:
    """Log and count a verdict, and the error that led to it.

    `new` is false for a repeated verdict, which is logged at level debug and not counted. An alarm
    is logged as a warning. The outcome `alarm` makes any error one: a policy may only warn.
    """
    if new:
        count_verdict(context, outcome, error)
        VERDICT_SECONDS.labels(context.kind).observe(seconds)
    fields = _fields(context) | {"outcome": outcome, "milliseconds": round(seconds * 1000, 1)}
    level = logging.INFO
    if error is not None:
        fields |= {"reason": error.reason, "check": error.check, "message": error.message}
        fields |= {"detail": error.detail} if error.detail else {}
        if error.further:
            fields["furtherReasons"] = [
                {"reason": e.reason, "check": e.check, "message": e.message, "detail": e.detail}
                for e in error.further
            ]
        alarm = error.alarm or outcome == ALARM
        fields |= {"alarm": True} if alarm else {}
        level = logging.WARNING if alarm else logging.INFO
    _logger.log(level if new else logging.DEBUG, "verdict", extra={"fields": fields, AUDIT: True})


def log_cluster_alarm(cluster: ClusterKey, error: AttestationError) -> None:
    """Log and count an alarm about a Cluster, which no request has caused."""
    VERDICTS.labels(cluster_label(cluster), "", "maintenance", error.reason, error.check).inc()
    fields = cluster.log_fields() | {"reason": error.reason, "message": error.message}
    fields |= {"detail": error.detail, "alarm": True}
    _logger.warning("alarm about a cluster", extra={"fields": fields})


def count_verdict(context: AuditContext, outcome: str, error: AttestationError | None) -> None:
    """Count a verdict in the metrics."""
    reason, check = ("", "") if error is None else (error.reason, error.check)
    cluster = cluster_label(context.cluster)
    VERDICTS.labels(cluster, context.kind, outcome, reason, check).inc()


def _fields(context: AuditContext) -> dict[str, Any]:
    fields = context.cluster.log_fields() | {
        "csr": context.csr.name,
        "uid": context.csr.uid,
        "signer": context.csr.signer_name,
        "requester": context.csr.username,
        "requesterCredential": context.csr.credential_id,
        "kind": context.kind,
        "node": context.node_name,
        "providerID": context.provider_id,
        "machine": context.machine,
        "endorsementKey": context.endorsement_key,
        "basis": context.basis,
        "issuedCredential": context.issued_credential,
        "notAfter": None if context.not_after is None else context.not_after.isoformat(),
    }
    if context.alarms:
        fields["alarms"] = list(context.alarms)
    if context.boot is not None:
        fields |= {
            "resetCount": context.boot.reset_count,
            "restartCount": context.boot.restart_count,
            "firmwareVersion": context.boot.firmware_version,
        }
    if context.pcrs is not None:
        fields["pcrs"] = {
            bank: {str(index): value.hex() for index, value in sorted(values.items())}
            for bank, values in context.pcrs.items()
        }
    if context.measured_boot is not None:
        fields["measuredBoot"] = _measured(context.measured_boot)
    return {key: value for key, value in fields.items() if value not in ("", None)}


def _measured(boot: MeasuredBoot) -> dict[str, Any]:
    """Return the measured boot under the keys of a policy."""
    digests = {
        "platformKeys": boot.platform_keys,
        "signatureDatabases": boot.signature_databases,
        "bootLoaders": boot.boot_loaders,
    }
    lists = {key: sorted(d.hex() for d in values) for key, values in digests.items()}
    return {"secureBoot": boot.secure_boot, **lists}
