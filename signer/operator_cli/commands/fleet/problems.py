"""`problems`: what an operator has to do today, each with the next command.

What is wrong with the renewals of a node is what `find_problem` says, as on the Machine and in the
metrics. Whether a Cluster is served is what the signer wrote. No workload cluster is contacted.
"""

from collections.abc import Iterable
from typing import Final

from common.errors import AttestationError
from common.printed_command import printed_command
from signer.errors import EndorsementKeyNotRegistered
from signer.inventory.custom_resources.policy_object import SERVED
from signer.inventory.unreadable_kinds import CLUSTER_MESSAGE, REASON
from signer.kinds.attested_node import AttestedNodeObject
from signer.kinds.cluster import ClusterKey
from signer.operator_cli.checks.findings import FindingResult
from signer.operator_cli.checks.signer_checks import (
    NOT_WRITTEN,
    check_policies,
    check_signer,
    read_signer,
)
from signer.operator_cli.commands.fleet.nodes import find_node_problem
from signer.operator_cli.errors import EXIT_NEGATIVE, EXIT_OK, EXIT_UNDECIDED
from signer.operator_cli.keys.key_request_list import (
    approval_command,
    key_documents,
    read_key_requests,
)
from signer.operator_cli.management.signer_state import NO_REPLICA, SignerState
from signer.operator_cli.management.snapshot import Snapshot
from signer.operator_cli.output import Column, Document, field
from signer.operator_cli.session import Session

_COLUMNS = (
    Column("PROBLEM", field("problem")),
    Column("NAMESPACE", field("namespace")),
    Column("CLUSTER", field("cluster")),
    Column("OBJECT", field("object")),
    Column("REASON", field("reason")),
    Column("MESSAGE", field("message"), below=True),
    Column("NEXT-STEP", field("nextStep"), below=True),
)
_NAMED: Final = 3
"""Clusters that a warning names."""


def run(session: Session) -> int:
    """Print one row for each problem; any problem makes the exit status 1."""
    snapshot, signer = session.snapshot(), read_signer(session)
    unknown = [
        str(cluster.key)
        for cluster in snapshot.opted_in()
        if not signer.problem and not signer.of_cluster(cluster)
    ]
    if unknown:
        named = ", ".join(unknown[:_NAMED]) + (" and others" if len(unknown) > _NAMED else "")
        session.warn(f"Clusters of which nothing is known ({len(unknown)}): {named}: {NOT_WRITTEN}")
    documents = [
        *_unserved(snapshot, signer, session),
        *_unreadable(snapshot),
        *_nodes(snapshot, session),
        *_unknown(session),
    ]
    session.show_list(documents, _COLUMNS)
    if documents:
        return EXIT_NEGATIVE
    return EXIT_UNDECIDED if signer.problem or unknown else EXIT_OK


def _row(  # noqa: PLR0913, PLR0917 - the columns
    problem: str,
    cluster: ClusterKey | None,
    name: str,
    reason: str,
    message: str,
    next_step: str,
) -> Document:
    return {
        "problem": problem,
        "namespace": None if cluster is None else cluster.namespace,
        "cluster": None if cluster is None else cluster.name,
        "object": name,
        "reason": reason,
        "message": message,
        "nextStep": next_step,
    }


def _unserved(snapshot: Snapshot, signer: SignerState, session: Session) -> Iterable[Document]:
    """Yield a stopped signer, refused policies, and what is wrong with Clusters."""
    finding = check_signer(signer, snapshot, session.now)
    if finding.result is FindingResult.UNKNOWN:
        session.warn(f"signer: {finding.message}. Next step: {finding.next_step}")
    elif finding.result is not FindingResult.OK:
        row = _row("Unserved", None, "signer", NO_REPLICA, finding.message, finding.next_step)
        yield {**row, "namespace": signer.namespace}
    for finding in check_policies(signer):
        if finding.result is FindingResult.PROBLEM:
            reason, _, message = finding.message.partition(": ")
            yield _row("Policy", None, finding.object, reason, message, finding.next_step)
    for cluster in snapshot.opted_in():
        key, written = cluster.key, signer.of_cluster(cluster)
        state, message = written.get("state", SERVED), written.get("message", "")
        if state == SERVED and message.startswith(CLUSTER_MESSAGE):
            step = printed_command("kubectl describe cluster", key.name, n=key.namespace)
            yield _row("Unreadable", key, "Cluster", REASON, message, step)
        elif state == SERVED and message:
            step = printed_command("kubectl attestation kubeconfig", str(key))
            yield _row("Expiring", key, "kubeconfig", "KubeconfigExpires", message, step)
        elif state != SERVED and signer.has_replica():
            step = printed_command("kubectl attestation doctor", cluster=str(key))
            yield _row("Unserved", key, "Cluster", state, message, step)
        if cluster.bindings is not None and not cluster.bindings.removed:
            message = (
                "bindings approve certificates without attestation until the Nodes from before the"
                " opt-in have attested; the condition AutoApproveBindingsRemoved of the Cluster"
                " names these Nodes"
            )
            step = printed_command("kubectl describe cluster", key.name, n=key.namespace)
            yield _row("Bindings", key, "Cluster", cluster.bindings.reason, message, step)


def _unreadable(snapshot: Snapshot) -> Iterable[Document]:
    """Yield the objects of the management cluster that cannot be read."""
    for each in snapshot.unreadable:
        namespace, _, name = each.key.rpartition("/")
        command = printed_command("kubectl delete", each.kind.lower(), name, n=namespace or False)
        step = f"correct the object, or {command}"
        message = f"the signer decides nothing that may depend on it: {each.problem}"
        row = _row("Unreadable", None, f"{each.kind} {name}", REASON, message, step)
        yield {**row, "namespace": namespace or None}


def _nodes(snapshot: Snapshot, session: Session) -> Iterable[Document]:
    """Yield the nodes whose renewal was refused or is overdue, those first that expire first."""
    for node in sorted(snapshot.nodes, key=lambda n: n.not_after):
        problem = find_node_problem(node, snapshot, session.now)
        if problem is not None:
            step = _next_step(node)
            kind, reason, message = problem.kind.value, problem.reason, problem.message
            yield _row(kind, node.cluster, node.node_name, reason, message, step)


def _next_step(node: AttestedNodeObject) -> str:
    """Return the next command about a node."""
    refusal = node.last_refusal
    if refusal is None:
        return "on the node: kubelet-authenticator-tpm doctor"
    if refusal.measured is not None:
        return "kubectl attestation pcrs review"
    error = AttestationError.by_reason.get(refusal.reason)
    return printed_command(
        "kubectl attestation explain",
        refusal.request,
        cluster=str(node.cluster),
        challenge_keys=error is not None and error.of_answers,
    )


def _unknown(session: Session) -> Iterable[Document]:
    """Yield the TPMs that were offered for Machines without a registered key."""
    for request in read_key_requests(session):
        for key in key_documents(request):
            message = (
                f"a TPM with the unregistered key {key['endorsementKey']} was offered for the"
                " Machine. Nothing proves that it is the Machine's: compare the key"
            )
            reason, step = EndorsementKeyNotRegistered.reason, approval_command(key)
            yield _row("Unknown", request.cluster, request.name, reason, message, step)
