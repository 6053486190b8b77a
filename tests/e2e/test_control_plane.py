"""kubeadm's control plane nodes get attested certificates, and survive a cold start.

With kubeadm's local mode a joining control plane node has a bootstrap kubeconfig for its own API
server, which is a static pod that only a kubelet with a kubeconfig starts.
"""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from common.names import CLIENT_SIGNER
from tests.controlplane import pins
from tests.e2e.joined_node import WAIT_SECONDS
from tests.harness import images, objects
from tests.harness.client import ApiError
from tests.harness.containerd import Containerd, remove_empty_cgroups
from tests.harness.fleet import Fleet, WorkloadTenant
from tests.harness.kubeadm import API_PORT, KUBERNETES, Machine
from tests.harness.netns import NetworkNamespace
from tests.harness.node import Node
from tests.harness.process import wait_until
from tests.harness.signer import opt_in
from tests.harness.tpm import SoftwareTpm, TrustDomain
from tests.harness.wire import Bridge
from tests.harness.workload import WorkloadCluster
from tests.integration import csrs

pytestmark = pytest.mark.usefixtures("signer")

NAMES = ("control-plane-1", "control-plane-2")


@dataclass(frozen=True, slots=True)
class Host:
    """A machine that becomes a control plane node."""

    node: Node
    machine: Machine
    runtime: Containerd


@pytest.fixture(scope="module")
def version() -> str:
    """Return the Kubernetes version under test."""
    return os.environ.get("KUBERNETES_VERSION") or pins.newest()


@pytest.fixture
def hosts(assets: Path, version: str, tmp_path: Path) -> Iterator[tuple[Host, Host]]:
    """Start two machines on one bridge, with TPMs and container runtimes."""
    names = images.names(assets / "kubeadm", version)
    archive = tmp_path / "images.tar"
    images.write_archive(assets, names, archive)
    vendor = TrustDomain(tmp_path / "vendor")
    with ExitStack() as stack:
        stack.callback(remove_empty_cgroups)
        bridge = stack.enter_context(Bridge())
        first, second = (stack.enter_context(NetworkNamespace(bridge)) for _ in NAMES)
        workload = WorkloadCluster(
            "team-c", tmp_path / "team-c", assets, host=first.address, port=API_PORT
        )
        tenant = WorkloadTenant(namespace="team-c", workload=workload)

        def start(name: str, enclosure: NetworkNamespace) -> Host:
            tpm = stack.enter_context(SoftwareTpm(vendor, seed=name))
            node = Node(tenant, name, tpm, tmp_path / name)
            log = node.directory / "containerd.log"
            runtime = stack.enter_context(Containerd(enclosure, log, sandbox_image=names["pause"]))
            runtime.import_images(archive)
            machine = Machine(node, enclosure, runtime.endpoint, attested_serving=False)
            return Host(node, machine, runtime)

        yield start(NAMES[0], first), start(NAMES[1], second)


def is_ready(node: Node) -> bool:
    """Return whether the API server has the Node as Ready."""
    try:
        node_object = node.tenant.workload.admin.get(f"/api/v1/nodes/{node.name}")
    except (ApiError, OSError):
        return False
    conditions = node_object["status"].get("conditions", [])
    return any((c["type"], c["status"]) == ("Ready", "True") for c in conditions)


def wait_until_ready(node: Node) -> None:
    """Wait until the Node is Ready."""
    wait_until(lambda: is_ready(node), what=f"{node.name} is Ready", seconds=WAIT_SECONDS)


def test_control_plane_nodes_have_attested_certificates_and_survive_a_cold_start(
    fleet: Fleet, hosts: tuple[Host, Host], version: str
) -> None:
    first, second = hosts
    certificate_key = secrets.token_hex(32)
    first.machine.kubeadm_init(version, certificate_key)
    put_under_attestation(fleet, hosts)
    replaces_the_certificate_of_kubeadm_init(first)
    workload = first.node.tenant.workload
    second.machine.kubeadm_join(workload.bootstrap_token(), certificate_key=certificate_key)
    for host in hosts:
        wait_until_ready(host.node)
        assert csrs.answers(host.node), "an attested certificate"
    assert not second.machine.has(str(KUBERNETES / "bootstrap-kubelet.conf"))
    survives_a_cold_start_without_a_certificate(first)
    assert {csr["spec"]["signerName"] for csr in workload.admin.list(csrs.CSRS)} == {CLIENT_SIGNER}


def put_under_attestation(fleet: Fleet, hosts: tuple[Host, Host]) -> None:
    """Register the cluster and both machines, as Cluster API does after `kubeadm init`."""
    tenant = hosts[0].node.tenant
    tenant.workload.grant_signer()
    fleet.register(tenant)
    for host in hosts:
        addresses = [("Hostname", host.node.name), ("InternalIP", host.machine.address)]
        registration = host.node.registration()
        fleet.add_machine(
            tenant,
            objects.Machine(host.node.name, addresses=addresses, annotations=registration),
        )
    opt_in(fleet, tenant)
    wait_until(
        lambda: "node-autoapprove" not in tenant.workload.kubectl("get", "clusterrolebindings"),
        what="the signer has removed what approves unattested certificates",
        seconds=WAIT_SECONDS,
    )


def replaces_the_certificate_of_kubeadm_init(host: Host) -> None:
    """Run the documented command on the first node."""
    host.machine.join("--replace")
    host.machine.run("systemctl", "restart", "kubelet")
    [user] = host.machine.read(str(KUBERNETES / "kubelet.conf"))["users"]
    assert user["user"].keys() == {"exec"}


def survives_a_cold_start_without_a_certificate(host: Host) -> None:
    """Kill every container and remove the cached certificate; then bring a new token."""
    workload, filed = host.node.tenant.workload, len(csrs.answers(host.node))
    host.machine.run("systemctl", "stop", "kubelet")
    host.runtime.kill_containers()
    shutil.rmtree(host.node.state)
    wait_until(lambda: not workload.admin.ready(), what="the API server is down")
    host.machine.run("systemctl", "start", "kubelet")
    wait_until(workload.admin.ready, what="the API server is back", seconds=WAIT_SECONDS)
    assert len(csrs.answers(host.node)) == filed
    text = workload.bootstrap_kubeconfig(workload.bootstrap_token())
    host.machine.write(KUBERNETES / "bootstrap-kubelet.conf", text)
    wait_until(
        lambda: len(csrs.answers(host.node)) > filed and is_ready(host.node),
        what="the node has joined again",
        seconds=WAIT_SECONDS,
    )
