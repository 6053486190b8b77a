"""The real kubeadm joins a machine with the shipped drop-in, without a setting for the plugin.

A stand-in for systemd starts the kubelet (tests/harness/systemctl.py).
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509

from common.names import SERVING_SIGNER
from tests.controlplane import pins
from tests.e2e.joined_node import WAIT_SECONDS
from tests.e2e.kubeadm_nodes import is_ready
from tests.harness import kubeadm, objects
from tests.harness.containerd import Containerd
from tests.harness.controlplane import KubectlFailed
from tests.harness.fleet import Fleet
from tests.harness.kubeadm import Machine
from tests.harness.netns import NetworkNamespace
from tests.harness.node import Node
from tests.harness.process import wait_until
from tests.harness.tpm import SoftwareTpm, TrustDomain
from tests.integration import csrs

pytestmark = pytest.mark.usefixtures("signer")

NAME = "node-of-kubeadm"


@pytest.fixture
def node(fleet: Fleet, tmp_path: Path) -> Iterator[Node]:
    """Create the node's TPM, in the cluster whose authorities no other test changes."""
    with SoftwareTpm(TrustDomain(tmp_path / "vendor"), seed=NAME) as tpm:
        yield Node(fleet.second, NAME, tpm, tmp_path / NAME)


def is_healthy(node: Node) -> bool:
    """Return whether the API server gets "ok" from the kubelet's health check."""
    path = f"/api/v1/nodes/{node.name}/proxy/healthz"
    try:
        return node.tenant.workload.kubectl("get", "--raw", path) == "ok"
    except KubectlFailed:
        return False


def test_kubeadm_joins_a_machine(fleet: Fleet, hardware: NetworkNamespace, node: Node) -> None:
    workload = node.tenant.workload
    workload.start_controllers()
    version = os.environ.get("KUBERNETES_VERSION") or pins.newest()
    kubeadm.prepare(workload, version, node.directory)
    wait_until(
        lambda: "node-autoapprove" not in workload.kubectl("get", "clusterrolebindings"),
        what="the signer has removed the bindings that approve unattested certificates",
    )
    create_machine(fleet, hardware, node)
    with Containerd(hardware, node.directory / "containerd.log") as runtime:
        machine = Machine(node, hardware, runtime.endpoint)
        machine.kubeadm_join(workload.bootstrap_token())
        try:
            has_joined(machine, node)
            serves_what_is_attested(machine, node)
            does_not_join_again(machine, node)
            joins_as_another_node(fleet, hardware, machine, node)
        finally:
            machine.run("systemctl", "stop", "kubelet")


def create_machine(fleet: Fleet, hardware: NetworkNamespace, node: Node) -> None:
    """Create the Machine of a node, with its registered endorsement key."""
    addresses = [("Hostname", node.name), ("InternalIP", hardware.address)]
    known = objects.Machine(node.name, addresses=addresses, annotations=node.registration())
    fleet.add_machine(node.tenant, known)


def has_joined(machine: Machine, node: Node) -> None:
    """Require that a machine has attested certificates and no others."""
    wait_until(lambda: is_ready(node), what=f"{node.name} is Ready", seconds=WAIT_SECONDS)
    [user] = machine.read("/etc/kubernetes/kubelet.conf")["users"]
    assert user["user"].keys() == {"exec"}
    assert not machine.has("/etc/kubernetes/bootstrap-kubelet.conf")
    assert machine.read("/var/lib/kubelet/config.yaml")["rotateCertificates"] is True
    attested = csrs.of_node(node)
    assert len(attested) == 2, "the calls of kubelet and kubeadm are answered from the cache"
    assert all(csr["spec"]["username"].startswith("system:bootstrap:") for csr in attested)
    others = {
        csr["spec"]["signerName"]
        for csr in node.tenant.workload.admin.list(csrs.CSRS)
        if csr["spec"]["username"] == f"system:node:{node.name}"
    }
    assert others == {SERVING_SIGNER}


def serves_what_is_attested(machine: Machine, node: Node) -> None:
    """Require that the API server verifies the kubelet, and that the kubelet reloads its file."""
    # A node may be Ready before its kubelet listens.
    wait_until(
        lambda: is_healthy(node),
        what="the API server connects to the kubelet",
        seconds=WAIT_SECONDS,
    )
    before = machine.presented()
    assert before in machine.served.read_text(encoding="ascii")
    serving = ("kubelet-authenticator-tpm", "serving", f"--dns={node.name}")
    machine.run(*serving, "--kubeconfig=/etc/kubernetes/kubelet.conf")
    assert before not in machine.served.read_text(encoding="ascii")
    wait_until(
        lambda: machine.presented() != before,
        what="the kubelet has reloaded",
        seconds=WAIT_SECONDS,
    )
    assert machine.presented() in machine.served.read_text(encoding="ascii")


def does_not_join_again(machine: Machine, node: Node) -> None:
    """Restart the kubelet's unit: `join` does nothing."""
    machine.run("systemctl", "restart", "kubelet")
    already = b"kubelet.conf runs kubelet-authenticator-tpm already"
    wait_until(
        lambda: already in machine.log.read_bytes(),
        what="join has nothing to do",
        seconds=WAIT_SECONDS,
    )
    assert len(csrs.of_node(node)) == 2


def joins_as_another_node(
    fleet: Fleet, hardware: NetworkNamespace, machine: Machine, node: Node
) -> None:
    """Reset the machine, and join as another Machine: the plugin's state directory is left over."""
    machine.kubeadm_reset()
    fleet.management.delete_machine(node.tenant.namespace, node.name)
    renamed = Node(node.tenant, f"{node.name}-again", node.tpm, node.directory)
    create_machine(fleet, hardware, renamed)
    machine.become(renamed)
    left_over = renamed.state / "credential.pem"
    assert certified_name(left_over) == f"system:node:{node.name}", "kubeadm reset has left it"
    mismatch = f"this machine is node {renamed.name}, .* and the certificate is of node {node.name}"
    with pytest.raises(RuntimeError, match=mismatch):
        machine.doctor()
    machine.kubeadm_join(node.tenant.workload.bootstrap_token())
    assert certified_name(left_over) == f"system:node:{renamed.name}"
    has_joined(machine, renamed)
    assert certified_name(machine.served) == f"system:node:{renamed.name}"
    wait_until(
        lambda: is_healthy(renamed),
        what="the API server connects to the kubelet",
        seconds=WAIT_SECONDS,
    )


def certified_name(path: Path) -> str:
    """Return the common name of a certificate."""
    subject = x509.load_pem_x509_certificate(path.read_bytes()).subject
    [name] = subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return str(name.value)
