"""Installs the package on nodes that join, upgrades it and goes back while their kubelets run."""

import os
from dataclasses import dataclass
from typing import Final

from builders.systems import overlay
from tests.controlplane import pins, provide
from tests.harness.fleet import Fleet
from tests.harness.netns import NetworkNamespace
from tests.harness.signer import serving_all
from tests.harness.wire import output
from tests.packaging.node import joined_node, packages
from tests.packaging.node.joined_node import JoinedNode
from tests.release.rehearsal.packages import systems
from tests.release.rehearsal.packages.repositories import NAME, SUBJECT
from tests.release.rehearsal.packages.systems import COMMANDS, System, documented
from tests.release.rehearsal.stage import NEW, OLD, SITE, Stage
from tests.release.rehearsal.story import Step
from tests.systemd import units

# All but the network: the repositories are on loopback.
_SPACES: Final = ("--mount", "--pid", "--uts", "--ipc", "--cgroup", "--root", "--wd")
_ENVIRONMENT: Final = ("PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive")


@dataclass(frozen=True, slots=True)
class _Node:
    system: System
    joined: JoinedNode

    def running(self) -> tuple[str, str]:
        """Return the credential, and the process of the kubelet."""
        machine = self.joined.machine
        return machine.run("cat", joined_node.CREDENTIAL), machine.show("kubelet", "MainPID")

    def run(self, script: str, version: str) -> None:
        """Run commands in the root of the machine, and on the network of this machine."""
        enter = ("nsenter", "--target", str(self.joined.machine.first), *_SPACES)
        setting = f"VERSION={version}"
        output(*enter, "env", "-i", *_ENVIRONMENT, setting, "bash", "-euc", script)

    def shows(self, version: str) -> str:
        """Require that the installed program has a version."""
        shown = self.joined.machine.run(packages.FULL_PROGRAM, "--version").split()[-1]
        assert shown == version, f"{self.system} has {shown}"
        return f"{self.system}: {shown}"


def install(stage: Stage) -> str:
    """Install the older version in clean systems, and let a machine of each join a cluster."""
    return "\n".join(f"{node.shows(OLD)}, and the node has joined" for node in stage.once(_nodes))


def install_for_arm64(stage: Stage) -> str:
    """Install the older version with the same commands in an emulated system, and start it."""
    system = systems.for_arm64(stage)
    directory = stage.new_directory("arm64")
    layers = system.install(f"{SITE}/{NAME}", directory)
    with overlay(directory / "started", directory / "upper", layers) as root:
        machine, shown = (
            output("chroot", root, *command).split()[-1]
            for command in (("uname", "-m"), (packages.FULL_PROGRAM, "--version"))
        )
    assert (machine, shown) == ("aarch64", OLD)
    return f"{system}: {shown} for {machine} starts"


def upgrade(stage: Stage) -> str:
    """Upgrade every node while its kubelet calls the plugin."""
    return "\n".join(_change(node, "upgrade", NEW) for node in stage.once(_nodes))


def go_back(stage: Stage) -> str:
    """Install the older version in place of the newer one, while the kubelets call the plugin."""
    return "\n".join(_change(node, "go_back", OLD) for node in stage.once(_nodes))


def _nodes(stage: Stage) -> list[_Node]:
    version = os.environ.get("KUBERNETES_VERSION") or pins.newest()
    kubernetes = provide.kubernetes(version, ("kube-apiserver", "etcd", "kubectl"))
    directory = stage.new_directory("nodes")
    anchor = stage.stack.enter_context(NetworkNamespace())
    fleet = Fleet(directory / "fleet", kubernetes, host=anchor.host_address)
    stage.stack.enter_context(fleet)
    stage.stack.enter_context(serving_all(fleet, directory / "signer"))
    nodes = []
    for system in stage.once(systems.prepared):
        files = directory / str(system)
        layers = system.install(f"{SITE}/{NAME}", files)
        prepared = joined_node.prepared(layers, fleet, str(system), files)
        node = _Node(system, stage.stack.enter_context(prepared))
        node.joined.start_kubelet()
        nodes.append(node)
    return nodes


def _change(node: _Node, function: str, version: str) -> str:
    """Change the installed version. No call of the kubelet may fail, and the node renews then."""
    before = node.running()
    [text] = documented(function)
    wanted = COMMANDS[node.system.tool]
    commands = [line for line in text.splitlines() if line.startswith(wanted)]
    with node.joined.calling() as results:
        node.run("\n".join(commands), version)
        count = len(results())
    assert node.running() == before, "the change must neither renew nor restart the kubelet"
    shown = node.shows(version)
    node.joined.machine.run(units.PROGRAM, "renew")
    assert node.running()[0] != before[0], "the other version must renew the credential"
    return f"{shown}, {count} cached calls were served meanwhile, then it renewed"


STEPS: Final = (
    Step(phase="install", subject=SUBJECT, run=install),
    Step(phase="install", subject=SUBJECT, run=install_for_arm64),
    Step(phase="upgrade", subject=SUBJECT, run=upgrade),
    Step(phase="go back", subject=SUBJECT, run=go_back),
)
