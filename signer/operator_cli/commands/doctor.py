"""`doctor`: examines the installation, the Clusters, and rights that avoid the attestation."""

from collections.abc import Iterator

from signer.inventory.cluster_api.cluster import ClusterObject
from signer.kube.transport.client import ApiClient
from signer.operator_cli.checks.findings import DoctorCheck, Finding, exit_status
from signer.operator_cli.checks.management_checks import check_management
from signer.operator_cli.checks.signer_checks import (
    check_policies,
    check_served,
    check_signer,
    read_signer,
)
from signer.operator_cli.checks.workload_checks import (
    check_authority,
    check_kubeconfig_expiry,
    check_opt_in,
    read_workload_findings,
    unreachable_finding,
    without_attestation,
)
from signer.operator_cli.errors import Rejected
from signer.operator_cli.management.signer_state import SignerState
from signer.operator_cli.management.snapshot import Snapshot
from signer.operator_cli.output import Column, field
from signer.operator_cli.policies import read_policy_objects
from signer.operator_cli.session import Session
from signer.operator_cli.workloads.workload_reader import Unreachable, for_each_workload
from signer.policy.policy import PolicySet

_COLUMNS = (
    Column("RESULT", field("result")),
    Column("CHECK", field("check")),
    Column("OBJECT", field("object")),
    Column("MESSAGE", field("message"), below=True),
    Column("NEXT-STEP", field("nextStep"), below=True),
)


def run(session: Session) -> int:
    """Print every finding; a problem makes the exit status 1."""
    with session.progress("checking the management cluster"):
        names = session.arguments.signer_namespace, session.arguments.signer_account
        findings = list(check_management(session.api, *names))
    signer = read_signer(session)
    findings += check_policies(signer)
    try:
        snapshot = session.snapshot()
    except Rejected as error:
        # A CRD is missing, or the Cluster that --cluster names does not exist.
        findings.append(check_signer(signer, None, session.now))
        check = DoctorCheck("Clusters", session.api.server)
        findings.append(check.problem(error.message, error.hint))
    else:
        findings.append(check_signer(signer, snapshot, session.now))
        findings += _check_clusters(session, snapshot, signer)
    session.show_list([finding.document() for finding in findings], _COLUMNS)
    return exit_status(findings)


def _check_clusters(session: Session, snapshot: Snapshot, signer: SignerState) -> Iterator[Finding]:
    def read(client: ApiClient, cluster: ClusterObject) -> list[Finding]:
        connection = client.endpoint.connection
        expiry = check_kubeconfig_expiry(connection, cluster, session.now)
        attested = {n.node_name for n in snapshot.nodes if n.cluster == cluster.key and n.term}
        return [*read_workload_findings(client, cluster, attested), expiry]

    by_cluster = {c.key: r for c, r in for_each_workload(session, snapshot.opted_in(), read)}
    policies = _policies(session)
    for cluster in snapshot.clusters:
        key = cluster.key
        yield check_opt_in(cluster, snapshot.signers[key], snapshot.annotations[key])
        result = by_cluster.get(key)
        if result is None:
            continue
        yield from check_served(cluster, signer)
        serving_only = policies.is_serving_only(key, cluster.labels)
        if not serving_only:
            yield check_authority(session.api, cluster, session.now)
        if isinstance(result, Unreachable):
            yield unreachable_finding(cluster, result)
        else:
            yield from without_attestation(result) if serving_only else result


def _policies(session: Session) -> PolicySet:
    """Return the policy objects; none if they cannot be read."""
    try:
        return read_policy_objects(session.api)
    except Rejected:
        return PolicySet(accepted=())
