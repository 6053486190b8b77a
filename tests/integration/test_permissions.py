"""What bootstrap tokens and the signer may do, with the shipped roles."""

import base64
import subprocess
from pathlib import Path

import pytest

from tests.harness.client import ApiError
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.workload import SIGNER
from tests.integration.plain_requests import CSRS, approve, csr
from tests.integration.scripted_node import Script

BUILTIN_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"


def test_stored_kubeconfig_is_the_signers(fleet: Fleet, tmp_path: Path) -> None:
    for tenant in fleet.tenants:
        path = f"/api/v1/namespaces/{tenant.namespace}/secrets/{tenant.name}-kubeconfig"
        stored = fleet.management.admin.get(path)["data"]["value"]
        config = tmp_path / tenant.namespace
        config.write_bytes(base64.b64decode(stored))
        assert SIGNER in tenant.workload.kubectl("auth", "whoami", config=config)


def test_bootstrap_token_may_file_a_request_and_not_change_it(fleet: Fleet) -> None:
    workload = fleet.first.workload
    bootstrapper = workload.with_token(workload.bootstrap_token())
    bootstrapper.create(CSRS, csr("filed-by-a-token"))
    with pytest.raises(ApiError, match=r"^403 "):
        bootstrapper.patch(
            f"{CSRS}/filed-by-a-token", {"metadata": {"annotations": {"any": "thing"}}}
        )


def test_bootstrap_kubeconfig_works_with_kubectl(fleet: Fleet, tmp_path: Path) -> None:
    workload = fleet.first.workload
    config = tmp_path / "bootstrap-kubelet.conf"
    config.write_text(workload.bootstrap_kubeconfig(workload.bootstrap_token()))
    assert "system:bootstrap:" in workload.kubectl("auth", "whoami", config=config)


def test_signer_may_challenge_and_approve_on_a_workload_cluster(
    machines: Machines, fleet: Fleet
) -> None:
    """The Machine of the offer is unknown, so a running signer leaves the offer pending."""
    workload = fleet.first.workload
    offer = Script(machines.power_on()).offer
    signer = workload.client(SIGNER, SIGNER)
    annotations = {"attestation.cluster.x-k8s.io/challenge": "{}"}
    signer.patch(f"{CSRS}/{offer}", {"metadata": {"annotations": annotations}})
    approve(signer, offer)
    signer.get("/api/v1/namespaces/default/services/kubernetes")
    signer.delete(f"{CSRS}/{offer}")


def test_signer_may_not_approve_for_others_nor_read_secrets(fleet: Fleet) -> None:
    workload = fleet.second.workload
    name = "for-the-builtin-signer"
    workload.admin.create(CSRS, csr(name, signer=BUILTIN_SIGNER))
    signer = workload.client(SIGNER, SIGNER)
    with pytest.raises(ApiError, match=r"^403 "):
        approve(signer, name)
    bindings = {"resource": "clusterrolebindings", "group": "rbac.authorization.k8s.io"}
    assert not signer.may("get", "secrets")
    assert not signer.may("delete", **bindings)
    assert signer.may("delete", **bindings, name="kubeadm:node-autoapprove-bootstrap")


def test_signer_writes_secrets_and_leases_only_in_its_own_namespace(
    fleet: Fleet, tmp_path: Path
) -> None:
    config = tmp_path / "signer.conf"
    config.write_text(fleet.management.signer_kubeconfig())

    def may(*arguments: str) -> bool:
        kubectl = str(fleet.management.assets / "kubectl")
        command = [kubectl, f"--kubeconfig={config}", "auth", "can-i", "--quiet", *arguments]
        return subprocess.call(command) == 0

    assert may("create", "secrets", "--namespace=node-attestation-system")
    assert may("get", "secrets", "--namespace=team-a")
    assert not may("list", "secrets", "--namespace=team-a")
    assert may("list", "testmachines.infrastructure.cluster.x-k8s.io", "--all-namespaces")
    assert may("list", "kubeadmconfigs.bootstrap.cluster.x-k8s.io", "--all-namespaces")
    assert may("update", "attestednodes.attestation.cluster.x-k8s.io", "--all-namespaces")
    assert not may("create", "secrets", "--namespace=team-a")
    assert may("create", "leases.coordination.k8s.io", "--namespace=node-attestation-system")
    assert not may("list", "leases.coordination.k8s.io", "--namespace=team-a")
    assert not may("update", "machines.cluster.x-k8s.io", "--namespace=team-a")
