"""`pending`: the requests of all workload clusters that wait, and what would let them go on."""

from collections.abc import Iterable, Sequence

from signer.inventory.cluster import ClusterObject
from signer.kube.client import ApiClient
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
    Column("PROVIDER-ID", field("providerID"), wide=True),
    Column("REQUESTER", field("requester"), wide=True),
    Column("MESSAGE", field("message"), wide=True),
)
_UNREGISTERED = "EndorsementKeyNotRegistered"
_UNPROVED = (
    "These keys are what the requests offer; none is proved. Compare each with the key that the"
    " machine or its vendor gives, then register it:"
)


def run(session: Session) -> int:
    """Print one line for each request, and the commands that register unknown keys."""
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
    age_column = Column("AGE", lambda d: age(d["created"], session.now))
    session.show_list(documents, (*_COLUMNS, age_column))
    if session.arguments.output in {"table", "wide"}:
        _show_registrations(session, documents)
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


def _show_registrations(session: Session, documents: Sequence[Document]) -> None:
    commands = dict.fromkeys(
        f"  kubectl attestation register {d['endorsementKey']}"
        f" --cluster {d['namespace']}/{d['cluster']} --machine {d['machine']}"
        for d in documents
        if d["reason"] == _UNREGISTERED and d["endorsementKey"] and d["machine"]
    )
    if commands:
        session.stdout.write("\n".join(("", _UNPROVED, *commands, "")))
