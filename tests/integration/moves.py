"""Two management clusters, a workload cluster, and the documented commands that move Clusters."""

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.controlplane import provide
from tests.harness import objects
from tests.harness.client import Object
from tests.harness.documentation import blocks, run_commands
from tests.harness.management import ManagementCluster
from tests.harness.node import Node
from tests.harness.workload import WorkloadCluster

CORE = f"/apis/{objects.CORE}/v1beta2"
MARKER = "run by: tests/integration/test_move.py::test_node_renews_after_a_move_with_the_same_claim"
INFRASTRUCTURE = f"/apis/{objects.INFRASTRUCTURE}/v1"


@dataclass(frozen=True, slots=True)
class Site:
    """One management cluster, for a signer."""

    management: ManagementCluster


class TwoSites:
    """The API servers. A context manager."""

    def __init__(self, directory: Path, assets: Path) -> None:
        """Prepare everything."""
        first, second = (ManagementCluster(n, directory / n, assets) for n in ("first", "second"))
        self.first, self.second = Site(first), Site(second)
        self.workload = WorkloadCluster("workload", directory / "workload", assets)
        self._home = directory
        self._programs = directory / "bin"
        self._programs.mkdir()
        (self._programs / "kubectl").symlink_to(assets / "kubectl")
        (self._programs / "clusterctl").symlink_to(provide.tool("clusterctl"))
        self._stack = ExitStack()

    def move(self, namespace: str, source: Site, target: Site) -> None:
        """Move a namespace with the commands of docs/operate/moving.md."""
        [block] = [block for block in blocks() if block.marker == MARKER]
        for name, site in (("source", source), ("target", target)):
            config = site.management.admin_config.read_bytes()
            (self._home / f"{name}.conf").write_bytes(config)
        environment = {
            "PATH": f"{self._programs}:{os.defpath}",
            "HOME": str(self._home),
            "NAMESPACE": namespace,
            "CLUSTERCTL_DISABLE_VERSIONCHECK": "true",
        }
        run_commands(block.script, self._home, environment)

    def __enter__(self) -> Self:
        clusters = (self.first.management, self.second.management, self.workload)
        try:
            for cluster in clusters:
                self._stack.callback(cluster.stop)
            with ThreadPoolExecutor() as pool:
                list(pool.map(lambda cluster: cluster.start(), clusters))
            for site in (self.first, self.second):
                # As `clusterctl init` does: it moves the kinds with this label.
                label = "clusterctl.cluster.x-k8s.io="
                site.management.kubectl("label", "crd", "--all", "--overwrite", label)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def adopt(site: Site, node: Node) -> None:
    """Write what Cluster API's controllers write about a joined node: owners, and `nodeRef`."""
    namespace, cluster = f"namespaces/{node.tenant.namespace}", node.tenant.name
    owner = _set_owner(site, f"{CORE}/{namespace}/clusters/{cluster}")
    _set_owner(site, f"{INFRASTRUCTURE}/{namespace}/testclusters/{cluster}", owner)
    machine = _set_owner(site, f"{CORE}/{namespace}/machines/{node.name}", owner)
    _set_owner(site, f"{INFRASTRUCTURE}/{namespace}/testmachines/{node.name}", machine)
    _report(site, f"{CORE}/{namespace}/machines/{node.name}", _node_ref(node))


def report_status(site: Site, node: Node) -> None:
    """Write the status again, as Cluster API's controllers do: `clusterctl move` copies none."""
    namespace, name = node.tenant.namespace, node.tenant.name
    machine = objects.Machine(node.name)
    for path, body in (
        (
            f"{CORE}/namespaces/{namespace}/clusters/{name}",
            objects.cluster(name, endpoint=node.tenant.workload.url, annotations={}),
        ),
        (
            f"{CORE}/namespaces/{namespace}/machines/{node.name}",
            objects.machine(name, machine, provider_id=node.provider_id),
        ),
    ):
        _report(site, path, body["status"])
    _report(site, f"{CORE}/namespaces/{namespace}/machines/{node.name}", _node_ref(node))


def machine_uid(site: Site, node: Node) -> str:
    """Return the UID of the Machine of a node."""
    path = f"{CORE}/namespaces/{node.tenant.namespace}/machines/{node.name}"
    uid: str = site.management.admin.get(path)["metadata"]["uid"]
    return uid


def _node_ref(node: Node) -> Mapping[str, Any]:
    return {"nodeRef": {"name": node.name}}


def _report(site: Site, path: str, status: Mapping[str, Any]) -> None:
    site.management.admin.patch(f"{path}/status", {"status": status})


def _set_owner(site: Site, path: str, *owners: Object) -> Object:
    """Give an object its owner, and return a reference to the object."""
    changed = site.management.admin.patch(path, {"metadata": {"ownerReferences": owners}})
    return {
        "apiVersion": changed["apiVersion"],
        "kind": changed["kind"],
        "name": changed["metadata"]["name"],
        "uid": changed["metadata"]["uid"],
    }
