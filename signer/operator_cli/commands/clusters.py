"""`clusters`: the Clusters, whether they have opted in, and whether their API server answers."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from common.names import CLIENT_SIGNER
from signer.inventory.cluster import ClusterObject
from signer.model import ClusterKey
from signer.operator_cli.errors import EXIT_OK
from signer.operator_cli.output import Column, Document, field
from signer.operator_cli.pending_requests import PendingRequest, read_pending, unanswered
from signer.operator_cli.session import Session
from signer.operator_cli.snapshot import Snapshot
from signer.operator_cli.workloads import Unreachable, for_each_workload

COLUMNS = (
    Column("NAMESPACE", field("namespace")),
    Column("NAME", field("name")),
    Column("OPTED-IN", field("optedIn")),
    Column("MACHINES", field("machines")),
    Column("ATTESTED", field("attestedNodes")),
    Column("PENDING", field("pendingRequests")),
    Column("API-SERVER", field("apiServer")),
    Column("SIGNERS", field("clientSigners"), wide=True),
)

_NOT_READ: Final[Document] = {"pendingRequests": None, "apiServer": None}
"""State of a Cluster that has not opted in: nothing connects to it."""


def run(session: Session) -> int:
    """Print one line for each Cluster."""
    snapshot = session.snapshot()
    opted_in = snapshot.opted_in()
    results = for_each_workload(session, opted_in, lambda client, _: read_pending(client))
    workloads = {
        c.key: _workload_fields(c.key, result, snapshot)
        for c, result in zip(opted_in, results, strict=True)
    }
    machines = Counter(m.cluster for m in snapshot.machines)
    nodes = Counter(n.cluster for n in snapshot.nodes)
    documents: list[Document] = [
        {
            "namespace": cluster.key.namespace,
            "name": cluster.key.name,
            "optedIn": opt_in_state(cluster, snapshot),
            "clientSigners": sorted(snapshot.signers[cluster.key]),
            "machines": machines[cluster.key],
            "attestedNodes": nodes[cluster.key],
            **workloads.get(cluster.key, _NOT_READ),
        }
        for cluster in _sorted(snapshot.clusters)
    ]
    session.show_list(documents, COLUMNS)
    return EXIT_OK


def opt_in_state(cluster: ClusterObject, snapshot: Snapshot) -> str:
    """Return whether the signer serves a Cluster, and what is wrong if it does not."""
    signers = snapshot.signers[cluster.key]
    if not signers:
        return "no"
    if signers != {CLIENT_SIGNER}:
        return "several signers" if CLIENT_SIGNER in signers else "unknown signer"
    return "paused" if cluster.paused else "yes"


def _workload_fields(
    cluster: ClusterKey, result: Sequence[PendingRequest] | Unreachable, snapshot: Snapshot
) -> Document:
    if isinstance(result, Unreachable):
        return {"pendingRequests": None, "apiServer": result.reason}
    pending = len(unanswered(result, cluster, snapshot))
    return {"pendingRequests": pending, "apiServer": "reachable"}


def _sorted(clusters: Sequence[ClusterObject]) -> list[ClusterObject]:
    return sorted(clusters, key=lambda c: (c.key.namespace, c.key.name))
