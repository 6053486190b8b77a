"""`nodes`: the nodes that have attested, and the Machines whose nodes have not."""

from collections.abc import Iterable
from datetime import UTC, datetime

from common.names import API_GROUP
from signer.claims.node_problem import NodeProblem, find_problem
from signer.errors import ClaimsOutOfDate
from signer.inventory.cluster_api.machine_object import MachineObject, PoolObject
from signer.kinds.attested_node import AttestedNodeObject, attested_node_name
from signer.kinds.cluster import ClusterKey
from signer.kinds.resources import CAPI
from signer.operator_cli.errors import EXIT_OK
from signer.operator_cli.management.snapshot import Snapshot
from signer.operator_cli.output import SHORT_KEY, Column, Document, age, field, time_text
from signer.operator_cli.session import Session
from signer.seams import WentBack
from signer.verify.machines.claims import is_complete_claim

ATTESTED = "Attested"
"""The state of a node with a valid certificate whose renewal is neither refused nor overdue."""
_FIRST = (
    Column("NAMESPACE", field("namespace")),
    Column("CLUSTER", field("cluster")),
    Column("NODE", field("node")),
    Column("MACHINE", field("machine")),
    Column("STATE", field("state")),
    Column("REASON", field("reason")),
)
_LAST = (
    Column("KEY", lambda d: (d["endorsementKey"] or "")[:SHORT_KEY]),
    Column("BASIS", field("basis"), wide=True),
    Column("ENDORSEMENT-KEY", field("endorsementKey"), wide=True),
    Column("PROVIDER-ID", field("providerID"), wide=True),
)


def run(session: Session) -> int:
    """Print one line for each node and each Machine without one."""
    snapshot, now = session.snapshot(), session.now
    documents = [*_nodes(snapshot, now), *_machines(snapshot)]
    documents.sort(key=lambda d: (d["namespace"], d["cluster"], d["node"] or "~", d["machine"]))
    times = (
        Column("ATTESTED-AGO", lambda d: age(d["lastAttested"], now)),
        Column("EXPIRES-IN", lambda d: _remaining(d["notAfter"], now)),
    )
    session.show_list(documents, (*_FIRST, *times, *_LAST), _object_name)
    return EXIT_OK


def _object_name(document: Document) -> str:
    """Return the AttestedNode of a node, or the Machine whose node has not attested."""
    if document["node"] is None:
        return f"machine.{CAPI}/{document['machine']}"
    cluster = ClusterKey(namespace=document["namespace"], name=document["cluster"])
    return f"attestednode.{API_GROUP}/{attested_node_name(cluster, document['node'])}"


def _nodes(snapshot: Snapshot, now: datetime) -> Iterable[Document]:
    for node in snapshot.nodes:
        problem = find_node_problem(node, snapshot, now)
        yield {
            "namespace": node.cluster.namespace,
            "cluster": node.cluster.name,
            "node": node.node_name,
            "machine": node.machine_name or None,
            "state": node_state(node, snapshot, now),
            "reason": None if problem is None else problem.reason,
            "message": None if problem is None else problem.message,
            "lastAttested": time_text(node.last_attested),
            "notAfter": time_text(node.not_after),
            "endorsementKey": node.endorsement_key,
            "basis": node.basis and node.basis.value,
            "providerID": node.provider_id,
        }


def node_state(node: AttestedNodeObject, snapshot: Snapshot, now: datetime) -> str:
    """Return the state of a node; the first one that applies."""
    key = snapshot.keys.get(node.endorsement_key)
    if key is not None and key.is_released_from(node.cluster, node.provider_id):
        return "Released"
    if key is None or not snapshot.holds_key(node):
        return "ClaimIncomplete"
    if key.banned:
        return "Banned"
    if snapshot.machine_of(node) is None:
        return "MachineGone"
    if node.not_after <= now:
        return "Expired"
    problem = find_node_problem(node, snapshot, now)
    return ATTESTED if problem is None else problem.kind.value


def find_node_problem(
    node: AttestedNodeObject, snapshot: Snapshot, now: datetime
) -> NodeProblem | None:
    """Return what is wrong with the renewals of a node, `None` also if its claim is over."""
    if not has_complete_claim(node, snapshot):
        return None
    return find_problem(node, now, lambda _: _shown_loss(snapshot.machine_of(node)))


def _shown_loss(machine: MachineObject | PoolObject | None) -> WentBack | None:
    """Return that claims were lost, if the signer has written that on the Machine."""
    condition = machine.attested if isinstance(machine, MachineObject) else None
    if condition is None or condition.reason != ClaimsOutOfDate.reason:
        return None
    end = datetime.max.replace(tzinfo=UTC)
    return WentBack(at=end, until=end)


def has_complete_claim(node: AttestedNodeObject, snapshot: Snapshot) -> bool:
    """Return whether a node has its key and a Machine that is not being deleted."""
    machine = snapshot.machine_of(node)
    return (
        is_complete_claim(snapshot.keys.get(node.endorsement_key), node)
        and machine is not None
        and not (isinstance(machine, MachineObject) and machine.deleting)
    )


def _machines(snapshot: Snapshot) -> Iterable[Document]:
    """Yield the Machines of opted-in Clusters whose node has not attested."""
    opted_in = {c.key for c in snapshot.opted_in()}
    attested = {(n.cluster, n.provider_id) for n in snapshot.nodes}
    for machine in snapshot.machines:
        if machine.cluster in opted_in and (machine.cluster, machine.provider_id) not in attested:
            yield {
                "namespace": machine.cluster.namespace,
                "cluster": machine.cluster.name,
                "node": None,
                "machine": machine.name,
                "state": "NotAttested",
                "reason": None,
                "message": None,
                "lastAttested": None,
                "notAfter": None,
                "endorsementKey": None,
                "basis": None,
                "providerID": machine.provider_id or None,
            }


def _remaining(text: str | None, now: datetime) -> str | None:
    return None if text is None else age(time_text(now), datetime.fromisoformat(text))
