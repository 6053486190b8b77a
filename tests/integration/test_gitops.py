"""Registrations and bans in Git, and the signer's claims in the same objects.

docs/operate/gitops.md describes it. GitOps controllers use server-side apply, with a field manager
of their own and usually with all rights. kubectl does the same here.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from common.names import ENDORSEMENT_KEY_ANNOTATION
from tests.harness.controlplane import KubectlFailed
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.management import ACCOUNT, NAMESPACE, ManagementCluster
from tests.harness.node import Node
from tests.harness.process import wait_until
from tests.integration.operator_calls import Operator

MANIFEST = Path(__file__).parents[2] / "packaging/signer/manifests/install.yaml"
RBAC = "rbac.authorization.k8s.io"
GITOPS = ("--as=gitops", "--as-group=gitops-controllers")
SIGNER = (f"--as=system:serviceaccount:{NAMESPACE}:{ACCOUNT}",)
APPROVER = "--as=approver-of-team-b"
DIGEST = "c0de" * 16
BAN = {"reason": "stolen"}
CLAIM = {
    "clusterNamespace": "team-a",
    "clusterName": "gone",
    "nodeName": "node-1",
    "providerID": "test://gone/node-1",
    "basis": "Registered",
    "since": "2026-01-02T03:04:05Z",
}
"""Of a Cluster that no test has, so that the signer does nothing with it."""


@pytest.fixture
def management(fleet: Fleet) -> Iterator[ManagementCluster]:
    """Return the management cluster, whose GitOps controllers have all rights."""
    cluster = fleet.management
    name = "gitops-controllers"
    cluster.kubectl(
        "create", "clusterrolebinding", name, "--clusterrole=cluster-admin", f"--group={name}"
    )
    forged = key_object(DIGEST, heldBy=CLAIM)
    wait_until(
        lambda: "is the claim of a node" in refused(cluster, *GITOPS, "create", body=forged),
        what="the role is bound, and the policy is in force",
    )
    yield cluster
    cluster.kubectl("delete", "clusterrolebinding", name)
    cluster.kubectl("delete", "endorsementkey", DIGEST, "--ignore-not-found")


def key_object(digest: str, **spec: object) -> dict[str, Any]:
    """Return an EndorsementKey as a file in Git has it."""
    api = "attestation.cluster.x-k8s.io/v1alpha1"
    return {"apiVersion": api, "kind": "EndorsementKey", "metadata": {"name": digest}, "spec": spec}


def run(cluster: ManagementCluster, *arguments: str, body: dict[str, Any]) -> str:
    """Run kubectl with an object."""
    return cluster.kubectl(*arguments, "-f", "-", stdin=yaml.safe_dump(body))


def apply(cluster: ManagementCluster, body: dict[str, Any]) -> None:
    """Apply an object as Flux does, but fail where it would take a field from another manager."""
    manager = "--field-manager=kustomize-controller"
    run(cluster, *GITOPS, "apply", "--server-side", manager, body=body)


def refused(cluster: ManagementCluster, *arguments: str, body: dict[str, Any]) -> str:
    """Return why the API server refuses a write, an empty text if it would accept it."""
    try:
        run(cluster, *arguments, "--dry-run=server", body=body)
    except KubectlFailed as error:
        return str(error)
    return ""


def spec_of(cluster: ManagementCluster, digest: str) -> dict[str, Any]:
    """Return the spec of an EndorsementKey."""
    spec: dict[str, Any] = json.loads(cluster.kubectl("get", "ek", digest, "-o", "json"))["spec"]
    return spec


def digest_of(node: Node) -> str:
    """Return the digest of a node's endorsement key."""
    [digest] = node.registration().values()
    return digest.removeprefix("sha256:")


@pytest.mark.usefixtures("signer")
def test_git_and_the_signer_write_one_object_without_conflicts(
    management: ManagementCluster, machines: Machines
) -> None:
    node = machines.known()
    digest = digest_of(node)
    place = {"clusterNamespace": node.tenant.namespace, "clusterName": node.tenant.name}
    in_git = key_object(digest, registeredFor=[{**place, "machineName": node.name}])
    apply(management, in_git)
    assert node.call().status == 0, "the node joins with the registration of Git"
    claim = spec_of(management, digest)["heldBy"]
    assert claim["nodeName"] == node.name

    apply(management, in_git)
    assert spec_of(management, digest)["heldBy"] == claim
    assert node.call("renew", "--kubeconfig", str(node.kubeconfig())).status == 0
    apply(management, key_object(digest, **in_git["spec"], banned=BAN))
    banned = spec_of(management, digest)
    assert (banned["banned"], banned["heldBy"]["nodeName"]) == (BAN, node.name)
    # What Git has set, a commit removes.
    apply(management, in_git)
    assert "banned" not in spec_of(management, digest)
    management.kubectl("delete", "ek", digest)


@pytest.mark.usefixtures("signer")
def test_key_that_the_signer_has_created_is_put_into_git(
    management: ManagementCluster, machines: Machines
) -> None:
    node = machines.registered()
    assert node.call().status == 0, "the signer creates the EndorsementKey with its public key"
    cluster = f"{node.tenant.namespace}/{node.tenant.name}"
    printed = node.call("endorsement-key", "--manifest", "--cluster", cluster)
    in_git = yaml.safe_load(printed.output)
    apply(management, in_git)
    spec = spec_of(management, digest_of(node))
    assert spec["registeredFor"] == in_git["spec"]["registeredFor"]
    assert spec["heldBy"]["nodeName"] == node.name
    assert node.call("renew", "--kubeconfig", str(node.kubeconfig())).status == 0
    management.kubectl("delete", "ek", digest_of(node))


def test_replace_and_prune_delete_no_claim(management: ManagementCluster) -> None:
    in_git = key_object(DIGEST, registeredFor=[])
    apply(management, in_git)
    patch = json.dumps({"spec": {"heldBy": CLAIM}})
    management.kubectl(*SIGNER, "patch", "ek", DIGEST, "--type=merge", "-p", patch)
    assert "is the claim of a node" in refused(management, *GITOPS, "replace", body=in_git)
    assert "is the claim of a node" in refused(management, *GITOPS, "delete", body=in_git)
    removal = ("patch", "ek", DIGEST, "--type=merge", "-p", '{"spec":{"heldBy":null}}')
    with pytest.raises(KubectlFailed, match="is the claim of a node"):
        management.kubectl(*GITOPS, *removal)
    # An administrator of kubeadm's group may, but not by accident.
    assert "this write would remove spec.heldBy" in refused(management, "replace", body=in_git)
    assert refused(management, "delete", body=in_git) == ""
    assert spec_of(management, DIGEST)["heldBy"] == CLAIM
    management.kubectl(*removal)
    assert refused(management, *GITOPS, "replace", body=in_git) == ""


def test_replace_and_prune_lift_no_ban_of_an_operator(
    management: ManagementCluster, fleet: Fleet
) -> None:
    in_git = key_object(DIGEST, registeredFor=[])
    apply(management, in_git)
    operator = Operator(fleet, management.admin_config)
    assert operator.call("ban", DIGEST, "--reason", "stolen", "--yes").status == 0
    apply(management, in_git)
    for who in ((), GITOPS):
        message = refused(management, *who, "replace", body=in_git)
        assert "this write would remove spec.banned" in message
    assert "the endorsement key is banned" in refused(management, *GITOPS, "delete", body=in_git)
    assert spec_of(management, DIGEST)["banned"]["reason"] == "stolen"
    assert operator.call("ban", DIGEST, "--lift", "--yes").status == 0
    assert refused(management, *GITOPS, "delete", body=in_git) == ""


def create_role(cluster: ManagementCluster, name: str) -> None:
    """Apply a ClusterRole of the installation."""
    documents = yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8"))
    [body] = [
        each
        for each in documents
        if each and each["metadata"]["name"] == name and each["kind"] == "ClusterRole"
    ]
    run(cluster, "apply", "--server-side", body=body)


def test_role_of_a_registrar_is_enough_for_git(management: ManagementCluster) -> None:
    """Argo CD also watches what it applies."""
    role = "node-attestation-signer-registrar"
    create_role(management, role)
    who = "--as=argocd"
    management.kubectl(
        "create", "clusterrolebinding", role, f"--clusterrole={role}", "--user=argocd"
    )
    wait_until(
        lambda: accepted(management, who, "auth", "can-i", "watch", "endorsementkeys"),
        what="the role is bound",
    )
    apply_as = (who, "apply", "--server-side", "--field-manager=argocd-controller")
    run(management, *apply_as, body=key_object(DIGEST, registeredFor=[], banned=BAN))
    run(management, *apply_as, body=key_object(DIGEST, registeredFor=[]))
    assert "banned" not in spec_of(management, DIGEST)
    assert "forbidden" in refused(management, who, "delete", body=key_object(DIGEST))
    management.kubectl("delete", "clusterrolebinding", role)


@pytest.fixture
def tenant_approver(fleet: Fleet) -> Iterator[str]:
    """Bind a user to the role of the installation in the namespace of the second tenant."""
    cluster, namespace = fleet.management, fleet.second.namespace
    role = "node-attestation-signer-tenant-approver"
    create_role(cluster, role)
    user = APPROVER.removeprefix("--as=")
    cluster.kubectl(
        "create", "rolebinding", role, f"--clusterrole={role}", f"--user={user}", "-n", namespace
    )
    yield namespace
    cluster.kubectl("delete", "rolebinding", role, "-n", namespace)


@pytest.mark.usefixtures("signer")
def test_approver_of_a_tenant_approves_for_that_tenant_only(
    fleet: Fleet, machines: Machines, tenant_approver: str
) -> None:
    management = fleet.management
    node, other = machines.known(fleet.second), machines.known(fleet.first)
    value = f"{ENDORSEMENT_KEY_ANNOTATION}=sha256:{digest_of(node)}"
    annotate = (APPROVER, "annotate", "machine", node.name, "-n", tenant_approver)
    wait_until(
        lambda: accepted(management, *annotate, value, "--dry-run=server"),
        what="the role is bound",
    )
    for patch in (
        {"spec": {"failureDomain": "other"}},
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"annotations": {"a": "b"}}},
        {"metadata": {"finalizers": ["example.com/keep"]}},
    ):
        arguments = ("patch", "machine", node.name, "-n", tenant_approver, "--type=merge")
        text = json.dumps(patch)
        with pytest.raises(KubectlFailed, match="may change only the annotation"):
            management.kubectl(APPROVER, *arguments, "-p", text)
        management.kubectl(*arguments, "--dry-run=server", "-p", text)
    place = ("annotate", "machine", other.name, "-n", fleet.first.namespace)
    with pytest.raises(KubectlFailed, match=r"machines.* is forbidden"):
        management.kubectl(APPROVER, *place, value)
    management.kubectl(*annotate, value)
    assert node.call().status == 0, "the node joins with the key that the tenant approved"


def accepted(cluster: ManagementCluster, *arguments: str) -> bool:
    """Return whether a command succeeds."""
    try:
        cluster.kubectl(*arguments)
    except KubectlFailed:
        return False
    return True
