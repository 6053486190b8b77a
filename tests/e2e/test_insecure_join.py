"""The real kubeadm joins a machine through the insecure signer, and its kubelet runs."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane import pins
from tests.e2e.joined_node import WAIT_SECONDS
from tests.e2e.kubeadm_nodes import is_ready
from tests.harness import kubeadm, objects, systemctl
from tests.harness.containerd import Containerd
from tests.harness.fleet import Fleet
from tests.harness.insecure_signer import InsecureSigner, opted_in
from tests.harness.kubeadm import NODE_PACKAGING, Machine
from tests.harness.netns import NetworkNamespace
from tests.harness.node import Node
from tests.harness.process import wait_until
from tests.harness.tpm import SoftwareTpm, TrustDomain
from tests.integration.kubeconfigs import administrators_kubeconfig

NAME = "node-without-attestation"
INSECURE = NODE_PACKAGING / "insecure"
PROGRAM = "/usr/local/bin/insecure-kubelet-join"


@pytest.fixture
def node(fleet: Fleet, tmp_path: Path) -> Iterator[Node]:
    """Create a node; the harness gives each one a TPM, which nothing here uses."""
    with SoftwareTpm(TrustDomain(tmp_path / "vendor"), seed=NAME) as tpm:
        yield Node(fleet.second, NAME, tpm, tmp_path / NAME)


def install(hardware: NetworkNamespace, node: Node, runtime: str) -> Machine:
    """Install the script and its drop-in in place of the node package."""
    machine = Machine(node, hardware, runtime, attested_serving=False)
    machine.remove_plugin()
    root = hardware.directory / "root"
    for target, place in (
        (INSECURE / "insecure-kubelet-join", root / PROGRAM.removeprefix("/")),
        (node.tenant.workload.assets / "kubectl", root / "usr/bin/kubectl"),
    ):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)
    drop_in = (INSECURE / "zz-20-insecure-kubelet-join.conf").read_text(encoding="utf-8")
    # The machine of the tests has the host name of this one. The stand-in for systemd does not map
    # the arguments of timeout.
    started = drop_in.replace(PROGRAM, f"{root}{PROGRAM} {NAME}")
    assert started != drop_in
    directory = root / systemctl.UNITS / "kubelet.service.d"
    (directory / "zz-20-insecure-kubelet-join.conf").write_text(started, encoding="utf-8")
    return machine


def test_kubeadm_joins_a_machine_without_attestation(
    fleet: Fleet, hardware: NetworkNamespace, node: Node, tmp_path: Path
) -> None:
    tenant, workload = node.tenant, node.tenant.workload
    workload.start_controllers()
    version = os.environ.get("KUBERNETES_VERSION") or pins.newest()
    kubeadm.prepare(workload, version, node.directory)
    addresses = [("InternalIP", hardware.address)]
    fleet.add_machine(tenant, objects.Machine(NAME, addresses=addresses))
    management = fleet.management.admin_config.read_text(encoding="utf-8")
    with (
        opted_in(fleet, tenant),
        administrators_kubeconfig(fleet),
        InsecureSigner(tmp_path / "insecure", management, (tenant,)),
        Containerd(hardware, node.directory / "containerd.log") as runtime,
    ):
        machine = install(hardware, node, runtime.endpoint)
        machine.kubeadm_join(workload.bootstrap_token())
        try:
            wait_until(lambda: is_ready(node), what=f"{NAME} is Ready", seconds=WAIT_SECONDS)
            [user] = machine.read("/etc/kubernetes/kubelet.conf")["users"]
            assert user["user"].keys() == {"client-certificate-data", "client-key-data"}
            assert not machine.has("/etc/kubernetes/bootstrap-kubelet.conf")
        finally:
            machine.run("systemctl", "stop", "kubelet")
