"""A kubeadm node moves to the plugin and back with the commands of docs/migration.md.

A stand-in for systemd runs the kubelet (tests/harness/systemctl.py).
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509

from tests.controlplane import pins
from tests.e2e.joined_node import WAIT_SECONDS, credential_id
from tests.harness import kubeadm, objects
from tests.harness.containerd import Containerd
from tests.harness.documentation import blocks, run_commands
from tests.harness.fleet import Fleet
from tests.harness.kubeadm import KUBERNETES, Machine
from tests.harness.netns import NetworkNamespace
from tests.harness.node import Node
from tests.harness.process import wait_until
from tests.harness.signer import Signer, of_cluster, opt_in
from tests.harness.tpm import SoftwareTpm, TrustDomain

PAGE = "docs/migration.md"
NAME = "node-of-migration"
UNATTESTED = "/var/lib/kubelet/pki/kubelet-client-current.pem"
BINDINGS = {
    "kubeadm:node-autoapprove-bootstrap",
    "kubeadm:node-autoapprove-certificate-rotation",
}


@pytest.fixture
def node(fleet: Fleet, tmp_path: Path) -> Iterator[Node]:
    """Create the node's TPM, in the cluster whose authorities no other test changes."""
    with SoftwareTpm(TrustDomain(tmp_path / "vendor"), seed=NAME) as tpm:
        yield Node(fleet.second, NAME, tpm, tmp_path / NAME)


class Workstation:
    """What the page supposes: kubectl, and kubeconfigs of both clusters."""

    def __init__(self, fleet: Fleet, node: Node, directory: Path) -> None:
        workload = node.tenant.workload
        (directory / "workload.conf").write_bytes(workload.admin_config.read_bytes())
        self._directory = directory
        self._environment: Mapping[str, str] = {
            "PATH": f"{fleet.management.assets}:{os.defpath}",
            "KUBECONFIG": str(fleet.management.admin_config),
            "NAMESPACE": node.tenant.namespace,
            "CLUSTER": node.tenant.name,
        }

    def run(self, command: str) -> str:
        """Run the block of the page with this command, and return its output."""
        return run_commands(script_with(command), self._directory, self._environment)


def script_with(command: str) -> str:
    """Return the commands of the page's block that has this one."""
    [block] = [each for each in blocks() if each.page == PAGE and command in each.text]
    return block.script


@contextmanager
def unattested_cluster(fleet: Fleet, signer: Signer, node: Node) -> Iterator[Workstation]:
    """Let kubeadm's bindings stay, and opt the Cluster out."""
    alarm = of_cluster(node.tenant, autoApproveBindings="Alarm")
    workstation = Workstation(fleet, node, node.directory)
    with signer.with_policies({}, alarm):
        workstation.run("client-signer-")
        node.tenant.workload.start_controllers()
        version = os.environ.get("KUBERNETES_VERSION") or pins.newest()
        kubeadm.prepare(node.tenant.workload, version, node.directory)
        try:
            yield workstation
        finally:
            opt_in(fleet, node.tenant)


def wait_until_used(machine: Machine, node: Node, certificate: x509.Certificate) -> None:
    """Wait until the kubelet has used a certificate for its lease and the Node is Ready."""
    workload, expected = node.tenant.workload, credential_id(certificate)

    def is_used() -> bool:
        complete, _, _ = workload.audit_log.read_text(encoding="utf-8").rpartition("\n")
        events = [json.loads(line) for line in complete.splitlines()]
        return any(
            expected in str(event["user"].get("extra", {}))
            for event in events
            if event["sourceIPs"] == [machine.address]
        )

    what = f"the kubelet uses {expected}"
    wait_until(is_used, what=what, seconds=WAIT_SECONDS)
    workload.kubectl("wait", "--for=condition=Ready", f"node/{node.name}", "--timeout=180s")


def unattested(machine: Machine) -> x509.Certificate:
    """Require a kubeconfig with a certificate that the kubelet rotates, and return that."""
    [user] = machine.read(str(KUBERNETES / "kubelet.conf"))["users"]
    assert user["user"] == {"client-certificate": UNATTESTED, "client-key": UNATTESTED}
    return x509.load_pem_x509_certificate(machine.run("cat", UNATTESTED).encode())


def test_node_of_kubeadm_moves_to_the_plugin_and_back(
    fleet: Fleet, signer: Signer, hardware: NetworkNamespace, node: Node
) -> None:
    workload = node.tenant.workload
    addresses = [("Hostname", NAME), ("InternalIP", hardware.address)]
    known = objects.Machine(NAME, addresses=addresses, annotations=node.registration())
    fleet.add_machine(node.tenant, known)
    with (
        unattested_cluster(fleet, signer, node) as workstation,
        Containerd(hardware, node.directory / "containerd.log") as runtime,
    ):
        machine = Machine(node, hardware, runtime.endpoint, attested_serving=False)
        machine.remove_plugin()
        machine.kubeadm_join(workload.bootstrap_token())
        try:
            wait_until_used(machine, node, unattested(machine))
            uid = workload.admin.get(f"/api/v1/nodes/{NAME}")["metadata"]["uid"]

            workstation.run("attestation.cluster.x-k8s.io/client-signer=")
            assert NAME in workstation.run("comm -13").split()
            machine.install_plugin()
            machine.run_script(script_with("join --replace"))
            [user] = machine.read(str(KUBERNETES / "kubelet.conf"))["users"]
            assert user["user"].keys() == {"exec"}
            attested = (node.state / "credential.pem").read_bytes()
            wait_until_used(machine, node, x509.load_pem_x509_certificate(attested))
            assert NAME not in workstation.run("comm -13").split()
            assert set(workload.kubectl("get", "clusterrolebindings").split()) >= BINDINGS

            # With a certificate that is still valid, the kubelet would not need the token.
            machine.run("sh", "-c", "rm /var/lib/kubelet/pki/kubelet-client-*")
            token = workload.bootstrap_token()
            bootstrap = KUBERNETES / "bootstrap-kubelet.conf"
            machine.write(bootstrap, workload.bootstrap_kubeconfig(token))
            machine.run_script(script_with("kubelet.conf.attested"))
            wait_until(
                lambda: machine.has(UNATTESTED) and machine.has(str(KUBERNETES / "kubelet.conf")),
                what="kube-controller-manager has issued a certificate",
                seconds=WAIT_SECONDS,
            )
            wait_until_used(machine, node, unattested(machine))
            assert workload.admin.get(f"/api/v1/nodes/{NAME}")["metadata"]["uid"] == uid
            workstation.run("client-signer-")
        finally:
            machine.run("systemctl", "stop", "kubelet")
