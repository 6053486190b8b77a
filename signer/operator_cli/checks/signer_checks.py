"""Checks whether a replica of the signer runs, and whether it serves a Cluster."""

from collections.abc import Iterator
from datetime import datetime

from signer.errors import PolicyInvalid
from signer.inventory.cluster_api.cluster import ClusterObject
from signer.inventory.custom_resources.policy_object import SERVED, PolicyObject
from signer.inventory.replica_records.replica_leases import PolicySource
from signer.operator_cli.checks.findings import Finding, Result
from signer.operator_cli.management.signer_state import NO_REPLICA, SignerState, read_signer_state
from signer.operator_cli.management.snapshot import Snapshot
from signer.operator_cli.output import age, time_text
from signer.operator_cli.session import Session


def read_signer(session: Session) -> SignerState:
    """Read whether the signer runs. A permission that is missing is part of the result."""
    api, namespace = session.api, session.arguments.signer_namespace
    with session.progress("reading the Leases of the signer"):
        return read_signer_state(api, namespace, session.now)


def warn_of_signer(session: Session, state: SignerState, snapshot: Snapshot) -> None:
    """Print a warning with the next step if no replica runs, or if that is not known."""
    finding = check_signer(state, snapshot, session.now)
    if finding.result is not Result.OK:
        session.warn(f"signer: {finding.message}. Next step: {finding.next_step}")


def check_signer(state: SignerState, snapshot: Snapshot | None, now: datetime) -> Finding:
    """Check that a replica runs; say since when none does.

    A replica that was stopped has deleted its Lease. Then the last certificate of a node says
    when a signer still ran.
    """
    check, name = "signer", state.namespace
    if state.problem:
        return Finding(
            result=Result.UNKNOWN,
            check=check,
            object=name,
            message=f"it is not known whether a replica runs: {state.problem}",
            next_step=f"get the permission to list Leases in the namespace {name}",
        )
    if state.has_replica():
        message = f"{len(state.live)} replicas run"
        return Finding(result=Result.OK, check=check, object=name, message=message)
    since = state.last_renewal
    message = "no replica has a Lease"
    if since is not None:
        message = f"no replica serves since {_ago(since, now)}"
    elif snapshot is not None:
        issued = [n.last_attested for n in snapshot.nodes if snapshot.holds_key(n)]
        message += f"; the last certificate was issued {_ago(max(issued), now)}" if issued else ""
    return Finding(
        result=Result.PROBLEM,
        check=check,
        object=name,
        message=f"{message}: no node can join or renew",
        next_step=f"kubectl get pods -n {name}, see docs/runbooks/signer-absent.md;"
        " if the signer has another namespace, name it with --signer-namespace",
    )


def check_policies(state: SignerState) -> Iterator[Finding]:
    """Yield where the policies are, and those that the signer has refused or does not read."""
    check, name = "policies", state.namespace
    if PolicySource.INVALID_FILE in state.sources:
        yield Finding(
            result=Result.PROBLEM,
            check=check,
            object=name,
            message=f"{PolicyInvalid.reason}: the policy file of the signer is invalid. The"
            " policies of its last valid content stay in force until the signer ends",
            next_step="kubectl attestation policy check FILE, see docs/runbooks/policy-invalid.md",
        )
    elif PolicySource.FILE in state.sources:
        yield Finding(result=Result.OK, check=check, object=name, message="they are in a file")
    if state.reads_only_files:
        for policy in state.policies:
            yield Finding(
                result=Result.WARNING,
                check=check,
                object=policy.name,
                message="the signer has its policies in a file, so this object has no effect",
                next_step="delete it, or start the signer without --policy",
            )
        return
    for policy in state.policies:
        yield _check_policy(policy)


def _check_policy(policy: PolicyObject) -> Finding:
    check, name, step = "policies", policy.name, "kubectl attestation policy check"
    conditions = policy.status.get("conditions") or ()
    ready = next((c for c in conditions if c["type"] == "Ready"), None)
    if ready is None:
        message = "no signer has written its status"
        return Finding(
            result=Result.UNKNOWN, check=check, object=name, message=message, next_step=step
        )
    if ready["status"] == "True":
        return Finding(result=Result.OK, check=check, object=name)
    message = f"{ready['reason']}: {ready['message']}"
    return Finding(result=Result.PROBLEM, check=check, object=name, message=message, next_step=step)


def check_served(cluster: ClusterObject, state: SignerState) -> Iterator[Finding]:
    """Yield whether the signer serves an opted-in Cluster, if the signer has written it."""
    written = state.of_cluster(cluster)
    reason, name = written.get("state"), str(cluster.key)
    if reason is None or reason == NO_REPLICA:
        return
    if reason == SERVED:
        yield Finding(result=Result.OK, check="served", object=name)
        return
    yield Finding(
        result=Result.PROBLEM,
        check="served",
        object=name,
        message=f"{reason}: {written.get('message', 'the signer does not serve the Cluster')}",
        next_step="see docs/policies.md, Why a Cluster is not served",
    )


def _ago(time: datetime, now: datetime) -> str:
    text = time_text(time)
    return f"{text} ({age(text, now)} ago)"
