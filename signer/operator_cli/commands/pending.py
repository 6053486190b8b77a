"""`pending`: the requests of all workload clusters that wait, unknown TPMs, and the next step."""

from collections.abc import Iterable, Sequence

from signer.inventory.cluster import ClusterObject
from signer.kube.client import ApiClient
from signer.operator_cli.key_requests import key_documents, read_key_requests
from signer.operator_cli.output import SHORT_KEY, Column, Document, age, field, time_text
from signer.operator_cli.pending_requests import PendingRequest, read_pending, unanswered
from signer.operator_cli.session import Session
from signer.operator_cli.snapshot import Snapshot
from signer.operator_cli.workloads import Unreachable, for_each_workload

_COLUMNS = (
    Column("CLUSTER", lambda d: f"{d['namespace']}/{d['cluster']}"),
    Column("REQUEST", field("request"), wide=True),
    Column("KIND", field("kind")),
    Column("NODE", field("node")),
    Column("MACHINE", field("machine")),
    Column("REASON", field("reason")),
    Column("KEY", lambda d: (d["endorsementKey"] or "")[:SHORT_KEY]),
    Column("REQUESTER", field("requester"), wide=True),
    Column("MESSAGE", field("message"), wide=True),
)
_PROVIDER_ID = Column("PROVIDER-ID", field("providerID"), wide=True)
_UNKNOWN_PROVIDER_ID = Column(
    "PROVIDER-ID", lambda d: None if d["machine"] else d["providerID"], below=True
)
"""Without a Machine, it is what an operator compares with those of the Machines."""
_KEY_COLUMNS = (
    Column("MACHINE", lambda d: f"{d['namespace']}/{d['machine']}"),
    Column("NODE", field("node")),
    Column("UNKNOWN-KEY", lambda d: d["endorsementKey"][:SHORT_KEY]),
    Column("CERTIFICATE", field("certificate")),
    Column("VENDOR", field("manufacturer")),
    Column("MODEL", field("model")),
    Column("FIRMWARE", field("firmware")),
    Column("CONFLICT", field("conflict")),
    Column("PROVIDER-ID", field("providerID"), wide=True),
    Column("REQUESTER", field("requester"), wide=True),
)
_UNREGISTERED = "EndorsementKeyNotRegistered"
_UNPROVED = (
    "These keys are what the requests offer; none is proved. Compare each with the key that the"
    " machine or its vendor gives, then run its command:"
)


def run(session: Session) -> int:
    """Print one line for each request and each unknown TPM, and the commands that register them."""
    snapshot = session.snapshot()
    clusters = snapshot.opted_in()
    results = for_each_workload(session, clusters, _read)
    documents: list[Document] = []
    failures = []
    for cluster, result in zip(clusters, results, strict=True):
        if isinstance(result, Unreachable):
            failures.append(f"{cluster.key.namespace}/{cluster.key.name}: {result.reason}")
        else:
            documents += _documents(cluster, result, snapshot)
    documents.sort(key=lambda d: str(d["created"]))
    unknown = [d for request in read_key_requests(session) for d in key_documents(request)]
    if session.arguments.output in {"json", "yaml"}:
        session.show_document({"items": documents, "unknownKeys": unknown})
    else:
        _show_tables(session, documents, unknown)
    return session.warn_unreachable(failures)


def _read(client: ApiClient, _cluster: ClusterObject) -> Sequence[PendingRequest]:
    return read_pending(client)


def _documents(
    cluster: ClusterObject, requests: Iterable[PendingRequest], snapshot: Snapshot
) -> Iterable[Document]:
    for request in unanswered(requests, cluster.key, snapshot):
        machine = snapshot.machines_by_provider_id.get((cluster.key, request.provider_id))
        yield {
            "namespace": cluster.key.namespace,
            "cluster": cluster.key.name,
            "request": request.name,
            "kind": request.kind,
            "node": request.node or None,
            "machine": None if machine is None else machine.name,
            "providerID": request.provider_id or None,
            "endorsementKey": request.endorsement_key or None,
            "reason": request.reason,
            "message": request.message or None,
            "requester": request.requester,
            "created": time_text(request.created),
        }


def _show_tables(
    session: Session, documents: Sequence[Document], unknown: Sequence[Document]
) -> None:
    age_column = Column("AGE", lambda d: age(d["created"], session.now))
    is_wide = session.arguments.output == "wide"
    provider_id = _PROVIDER_ID if is_wide else _UNKNOWN_PROVIDER_ID
    session.show_list(documents, (*_COLUMNS, provider_id, age_column))
    if unknown:
        session.stdout.write("\n")
        seen_column = Column("AGE", lambda d: age(d["firstSeen"], session.now))
        session.show_list(unknown, (*_KEY_COLUMNS, seen_column))
    commands = dict.fromkeys([*map(_approval, unknown), *_registrations(documents, unknown)])
    if commands:
        session.stdout.write("\n".join(("", _UNPROVED, *commands, "")))


def _approval(key: Document) -> str:
    """Return the command; it names the key only where several were offered.

    Without a key, `approve` refuses a Machine for which another key has been offered since.
    """
    command = f"  kubectl attestation approve {key['namespace']}/{key['machine']}"
    return f"{command} {key['endorsementKey']}" if key["conflict"] else command


def _registrations(documents: Iterable[Document], unknown: Iterable[Document]) -> Iterable[str]:
    """Yield the commands for keys that the signer did not record."""
    recorded = {(d["namespace"], d["machine"], d["endorsementKey"]) for d in unknown}
    for d in documents:
        place = (d["namespace"], d["machine"], d["endorsementKey"])
        if d["reason"] == _UNREGISTERED and all(place) and place not in recorded:
            yield (
                f"  kubectl attestation register {d['endorsementKey']}"
                f" --cluster {d['namespace']}/{d['cluster']} --machine {d['machine']}"
            )
