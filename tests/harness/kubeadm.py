"""The real kubeadm: what it leaves in a cluster for those who join, and a machine that it joins."""

import hashlib
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.harness import systemctl
from tests.harness.kubelet import PORT
from tests.harness.netns import NetworkNamespace
from tests.harness.node import Node
from tests.harness.process import tail, wait_until
from tests.harness.programs import PLUGIN
from tests.harness.workload import MANIFESTS, WorkloadCluster

API_VERSION = "kubeadm.k8s.io/v1beta4"
NODE_PACKAGING = Path(__file__).parents[2] / "packaging/node"
KUBERNETES = Path("/etc/kubernetes")
JOIN_SECONDS = 240
KUBELET: Mapping[str, Any] = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    # What a machine of tests may lack: systemd, cgroups of its own, no swap.
    "failSwapOn": False,
    "failCgroupV1": False,
    "cgroupDriver": "cgroupfs",
    "cgroupsPerQOS": False,
    "enforceNodeAllocatable": ["none"],  # an empty list is lost on the way
    "localStorageCapacityIsolation": False,
}


def prepare(cluster: WorkloadCluster, version: str, folder: Path) -> None:
    """Let kubeadm leave its ConfigMaps and roles in the cluster, as kubeadm init does."""
    config = folder / "init.yaml"
    endpoint = cluster.url.removeprefix("https://")
    documents = [
        {"apiVersion": API_VERSION, "kind": "InitConfiguration"},
        {
            "apiVersion": API_VERSION,
            "kind": "ClusterConfiguration",
            "kubernetesVersion": version,
            "controlPlaneEndpoint": endpoint,
        },
        dict(KUBELET),
    ]
    config.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
    for phase in (("upload-config", "all"), ("bootstrap-token",)):
        subprocess.run(
            [
                cluster.assets / "kubeadm", "init", "phase", *phase,
                f"--config={config}", f"--kubeconfig={cluster.admin_config}",
            ],
            check=True,
            env={"HOME": str(folder), "PATH": os.defpath},
            capture_output=True,
        )  # fmt: skip


class Machine:
    """A machine with kubelet, kubeadm's drop-in and ours, before it has joined anything."""

    def __init__(self, node: Node, enclosure: NetworkNamespace, runtime_endpoint: str) -> None:
        self._node = node
        self._enclosure = enclosure
        self._runtime_endpoint = runtime_endpoint
        self._assets = node.tenant.workload.assets
        self._root = enclosure.folder / "root"
        enclosure.run("mount", "-t", "tmpfs", "tmpfs", KUBERNETES)
        self._install()

    @property
    def log(self) -> Path:
        """What join and the kubelet say."""
        return self._node.folder / systemctl.LOG

    @property
    def served(self) -> Path:
        """The file with the kubelet's attested serving certificate and its key."""
        return self._node.state / "serving/credential.pem"

    def presented(self) -> str:
        """Return the certificate that the kubelet shows now, as PEM, to who asks for it by name.

        To others kubelets before v1.36 show the one that they were started with.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with (
            socket.create_connection((self._enclosure.address, PORT)) as connection,
            context.wrap_socket(connection, server_hostname=self._node.name) as secured,
        ):
            shown = secured.getpeercert(binary_form=True)
        assert shown is not None
        return ssl.DER_cert_to_PEM_cert(shown)

    def kubeadm_join(self, token: str) -> None:
        """Run kubeadm join to its end. Raises RuntimeError with what it and the kubelet said."""
        config, log = self._root / "join.yaml", self._node.folder / "kubeadm.log"
        config.write_text(yaml.safe_dump(self._configuration(token)), encoding="utf-8")
        process = self._enclosure.start(
            [
                self._assets / "kubeadm", "join", f"--config={config}",
                "--ignore-preflight-errors=all",
            ],
            log=log,
            env=self._environment(),
        )  # fmt: skip
        try:
            wait_until(lambda: process.poll() is not None, what="it ends", seconds=JOIN_SECONDS)
        except TimeoutError:
            self._enclosure.end(process, signal.SIGKILL)
        if process.returncode:
            raise RuntimeError(f"{tail(log)}\n{tail(self.log)}")

    def run(self, *argv: str) -> str:
        """Run a program as root does on the machine."""
        words = [f"{name}={value}" for name, value in self._environment().items()]
        return self._enclosure.run("env", *words, *argv)

    def read(self, path: str) -> Any:  # noqa: ANN401 - whatever YAML it is
        """Read a YAML file of the machine."""
        return yaml.safe_load(self._enclosure.run("cat", path))

    def has(self, path: str) -> bool:
        """Tell whether the machine has a file."""
        folder, _, name = path.rpartition("/")
        return name in self._enclosure.run("ls", folder).split()

    def _install(self) -> None:
        units = self._root / systemctl.UNITS
        (units / "kubelet.service.d").mkdir(parents=True)
        (units / "kubelet.service").write_text("[Service]\nExecStart=/usr/bin/kubelet\n")
        for source in (MANIFESTS / "10-kubeadm.conf", *NODE_PACKAGING.glob("systemd/*.conf")):
            (units / "kubelet.service.d" / source.name).write_bytes(source.read_bytes())
        for place, program in (("kubelet", self._assets / "kubelet"), (PLUGIN.name, PLUGIN)):
            link = self._root / "usr/bin" / place
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(program)
        (self._root / systemctl.LOG).symlink_to(self.log)
        stub = self._root / "usr/bin/systemctl"
        stub.write_text(
            f'#!/bin/sh\nexec {sys.executable} -I {systemctl.__file__} {self._root} "$@"\n'
        )
        stub.chmod(0o755)
        settings = {"--provider-id": self._node.provider_id, "--node-name": self._node.name}
        settings |= {"--state-dir": str(self._node.state), "--tcti": self._node.tpm.tcti}
        flags = " ".join(f"{name}={value}" for name, value in settings.items())
        defaults = self._root / "etc/default/kubelet-authenticator-tpm"
        defaults.parent.mkdir(parents=True)
        defaults.write_text(
            f'KUBELET_AUTHENTICATOR_JOIN_ARGS="{flags}"\n'
            f'KUBELET_AUTHENTICATOR_SERVING_ARGS="--address={self._enclosure.address}"\n'
        )

    def _environment(self) -> dict[str, str]:
        return {"PATH": f"{self._root / 'usr/bin'}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}

    def _configuration(self, token: str) -> dict[str, Any]:
        workload = self._node.tenant.workload
        public = workload.authority.certificate.public_key()
        der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        extra = {"node-ip": self._enclosure.address, "provider-id": self._node.provider_id}
        extra |= dict.fromkeys(("tls-cert-file", "tls-private-key-file"), str(self.served))
        return {
            "apiVersion": API_VERSION,
            "kind": "JoinConfiguration",
            "discovery": {
                "bootstrapToken": {
                    "token": token,
                    "apiServerEndpoint": workload.url.removeprefix("https://"),
                    "caCertHashes": [f"sha256:{hashlib.sha256(der).hexdigest()}"],
                }
            },
            "nodeRegistration": {
                "name": self._node.name,
                "criSocket": self._runtime_endpoint,
                "kubeletExtraArgs": [
                    {"name": name, "value": value} for name, value in extra.items()
                ],
            },
        }
