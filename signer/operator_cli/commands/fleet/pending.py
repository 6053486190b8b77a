"""`pending`: the requests of all workload clusters that wait, unknown TPMs, and the next step."""

from collections.abc import Container, Iterable, Sequence

from common.names import API_GROUP
from signer.errors import EndorsementKeyNotRegistered
from signer.inventory.cluster_api.cluster import ClusterObject
from signer.inventory.cluster_api.machine_object import MachineObject
from signer.operator_cli.keys.key_request_list import (
    approval_command,
    key_documents,
    read_key_requests,
)
from signer.operator_cli.management.snapshot import Snapshot
from signer.operator_cli.output import SHORT_KEY, Column, Document, age, field, time_text
from signer.operator_cli.session import Session
from signer.operator_cli.workloads.pending_requests import PendingRequest, read_pending, unanswered
from signer.operator_cli.workloads.workload_reader import Unreachable, for_each_workload

_COLUMNS = (
    Column("CLUSTER", lambda d: f"{d['namespace']}/{d['cluster']}"),
    Column("REQUEST", field("request"), wide=True),
    Column("KIND", field("kind")),
    Column("NODE", field("node")),
    Column("MACHINE", field("machine")),
    Column("REASON", field("reason")),
    Column("KEY", lambda d: (d["endorsementKey"] or "")[:SHORT_KEY]),
    Column("REQUESTER", field("requester"), wide=True),
    Column("REPORTED", field("reported"), wide=True),
)
_PROVIDER_ID = Column("PROVIDER-ID", field("providerID"), wide=True)
_UNKNOWN_PROVIDER_ID = Column(
    "PROVIDER-ID", lambda d: None if d["machine"] else d["providerID"], below=True
)
"""Without a Machine, it is what an operator compares with those of the Machines."""
_KEY_COLUMNS = (
    Column("MACHINE", lambda d: f"{d['namespace']}/{d['machine']}"),
    Column("NODE", field("node")),
    Column("UNKNOWN-KEY", field("endorsementKey"), below=True),
    Column("CERTIFICATE", field("certificate")),
    Column("VENDOR", field("manufacturer")),
    Column("MODEL", field("model")),
    Column("FIRMWARE", field("firmware")),
    Column("CONFLICT", field("conflict")),
    Column("CERTIFIED-FOR", field("certifiedFor"), below=True),
    Column("PROVIDER-ID", field("providerID"), wide=True),
    Column("REQUESTER", field("requester"), wide=True),
)
_REQUEST = "certificatesigningrequest.certificates.k8s.io/{request}"
_KEY_REQUEST = f"endorsementkeyrequest.{API_GROUP}/{{machine}}"
PENDING = "Pending"
"""The reason of a request about whose Machine the signer has written none."""
_UNPROVED = (
    "These keys are what the requests offer; no key is proved. Compare each with the key that the"
    " machine or its vendor gives, then run its command:"
)


def run(session: Session) -> int:
    """Print one line for each request and each unknown TPM, and the commands that approve them.

    Only a key that the signer recorded gets a command: `may_offer_key` allowed its requester to
    name a key for this Machine.
    """
    snapshot = session.snapshot()
    results = for_each_workload(session, snapshot.opted_in(), lambda api, _: read_pending(api))
    unknown = [d for request in read_key_requests(session) for d in key_documents(request)]
    recorded = {(d["namespace"], d["machine"], d["endorsementKey"]) for d in unknown}
    documents: list[Document] = []
    failures = []
    for cluster, result in results:
        if isinstance(result, Unreachable):
            failures.append(f"{cluster.key}: {result}")
        else:
            documents += _documents(cluster, result, snapshot, recorded)
    documents.sort(key=lambda d: str(d["created"]))
    if session.arguments.output in {"json", "yaml"}:
        session.show_document({"items": documents, "unknownKeys": unknown})
    else:
        _show_tables(session, documents, unknown)
    return session.warn_unreachable(failures)


def _documents(
    cluster: ClusterObject,
    requests: Iterable[PendingRequest],
    snapshot: Snapshot,
    recorded: Container[tuple[str, str, str]],
) -> Iterable[Document]:
    namespace = cluster.key.namespace
    for request in unanswered(requests, cluster.key, snapshot):
        machine = snapshot.machines_by_provider_id.get((cluster.key, request.provider_id))
        name = None if machine is None else machine.name
        is_recorded = (namespace, name, request.endorsement_key) in recorded
        yield {
            "namespace": namespace,
            "cluster": cluster.key.name,
            "request": request.name,
            "kind": request.kind,
            "node": request.node or None,
            "machine": name,
            "providerID": request.provider_id or None,
            "endorsementKey": request.endorsement_key or None,
            "reason": EndorsementKeyNotRegistered.reason if is_recorded else _reason(machine),
            "reported": request.reported or None,
            "requester": request.requester,
            "created": time_text(request.created),
        }


def _reason(machine: MachineObject | None) -> str:
    """Return why the node of a Machine waits, as the signer wrote it on the Machine."""
    condition = None if machine is None else machine.attested
    return condition.reason if condition is not None and condition.status == "False" else PENDING


def _show_tables(
    session: Session, documents: Sequence[Document], unknown: Sequence[Document]
) -> None:
    age_column = Column("AGE", lambda d: age(d["created"], session.now))
    is_wide = session.arguments.output == "wide"
    provider_id = _PROVIDER_ID if is_wide else _UNKNOWN_PROVIDER_ID
    seen_column = Column("AGE", lambda d: age(d["firstSeen"], session.now))
    session.show_list(documents, (*_COLUMNS, provider_id, age_column), _REQUEST.format_map)
    if not unknown:
        return
    if session.arguments.output == "name":
        session.show_list(unknown, _KEY_COLUMNS, _KEY_REQUEST.format_map)
        return
    session.stdout.write("\n" if session.is_first_round else "")
    shown = session.show_list(unknown, (*_KEY_COLUMNS, seen_column))
    commands = dict.fromkeys(f"  {approval_command(key)}" for key in shown)
    if commands:
        session.stdout.write("\n".join(("", _UNPROVED, *commands, "")))
