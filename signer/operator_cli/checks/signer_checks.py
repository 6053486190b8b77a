"""Checks whether a replica of the signer runs, and whether it serves a Cluster."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from common.printed_command import printed_command
from signer.errors import PolicyMissing
from signer.inventory.cluster_api.cluster import ClusterObject
from signer.inventory.custom_resources.policy_object import SERVED, PolicyObject
from signer.operator_cli.checks.findings import DoctorCheck, Finding, FindingResult
from signer.operator_cli.management.signer_state import NO_REPLICA, SignerState, read_signer_state
from signer.operator_cli.management.snapshot import Snapshot
from signer.operator_cli.output import age, time_text
from signer.operator_cli.session import Session

NOT_WRITTEN: Final = (
    "the signer has not written whether it serves the Cluster, or there was no space for it beside"
    " those that are not served"
)


def read_signer(session: Session) -> SignerState:
    """Read whether the signer runs. A permission that is missing is part of the result."""
    api, namespace = session.api, session.arguments.signer_namespace
    with session.progress("reading the Leases of the signer"):
        return read_signer_state(api, namespace, session.now)


def warn_of_signer(session: Session, state: SignerState, snapshot: Snapshot) -> None:
    """Print a warning with the next step if no replica runs, or if that is not known."""
    finding = check_signer(state, snapshot, session.now)
    if finding.result is not FindingResult.OK:
        session.warn(f"signer: {finding.message}. Next step: {finding.next_step}")


def check_signer(state: SignerState, snapshot: Snapshot | None, now: datetime) -> Finding:
    """Check that a replica runs; say since when none does.

    A replica that was stopped has deleted its Lease. Then the last certificate of a node says
    when a signer still ran.
    """
    check = DoctorCheck("signer", state.namespace)
    if state.problem:
        return check.unknown(
            f"it is not known whether a replica runs: {state.problem}",
            f"get the permission to list Leases in the namespace {state.namespace}",
        )
    if state.has_replica():
        count = len(state.live)
        return check.ok("1 replica runs" if count == 1 else f"{count} replicas run")
    since = state.last_renewal
    message = "no replica has a Lease"
    if since is not None:
        message = f"no replica has served since {_ago(since, now)}"
    elif snapshot is not None:
        issued = [n.last_attested for n in snapshot.nodes if snapshot.holds_key(n)]
        message += f"; the last certificate was issued {_ago(max(issued), now)}" if issued else ""
    pods = printed_command("kubectl get pods", n=state.namespace)
    return check.problem(
        f"{message}: no node can join or renew",
        f"{pods}, see docs/runbooks/signer-absent.md;"
        " if the signer has another namespace, name it with --signer-namespace",
    )


def check_policies(state: SignerState) -> Iterator[Finding]:
    """Yield one finding for each policy, or one that says that there is no policy."""
    if not state.policies and not state.problem:
        yield DoctorCheck("policies", state.namespace).problem(
            f"{PolicyMissing.reason}: no Cluster is served: there is no KubeletAttestationPolicy",
            "create one: docs/policies.md, The first policy",
        )
    for policy in state.policies:
        yield _check_policy(policy)


def _check_policy(policy: PolicyObject) -> Finding:
    check, step = DoctorCheck("policies", policy.name), "kubectl attestation policy check"
    conditions = policy.status.get("conditions") or ()
    ready = next((c for c in conditions if c["type"] == "Ready"), None)
    if ready is None:
        return check.unknown("no signer has written its status", step)
    if ready["status"] == "True":
        return check.ok()
    return check.problem(f"{ready['reason']}: {ready['message']}", step)


def check_served(cluster: ClusterObject, state: SignerState) -> Iterator[Finding]:
    """Yield whether the signer serves an opted-in Cluster, if the signer has written it."""
    written = state.of_cluster(cluster)
    reason, check = written.get("state"), DoctorCheck("served", str(cluster.key))
    if state.problem or reason == NO_REPLICA:
        return
    if reason is None:
        yield check.unknown(NOT_WRITTEN, "run the command again after a minute, or read the log")
        return
    if reason == SERVED:
        yield check.ok()
        return
    message = written.get("message", "the signer does not serve the Cluster")
    step = "see docs/policies.md, Why a Cluster is not served"
    yield check.problem(f"{reason}: {message}", step)


def _ago(time: datetime, now: datetime) -> str:
    text = time_text(time)
    return f"{text} ({age(text, now)} ago)"
