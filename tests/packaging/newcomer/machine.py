"""A machine whose image has containerd, the kubelet, kubeadm and the installed deb."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import yaml

from tests.harness.containerd import NETWORK
from tests.harness.kubeadm import API_VERSION, discovery
from tests.harness.netns import SYSCTLS
from tests.harness.systemd_machine import SystemdMachine
from tests.harness.tpm import SoftwareTpm, TrustDomain
from tests.harness.workload import MANIFESTS, WorkloadCluster
from tests.packaging.newcomer.clusters import CLUSTER, NAMESPACE
from tests.packaging.node import packages
from tests.systemd import units

NAME: Final = "worker-1"
PROVIDER_ID: Final = f"test://{NAMESPACE}/{NAME}"
SUITE: Final = "bookworm"
_RUNTIME: Final = ("containerd",)
_SETTINGS: Final = (
    f'KUBELET_AUTHENTICATOR_JOIN_ARGS="--provider-id={PROVIDER_ID} --tcti={units.TCTI}"'
)
"""The last flag is only for software TPMs."""
_JOIN_CONFIGURATION: Final = "/run/kubeadm/kubeadm-join-config.yaml"
_PREFLIGHT: Final = ("--ignore-preflight-errors=all",)
"""Of programs and modules of the kernel that a node without pods does not need."""
_SHARED_KERNEL: Final = """
mknod -m 600 /dev/kmsg c 1 3
mkdir /srv/sysctls
while read -r name value; do
  file=/srv/sysctls/$(basename "$name")
  echo "$value" >"$file"
  mount --bind "$file" "/proc/sys/$name"
done
"""
"""Gives the kubelet an empty log of the kernel, and files in place of the sysctls that it sets."""


class NodeMachine:
    """The machine. Its commands run as root."""

    def __init__(self, machine: SystemdMachine) -> None:
        self._machine = machine
        self._start_of_shell = f"export NAMESPACE={NAMESPACE} CLUSTER={CLUSTER}\ncd /root\n"

    @property
    def address(self) -> str:
        """Its address."""
        return self._machine.address

    def run(self, script: str) -> str:
        """Run commands in a shell, which stops at the first failure; return their output."""
        script = self._start_of_shell + script
        return self._machine.run("bash", "-euo", "pipefail", "-c", script)

    def add_settings(self, script: str) -> None:
        """Let each later shell begin with a script, as if all commands ran in one shell."""
        self._start_of_shell += script

    def read(self, name: str) -> str:
        """Return a file in the home directory."""
        return self._machine.run("cat", f"/root/{name}")

    def join(self, workload: WorkloadCluster) -> None:
        """Run kubeadm join, as the user data of Cluster API does at the first boot."""
        configuration = yaml.safe_dump(_join_configuration(workload, self.address))
        self._machine.write(_JOIN_CONFIGURATION, configuration, mode=0o600)
        try:
            self._machine.run("kubeadm", "join", f"--config={_JOIN_CONFIGURATION}", *_PREFLIGHT)
        except RuntimeError as error:
            raise RuntimeError(f"{error}\n{self._machine.journal('kubelet')}") from error


@contextmanager
def booted(assets: Path, directory: Path, release: Path) -> Iterator[NodeMachine]:
    """Install the deb of a release in a node image, and boot a machine with a TPM from it."""
    directory.mkdir()
    package = packages.find(release, packages.DEB)
    layers = packages.install(SUITE, packages.DEB, directory, more=_RUNTIME, package=package)
    with (
        SoftwareTpm(TrustDomain(directory / "vendor"), seed=NAME) as tpm,
        SystemdMachine(
            (_kubernetes(assets, directory / "kubernetes"), *layers),
            log=directory / "systemd.log",
            tpm=tpm.directory,
        ) as machine,
    ):
        machine.write("/etc/hostname", f"{NAME}\n")
        machine.write("/etc/hosts", f"127.0.0.1 localhost\n{machine.address} {NAME}\n")
        machine.write("/etc/resolv.conf", "")
        machine.write("/etc/cni/net.d/10-none.conflist", NETWORK)
        machine.write(units.DEFAULTS, f"{_SETTINGS}\n")
        machine.boot()
        settings = "".join(f"{name} {value}\n" for name, value in SYSCTLS.items())
        machine.run("sh", "-ec", f"{_SHARED_KERNEL.rstrip()} <<'END'\n{settings}END\n")
        yield NodeMachine(machine)


def _kubernetes(assets: Path, layer: Path) -> Path:
    """Return a layer with the files of the Debian packages `kubelet` and `kubeadm`."""
    programs = layer / "usr/bin"
    programs.mkdir(parents=True)
    shutil.copy((assets / "kubelet").resolve(), programs / "kubernetes")
    for name in ("kubelet", "kubeadm"):
        (programs / name).symlink_to("kubernetes")
    drop_ins = layer / units.DROP_INS.lstrip("/")
    drop_ins.mkdir(parents=True)
    shutil.copy(MANIFESTS / "10-kubeadm.conf", drop_ins)
    (layer / units.UNITS.lstrip("/") / "kubelet.service").write_text(units.KUBELET_SERVICE)
    return layer


def _join_configuration(workload: WorkloadCluster, address: str) -> dict[str, object]:
    return {
        "apiVersion": API_VERSION,
        "kind": "JoinConfiguration",
        "discovery": discovery(workload, workload.bootstrap_token()),
        # kubeletHealthCheckSeconds in the page's KubeadmConfigTemplate.
        "timeouts": {"kubeletHealthCheck": "1h0m0s"},
        "nodeRegistration": {
            "criSocket": "unix:///run/containerd/containerd.sock",
            "imagePullPolicy": "Never",
            "kubeletExtraArgs": [
                {"name": "node-ip", "value": address},
                {"name": "provider-id", "value": PROVIDER_ID},
            ],
        },
    }
