"""Follows docs/quick-start.md: each block of commands runs where the page says.

Two things that kubelets and Cluster API do happen between the blocks. The signer's pod runs as soon
as its Deployment exists. kubeadm joins the machine before the first block that runs `join`.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from builders import image
from tests.demo.narration import Narrator
from tests.harness.documentation import ROOT, Block, blocks_of
from tests.harness.objects import Machine
from tests.packaging.newcomer import clusters, machine
from tests.packaging.newcomer.clusters import CLUSTER, NAMESPACE, Clusters
from tests.packaging.newcomer.machine import NAME, PROVIDER_ID, NodeMachine
from tests.packaging.newcomer.workstation import Workstation
from tests.packaging.signer import helm
from tests.packaging.signer.pod import Pod

PAGE: Final = ROOT / "docs/quick-start.md"
TEST: Final = "run by: tests/release/rehearsal/newcomer.py::install"
ON_NODE: Final = "run on a node"
SETTINGS: Final = ". /etc/default/kubelet-authenticator-tpm\n"
_DEPLOYMENT: Final = f"/apis/apps/v1/namespaces/{helm.NAMESPACE}/deployments/{helm.RELEASE}"
_OURS: Final = frozenset({"run", ON_NODE, TEST})


Puller = Callable[[str], Path]
"""Pulls an image by its name, as a container runtime does. Returns an OCI archive."""


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A user with the files of a release, a management cluster and a machine."""

    story: Narrator
    directory: Path
    clusters: Clusters
    machine: NodeMachine
    workstation: Workstation
    stack: ExitStack
    pull: Puller

    @property
    def signer_log(self) -> str:
        """The log of the signer's pod."""
        return (self._pod_directory / "signer.log").read_text(encoding="utf-8")

    @property
    def _pod_directory(self) -> Path:
        return self.directory / "pod"

    def follow(self) -> None:
        """Run the blocks of the page in their order. Raise RuntimeError when a command fails."""
        for block in blocks():
            if "kubelet-authenticator-tpm join" in block.text:
                self._boot()
            self._run(block)
            if "install.yaml" in block.text:
                self._run_pod()

    def _run(self, block: Block) -> None:
        place = f"{block.page}:{block.line}"
        if block.text == SETTINGS:
            self.machine.add_settings(block.text)
            return
        on_node = block.marker == ON_NODE
        title = f"{place}, on {'the node' if on_node else 'the workstation'}"
        with self.story.timed(title):
            self.story.quote("".join(f"$ {line}\n" for line in block.text.splitlines()))
            output = self.machine.run(block.text) if on_node else self.workstation.run(block.text)
            self.story.quote(output)
        if on_node and "key.yaml" in block.text:
            self.workstation.write("key.yaml", self.machine.read("key.yaml"))

    def _run_pod(self) -> None:
        """Run a pod of the Deployment."""
        with self.story.timed("a kubelet of the management cluster starts a pod of the signer"):
            deployment = self.clusters.management.admin.get(_DEPLOYMENT)
            [container] = deployment["spec"]["template"]["spec"]["containers"]
            archive = self.pull(container["image"])
            root = self.directory / "image"
            image.unpack_root(archive, root)
            self._pod_directory.mkdir()
            pod = Pod(
                self.clusters.management, helm.NAMESPACE, helm.RELEASE,
                root=root, directory=self._pod_directory, network=self.clusters.pod_network,
            )  # fmt: skip
            entrypoint = image.read_config(archive)["config"]["Entrypoint"]
            self.stack.enter_context(pod.running(entrypoint))

    def _boot(self) -> None:
        with self.story.timed("the user data of Cluster API runs kubeadm join on the node"):
            self.machine.join(self.clusters.tenant.workload)


def blocks() -> list[Block]:
    """Return the blocks of the page that a newcomer runs."""
    return [block for block in blocks_of(PAGE) if block.marker in _OURS]


@contextmanager
def prepared(
    directory: Path, story: Narrator, *, release: Path, pull: Puller
) -> Iterator[Newcomer]:
    """Run what the page supposes: the clusters, and a machine with its Machine object.

    `release` has the files that the user has downloaded.
    """
    directory.mkdir(exist_ok=True)
    with ExitStack() as stack:
        with story.timed("before the page: a management and a workload cluster"):
            running = stack.enter_context(clusters.running(directory / "clusters"))
        assets = running.management.assets
        with story.timed("before the page: a machine whose image has kubeadm and the deb"):
            node = stack.enter_context(machine.booted(assets, directory / "node", release))
        addresses = [("Hostname", NAME), ("InternalIP", node.address)]
        described = Machine(NAME, provider_id=PROVIDER_ID, addresses=addresses)
        running.management.create_machine(NAMESPACE, CLUSTER, described)
        workstation = Workstation(directory / "workstation", release, running)
        yield Newcomer(story, directory, running, node, workstation, stack, pull)
