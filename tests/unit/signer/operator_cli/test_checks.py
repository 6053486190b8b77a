"""The checks of `check` without a cluster: opt-in, certificate authority, lists of permissions."""

import io
import json
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from common.names import CLIENT_SIGNER
from signer.inventory.cluster import CLIENT_SIGNER_ANNOTATION, ClusterObject, read_cluster
from signer.kube.secrets import OwnerReference, Secret
from signer.operator_cli import management_checks, workload_checks
from signer.operator_cli.commands import check
from signer.operator_cli.errors import Rejected
from signer.operator_cli.findings import Finding, Result, exit_status
from signer.operator_cli.management import ManagementApi
from signer.operator_cli.session import Session
from signer.operator_cli.snapshot import Snapshot
from signer.operator_cli.workload_checks import check_authority, check_opt_in, without_attestation
from tests.harness import pki

RBAC = Path(__file__).parents[4] / "packaging/signer"
NOW = datetime.now(UTC)
LIFETIME = timedelta(days=365)


def cluster() -> ClusterObject:
    created = "2026-11-01T00:00:00Z"
    metadata = {"name": "c1", "namespace": "team-a", "uid": "u", "creationTimestamp": created}
    return read_cluster(json.dumps({"metadata": metadata, "spec": {}}).encode())


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
    assert set(workload_checks.PERMISSIONS) <= packaged


@pytest.mark.parametrize(
    ("signers", "annotations", "result"),
    [
        ({CLIENT_SIGNER}, {}, Result.OK),
        (set(), {}, Result.OK),
        (set(), {"example.org/owner": "x"}, Result.OK),
        ({CLIENT_SIGNER + "x"}, {}, Result.PROBLEM),
        ({CLIENT_SIGNER, "example.org/other"}, {}, Result.PROBLEM),
        (set(), {CLIENT_SIGNER_ANNOTATION + "s": CLIENT_SIGNER}, Result.PROBLEM),
        (set(), {"cluster.x-k8s.io/client-signer": CLIENT_SIGNER}, Result.PROBLEM),
    ],
    ids=["in", "out", "other annotation", "typo", "two", "typo in the key", "other prefix"],
)
def test_opt_in(signers: set[str], annotations: Mapping[str, str], result: Result) -> None:
    finding = check_opt_in(cluster(), frozenset(signers), annotations)
    assert finding.result is result
    assert bool(finding.next_step) == (result is Result.PROBLEM)


@dataclass
class Secrets:
    """A management cluster with one Secret."""

    type: str = "cluster.x-k8s.io/secret"
    labels: Mapping[str, str] = field(
        default_factory=lambda: {"cluster.x-k8s.io/cluster-name": "c1"}
    )
    data: Mapping[str, bytes] = field(default_factory=dict)
    created: datetime | None = None
    owners: tuple[OwnerReference, ...] = ()
    missing: bool = False

    def read(self, _api: object, namespace: str, name: str) -> Secret | None:
        assert (namespace, name) == ("team-a", "c1-ca")
        return (
            None
            if self.missing
            else Secret(
                namespace=namespace,
                name=name,
                resource_version="1",
                type=self.type,
                labels=self.labels,
                data=self.data,
                created=self.created,
                owners=self.owners,
            )
        )


def authority(lifetime: timedelta = LIFETIME) -> Mapping[str, bytes]:
    pair = pki.Authority.make("c1", pki.ec_key(), lifetime=lifetime).pair
    return {"tls.crt": pair.certificate, "tls.key": pair.key}


@pytest.mark.parametrize(
    ("secrets", "result", "message"),
    [
        (Secrets(data=authority()), Result.OK, ""),
        (Secrets(data=authority(timedelta(days=20))), Result.WARNING, "expires on"),
        (Secrets(missing=True), Result.PROBLEM, "it is missing"),
        (Secrets(data=authority(), type="Opaque"), Result.PROBLEM, "its type must be"),
        (Secrets(data=authority(), labels={}), Result.PROBLEM, "its label"),
        (
            Secrets(data={"tls.crt": authority()["tls.crt"]}),
            Result.PROBLEM,
            "lacks certificate or key",
        ),
    ],
    ids=["good", "expires soon", "missing", "type", "label", "no key"],
)
def test_certificate_authority(
    monkeypatch: pytest.MonkeyPatch, secrets: Secrets, result: Result, message: str
) -> None:
    monkeypatch.setattr(workload_checks, "read_named_secret", secrets.read)
    finding = check_authority(None, cluster(), NOW)  # type: ignore[arg-type] # Secrets answers
    assert finding.result is result
    assert message in finding.message


def test_authority_that_is_older_than_its_cluster_is_no_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Cluster API and the signer use an authority that is older than its Cluster."""
    owner = OwnerReference(
        api_version="controlplane.cluster.x-k8s.io/v1beta2", kind="KubeadmControlPlane", uid="kcp"
    )
    older = datetime(2026, 10, 1, tzinfo=UTC)
    secrets = Secrets(data=authority(), created=older, owners=(owner,))
    monkeypatch.setattr(workload_checks, "read_named_secret", secrets.read)
    finding = check_authority(None, cluster(), NOW)  # type: ignore[arg-type] # Secrets answers
    assert (finding.result, finding.message) == (Result.OK, "")


@pytest.mark.parametrize(
    ("results", "status"),
    [
        ([Result.OK, Result.WARNING], 0),
        ([Result.OK, Result.UNKNOWN], 3),
        ([Result.UNKNOWN, Result.PROBLEM], 1),
        ([], 0),
    ],
    ids=["warning", "unknown", "problem", "nothing"],
)
def test_problem_outranks_what_is_unknown(results: list[Result], status: int) -> None:
    findings = [Finding(result=result, check="c", object="o") for result in results]
    assert exit_status(findings) == status


def test_cluster_that_does_not_exist_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """`check --cluster` with a typing error ended with status 0."""
    monkeypatch.setattr(check, "check_management", lambda _api, _namespace: [])
    monkeypatch.setattr(Session, "snapshot", absent_cluster)
    api = SimpleNamespace(server="https://management")
    streams = io.StringIO(), io.StringIO(), io.StringIO()
    arguments = Namespace(signer_namespace="n", output="table")
    session = Session(arguments, lambda: cast("ManagementApi", api), NOW, *streams)
    assert check.run(session) == 1
    assert streams[1].getvalue().splitlines()[1:] == [
        "problem   Clusters   https://management",
        "  message: Cluster team-a/typo does not exist",
        "  next step: run the command `clusters` for their names",
    ]


def absent_cluster(_: Session) -> Snapshot:
    """Read the objects of a Cluster that does not exist."""
    raise Rejected(
        "Cluster team-a/typo does not exist", hint="run the command `clusters` for their names"
    )


def test_cluster_without_attestation_needs_its_bindings_and_no_authority() -> None:
    """The advice to delete the bindings would keep its nodes from joining."""
    findings = [
        Finding(result=Result.PROBLEM, check=check, object="team-a/c1")
        for check in ("opt-in", "certificate authority", "automatic approval", "rights")
    ]
    assert [finding.check for finding in without_attestation(findings)] == ["opt-in", "rights"]
