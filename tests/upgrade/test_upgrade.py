"""Signer, nodes, CRDs and permissions of this version beside those of the previous release."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest

from tests.harness.client import Object
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.node import Call, Node
from tests.harness.process import wait_until
from tests.harness.programs import PLUGIN, SIGNER
from tests.harness.signer import Signer
from tests.harness.workload import PACKAGING
from tests.integration import csrs
from tests.release.previous import Release

NODES = 6
FEW = 2
COLLECTIONS = {
    "endorsementkeys": "/apis/attestation.cluster.x-k8s.io/v1alpha1/endorsementkeys",
    "attestednodes": "/apis/attestation.cluster.x-k8s.io/v1alpha1/attestednodes",
    "kubeletattestationpolicies":
        "/apis/attestation.cluster.x-k8s.io/v1alpha1/kubeletattestationpolicies",
}  # fmt: skip


def use_manifests(fleet: Fleet, packaging: Path) -> None:
    """Apply CRDs and permissions over those that the clusters have."""
    fleet.management.packaging = packaging
    fleet.management.install_attestation()
    for tenant in fleet.tenants:
        tenant.workload.packaging = packaging
        tenant.workload.grant_signer()


def signer(fleet: Fleet, directory: Path, program: Path) -> Signer:
    """Return a signer that reads its policies from objects, and creates the first one."""
    made = Signer(fleet, directory).create_default_policy()
    made.program = program
    return made


def joins_and_renews(node: Node) -> None:
    """Require that a node gets a certificate, and another one."""
    first = node.call().certificate
    renewal = node.call("renew")
    assert renewal.status == 0, renewal.complaint
    assert node.call().certificate != first


@pytest.mark.parametrize("newer", ["node", "signer"])
def test_one_version_of_skew_joins_and_renews(
    fleet: Fleet, machines: Machines, release: Release, tmp_path: Path, newer: str
) -> None:
    """The newest node with the previous signer, and the previous node with the newest signer.

    Both have the newest CRDs and permissions, as during an upgrade.
    """
    use_manifests(fleet, PACKAGING)
    program = SIGNER if newer == "signer" else release.signer
    node = machines.registered()
    node.program = PLUGIN if newer == "node" else release.plugin
    with signer(fleet, tmp_path / "signer", program):
        joins_and_renews(node)


def test_objects_of_the_previous_release_are_valid_and_readable(
    fleet: Fleet, machines: Machines, release: Release, tmp_path: Path
) -> None:
    node = machines.registered()
    node.program = release.plugin
    with signer(fleet, tmp_path / "old", release.signer):
        joins_and_renews(node)
    admin = fleet.management.admin
    before = {name: admin.list(path) for name, path in COLLECTIONS.items()}
    assert all(before.values()), before
    use_manifests(fleet, PACKAGING)
    for name, path in COLLECTIONS.items():
        for item in before[name]:
            assert written_again(fleet, path, item)["spec"] == item["spec"]
    with signer(fleet, tmp_path / "new", SIGNER) as new:
        joins_and_renews(node)
        assert not [line for line in new.lines if line.get("alarm")]


def written_again(fleet: Fleet, path: str, item: Object) -> Object:
    """Write an object with a change that the API server validates as a whole."""
    metadata = item["metadata"]
    if "namespace" in metadata:
        kind = path.rpartition("/")[2]
        path = path.removesuffix(kind) + f"namespaces/{metadata['namespace']}/{kind}"
    labels = {"metadata": {"labels": {"written-again": "true"}}}
    return fleet.management.admin.patch(f"{path}/{metadata['name']}", labels)


def test_no_renewal_is_refused_during_upgrade_and_return(
    fleet: Fleet, machines: Machines, release: Release, tmp_path: Path
) -> None:
    """Under load: the nodes renew without a pause, while every part changes its version."""
    nodes = [machines.registered() for _ in range(NODES)]
    for node in nodes:
        node.program = release.plugin
    old = signer(fleet, tmp_path / "old", release.signer)
    new = signer(fleet, tmp_path / "new", SIGNER)
    with old:
        for node in nodes:
            assert node.call().certificate
        with renewing(nodes) as renewals:
            use_manifests(fleet, PACKAGING)
            with new:
                new.wait_until_ready()
                more(renewals)  # two replicas of two versions
                old.stop()
                more(renewals)
                switch(nodes, PLUGIN)
                more(renewals)
                switch(nodes, release.plugin)
                more(renewals)
                old.start()
                old.wait_until_ready()
                more(renewals)
            use_manifests(fleet, release.packaging)
            more(renewals)
    assert [call.complaint for call in renewals if call.status] == []
    denied = [
        csr["metadata"]["name"]
        for csr in fleet.first.workload.admin.list(csrs.CSRS)
        for condition in csr.get("status", {}).get("conditions", ())
        if condition["type"] == "Denied"
    ]
    assert denied == []


def switch(nodes: list[Node], program: Path) -> None:
    """Replace the program of every node. A run that has begun ends with the program it has."""
    for node in nodes:
        node.program = program


@contextmanager
def renewing(nodes: list[Node]) -> Iterator[list[Call]]:
    """Let each node renew again and again until the end. Yield what their runs returned so far."""
    ended, calls = Event(), list[Call]()

    def renew(node: Node) -> None:
        while not ended.is_set():
            calls.append(node.call("renew"))

    with ThreadPoolExecutor(len(nodes)) as pool:
        runs = [pool.submit(renew, node) for node in nodes]
        try:
            yield calls
        finally:
            ended.set()
    for run in runs:
        run.result()


def more(calls: list[Call]) -> None:
    """Wait until every node has renewed more than once on average."""
    count = len(calls) + FEW * NODES
    wait_until(lambda: len(calls) >= count, what="the nodes renew", seconds=120)
