"""`clusters`: the Clusters, whether the signer serves them, and whether their servers answer."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from common.names import CLIENT_SIGNER
from signer.inventory.cluster_api.cluster import ClusterObject
from signer.inventory.custom_resources.policy_object import SERVED
from signer.kinds.cluster import ClusterKey
from signer.kinds.resources import CAPI
from signer.operator_cli.checks.signer_checks import read_signer, warn_of_signer
from signer.operator_cli.commands.fleet.nodes import ATTESTED, node_state
from signer.operator_cli.errors import EXIT_OK
from signer.operator_cli.management.signer_state import SignerState
from signer.operator_cli.management.snapshot import Snapshot
from signer.operator_cli.output import Column, Document, field
from signer.operator_cli.session import Session
from signer.operator_cli.workloads.pending_requests import PendingRequest, read_pending, unanswered
from signer.operator_cli.workloads.workload_reader import Unreachable, for_each_workload

COLUMNS = (
    Column("NAMESPACE", field("namespace")),
    Column("NAME", field("cluster")),
    Column("OPTED-IN", field("optedIn")),
    Column("SERVED", lambda d: "yes" if d["state"] == SERVED else d["state"]),
    Column("MACHINES", field("machines")),
    Column("ATTESTED", field("attestedNodes")),
    Column("PENDING", field("pendingRequests")),
    Column("API-SERVER", field("apiServer")),
    Column("MESSAGE", field("message"), wide=True),
    Column("SIGNERS", field("clientSigners"), wide=True),
)

UNKNOWN: Final = "Unknown"
"""State of a Cluster of which no replica has written one."""
_NOT_READ: Final[Document] = {"pendingRequests": None, "apiServer": None}
"""State of a Cluster that has not opted in: nothing connects to it."""


def run(session: Session) -> int:
    """Print one line for each Cluster."""
    snapshot = session.snapshot()
    signer = read_signer(session)
    results = for_each_workload(session, snapshot.opted_in(), lambda api, _: read_pending(api))
    workloads = {c.key: _workload_fields(c.key, result, snapshot) for c, result in results}
    machines = Counter(m.cluster for m in snapshot.machines)
    states = ((n.cluster, node_state(n, snapshot, session.now)) for n in snapshot.nodes)
    attested = Counter(cluster for cluster, state in states if state == ATTESTED)
    documents: list[Document] = [
        {
            "namespace": cluster.key.namespace,
            "cluster": cluster.key.name,
            "optedIn": opt_in_state(cluster, snapshot),
            **_signer_fields(cluster, snapshot, signer),
            "clientSigners": sorted(snapshot.signers[cluster.key]),
            "machines": machines[cluster.key],
            "attestedNodes": attested[cluster.key],
            **workloads.get(cluster.key, _NOT_READ),
        }
        for cluster in snapshot.clusters
    ]
    session.show_list(documents, COLUMNS, lambda d: f"cluster.{CAPI}/{d['cluster']}")
    warn_of_signer(session, signer, snapshot)
    return EXIT_OK


def _signer_fields(cluster: ClusterObject, snapshot: Snapshot, signer: SignerState) -> Document:
    """Return the signer's own view of a Cluster; only an opted-in Cluster has one."""
    if not snapshot.signers[cluster.key]:
        return {"state": None, "message": None}
    written = signer.of_cluster(cluster)
    return {"state": written.get("state", UNKNOWN), "message": written.get("message")}


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
        return {"pendingRequests": None, "apiServer": str(result)}
    pending = len(unanswered(result, cluster, snapshot))
    return {"pendingRequests": pending, "apiServer": "reachable"}
