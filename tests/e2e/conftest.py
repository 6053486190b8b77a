"""One real node of a real cluster for all tests. Each test leaves it Ready.

A missing program fails the tests with its name; no test is skipped.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane import pins, provide
from tests.e2e.joined_node import JoinedNode
from tests.harness import capi
from tests.harness.containerd import Containerd
from tests.harness.fleet import Fleet
from tests.harness.kubelet import Kubelet
from tests.harness.netns import NetworkNamespace
from tests.harness.node import Node
from tests.harness.signer import Signer, serving_all
from tests.harness.tpm import SoftwareTpm, TrustDomain

NAME = "node-1"


@pytest.fixture(scope="session")
def assets() -> Path:
    """Return the directory with all programs of the Kubernetes version under test."""
    version = os.environ.get("KUBERNETES_VERSION") or pins.newest()
    return provide.kubernetes(version, provide.ALL)


@pytest.fixture(scope="session")
def enclosure() -> Iterator[NetworkNamespace]:
    """Create the machine of the kubelet, and remove it at the end."""
    with NetworkNamespace() as machine:
        yield machine


@pytest.fixture(scope="session")
def fleet(
    assets: Path, enclosure: NetworkNamespace, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    """Run the control planes under an address that machines reach, and Cluster API."""
    directory = tmp_path_factory.mktemp("fleet")
    with Fleet(directory, assets, host=enclosure.host_address) as running:
        capi.connect(running, running.first)
        running.first.workload.start_controllers()
        with running.management.cluster_api(running.first.namespace):
            yield running


@pytest.fixture(scope="session")
def signer(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Signer]:
    """Run one signer, with the default policy."""
    with serving_all(fleet, tmp_path_factory.mktemp("signer")) as running:
        yield running


@pytest.fixture
def hardware() -> Iterator[NetworkNamespace]:
    """Create a machine other than the one of the kubelet that all tests share."""
    with NetworkNamespace() as machine:
        yield machine


@pytest.fixture(scope="session")
def node(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Create the node's TPM and its bootstrap credential."""
    directory = tmp_path_factory.mktemp("node")
    vendor = TrustDomain(directory / "vendor")
    with SoftwareTpm(vendor, seed=NAME) as tpm:
        created = Node(fleet.first, NAME, tpm, directory / NAME)
        created.give_token(created.tenant.workload.bootstrap_token())
        yield created


@pytest.fixture(scope="session")
def joined(
    assets: Path, enclosure: NetworkNamespace, fleet: Fleet, signer: Signer, node: Node
) -> Iterator[JoinedNode]:
    """Create a Machine for the node, and start its kubelet."""
    addresses = [("Hostname", node.name), ("InternalIP", enclosure.address)]
    capi.order(fleet, node, addresses)
    with (
        Containerd(enclosure, node.directory / "containerd.log") as runtime,
        Kubelet(
            node, enclosure, program=assets / "kubelet", runtime_endpoint=runtime.endpoint
        ) as kubelet,
    ):
        yield JoinedNode(fleet, signer, node, kubelet)
