"""The real kubeadm: the objects that it creates in a cluster, and machines on which it runs."""

import hashlib
import os
import signal
import socket
import ssl
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
from tests.harness.wire import output
from tests.harness.workload import MANIFESTS, WorkloadCluster

API_VERSION = "kubeadm.k8s.io/v1beta4"
NODE_PACKAGING = Path(__file__).parents[2] / "packaging/node"
KUBERNETES = Path("/etc/kubernetes")
API_PORT = 6443
JOIN_SECONDS = 240
KUBELET: Mapping[str, Any] = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    # A machine of tests may have swap and no systemd, and shares its cgroups.
    "failSwapOn": False,
    "failCgroupV1": False,
    "cgroupDriver": "cgroupfs",
    "cgroupsPerQOS": False,
    "enforceNodeAllocatable": ["none"],  # kubeadm drops an empty list
    "localStorageCapacityIsolation": False,
}


def prepare(cluster: WorkloadCluster, version: str, directory: Path) -> None:
    """Let kubeadm create its ConfigMaps and roles in the cluster, as kubeadm init does."""
    config = directory / "init.yaml"
    endpoint = cluster.url.removeprefix("https://")
    # kubeadm looks for an address of its own at a default route, which a test may not have.
    local = {"advertiseAddress": cluster.host}
    documents = [
        {"apiVersion": API_VERSION, "kind": "InitConfiguration", "localAPIEndpoint": local},
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
        output(
            "env", "-i", f"HOME={directory}", f"PATH={os.defpath}",
            cluster.assets / "kubeadm", "init", "phase", *phase,
            f"--config={config}", f"--kubeconfig={cluster.admin_config}",
        )  # fmt: skip


def discovery(cluster: WorkloadCluster, token: str) -> dict[str, Any]:
    """Return how a JoinConfiguration finds the cluster, and whose certificate it trusts."""
    public = cluster.authority.certificate.public_key()
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return {
        "bootstrapToken": {
            "token": token,
            "apiServerEndpoint": cluster.url.removeprefix("https://"),
            "caCertHashes": [f"sha256:{hashlib.sha256(der).hexdigest()}"],
        }
    }


class Machine:
    """A machine with a kubelet, kubeadm's drop-in and ours, before kubeadm has run."""

    def __init__(
        self,
        node: Node,
        enclosure: NetworkNamespace,
        runtime_endpoint: str,
        *,
        attested_serving: bool = True,
    ) -> None:
        """Install everything; `attested_serving` also the drop-in for serving certificates."""
        self._node = node
        self._enclosure = enclosure
        self._runtime_endpoint = runtime_endpoint
        self._attested_serving = attested_serving
        self._assets = node.tenant.workload.assets
        self._root = enclosure.directory / "root"
        self._identity = self._root / "identity.yaml"
        self._hide_etc()
        self._install()

    @property
    def log(self) -> Path:
        """Log of `join` and the kubelet."""
        return self._node.directory / systemctl.LOG

    @property
    def served(self) -> Path:
        """The file with the kubelet's attested serving certificate and its key."""
        return self._node.state / "serving/credential.pem"

    def presented(self) -> str:
        """Return the certificate, as PEM, that the kubelet presents to clients that send its name.

        Kubelets before v1.36 present the certificate of their start to other clients.
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

    def kubeadm_init(self, version: str, certificate_key: str) -> None:
        """Run kubeadm init to its end, with the authority of the node's cluster.

        Raises RuntimeError with the output of kubeadm and of the kubelet.
        """
        authority = self._node.tenant.workload.authority.pair
        self.write(KUBERNETES / "pki/ca.crt", authority.certificate.decode())
        self.write(KUBERNETES / "pki/ca.key", authority.key.decode())
        endpoint = f"{self._enclosure.address}:{API_PORT}"
        init = {
            "apiVersion": API_VERSION,
            "kind": "InitConfiguration",
            "nodeRegistration": self._registration(),
            "localAPIEndpoint": self._local_endpoint(),
            "certificateKey": certificate_key,
        }
        flex_volumes = {"name": "flex-volume-plugin-dir", "value": "/var/lib/kubelet/flex"}
        cluster = {
            "apiVersion": API_VERSION,
            "kind": "ClusterConfiguration",
            "kubernetesVersion": version,
            "controlPlaneEndpoint": endpoint,
            # The usual directory would be created in the /usr that all share.
            "controllerManager": {"extraArgs": [flex_volumes]},
        }
        kubelet = dict(KUBELET) | {"volumePluginDir": flex_volumes["value"]}
        self._kubeadm("init", [init, cluster, kubelet], "--upload-certs", "--skip-phases=addon")

    def kubeadm_join(self, token: str, *, certificate_key: str | None = None) -> None:
        """Run kubeadm join to its end; with a key for certificates as a control plane node.

        Raises RuntimeError with the output of kubeadm and of the kubelet.
        """
        join = self._join_configuration(token)
        if certificate_key is not None:
            join["controlPlane"] = {
                "localAPIEndpoint": self._local_endpoint(),
                "certificateKey": certificate_key,
            }
        self._kubeadm("join", [join])

    def kubeadm_reset(self) -> None:
        """Run kubeadm reset to its end. It leaves what kubeadm does not know."""
        reset = {
            "apiVersion": API_VERSION,
            "kind": "ResetConfiguration",
            "criSocket": self._runtime_endpoint,
            "force": True,
        }
        self._kubeadm("reset", [reset])

    def become(self, node: Node) -> None:
        """Let the machine be another node from now on, with the same TPM and directory."""
        self._node = node
        self._write_settings()

    def _kubeadm(self, verb: str, documents: list[Mapping[str, Any]], *flags: str) -> None:
        config, log = self._root / f"{verb}.yaml", self._node.directory / "kubeadm.log"
        config.write_text(yaml.safe_dump_all(map(dict, documents)), encoding="utf-8")
        process = self._enclosure.start(
            [
                self._assets / "kubeadm", verb, f"--config={config}",
                "--ignore-preflight-errors=all", *flags,
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
        """Run a program as root on the machine."""
        words = [f"{name}={value}" for name, value in self._environment().items()]
        return self._enclosure.run("env", *words, *argv)

    @property
    def address(self) -> str:
        """Its address."""
        return self._enclosure.address

    def join(self, *flags: str) -> None:
        """Run the plugin's `join` with the flags of the machine's settings."""
        self.run(PLUGIN.name, "join", *flags, *self._join_flags())

    def doctor(self) -> str:
        """Run the plugin's `doctor` with the flags of the machine's settings.

        Raises RuntimeError with the findings if one has a remedy.
        """
        return self.run(PLUGIN.name, "doctor", *self._join_flags())

    def run_script(self, script: str) -> None:
        """Run commands of the documentation, with the flags of the machine's settings for `join`.

        The stand-in for systemd has its units in another directory.
        """
        script = script.replace("/usr/lib/systemd/system", str(self._root / systemctl.UNITS))
        join = f"{PLUGIN.name} join"
        self.run("sh", "-ec", script.replace(join, f"{join} {' '.join(self._join_flags())}"))

    def remove_plugin(self) -> None:
        """Remove our drop-ins, as on a machine that kubeadm alone has set up."""
        for drop_in in self._drop_ins():
            drop_in.unlink()

    def install_plugin(self) -> None:
        """Install our drop-ins; the program is always there."""
        for drop_in, text in self._drop_ins().items():
            drop_in.write_bytes(text)

    def write(self, path: Path, text: str) -> None:
        """Write a private file of the machine."""
        target = self._enclosure.path(str(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch(mode=0o600)
        target.write_text(text, encoding="utf-8")

    def read(self, path: str) -> Any:  # noqa: ANN401 - any YAML
        """Read a YAML file of the machine."""
        return yaml.safe_load(self._enclosure.run("cat", path))

    def has(self, path: str) -> bool:
        """Return whether the machine has a file."""
        directory, _, name = path.rpartition("/")
        return name in self._enclosure.run("ls", directory).split()

    def _hide_etc(self) -> None:
        """Let the machine write its own /etc, and resolve no name but its own."""
        etc = self._enclosure.directory / "etc"
        for path in (etc / "upper/kubernetes", etc / "work"):
            path.mkdir(parents=True)
        names = f"127.0.0.1 localhost\n{self._enclosure.address} {self._node.name}\n"
        (etc / "upper/hosts").write_text(names, encoding="utf-8")
        (etc / "upper/resolv.conf").write_text("", encoding="utf-8")
        options = f"lowerdir=/etc,upperdir={etc / 'upper'},workdir={etc / 'work'}"
        self._enclosure.run("mount", "-t", "overlay", "overlay", "-o", options, "/etc")

    def _install(self) -> None:
        units = self._root / systemctl.UNITS
        (units / "kubelet.service.d").mkdir(parents=True)
        (units / "kubelet.service").write_text("[Service]\nExecStart=/usr/bin/kubelet\n")
        drop_in = MANIFESTS / "10-kubeadm.conf"
        (units / "kubelet.service.d" / drop_in.name).write_bytes(drop_in.read_bytes())
        self.install_plugin()
        flags = self._root / "usr/lib/kubelet-authenticator-tpm/kubelet.env"
        flags.parent.mkdir()
        flags.write_bytes((NODE_PACKAGING / flags.name).read_bytes())
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
        self._write_settings()

    def _write_settings(self) -> None:
        """Write who the machine is, as its platform says, and the flags of the plugin."""
        identity = {"providerID": self._node.provider_id, "nodeName": self._node.name}
        self._identity.write_text(yaml.safe_dump(identity), encoding="utf-8")
        defaults = self._root / "etc/default/kubelet-authenticator-tpm"
        defaults.parent.mkdir(parents=True, exist_ok=True)
        defaults.write_text(
            f'KUBELET_AUTHENTICATOR_JOIN_ARGS="{" ".join(self._join_flags())}"\n'
            f'KUBELET_AUTHENTICATOR_SERVING_ARGS="--address={self._enclosure.address}"\n'
        )

    def _drop_ins(self) -> dict[Path, bytes]:
        """Return our drop-ins, each with its text."""
        directory = self._root / systemctl.UNITS / "kubelet.service.d"
        return {
            directory / source.name: source.read_bytes()
            for source in NODE_PACKAGING.glob("systemd/*.conf")
            if self._attested_serving or "serving" not in source.name
        }

    def _join_flags(self) -> list[str]:
        settings = {
            "--provider": f"file:{self._identity}",
            "--state-dir": str(self._node.state),
            "--tcti": self._node.tpm.tcti,
        }
        return [f"{name}={value}" for name, value in settings.items()]

    def _environment(self) -> dict[str, str]:
        return {"PATH": f"{self._root / 'usr/bin'}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}

    def _local_endpoint(self) -> dict[str, Any]:
        return {"advertiseAddress": self._enclosure.address, "bindPort": API_PORT}

    def _registration(self) -> dict[str, Any]:
        extra = {"node-ip": self._enclosure.address, "provider-id": self._node.provider_id}
        if self._attested_serving:
            extra |= dict.fromkeys(("tls-cert-file", "tls-private-key-file"), str(self.served))
        return {
            "name": self._node.name,
            "criSocket": self._runtime_endpoint,
            "imagePullPolicy": "Never",
            "kubeletExtraArgs": [{"name": name, "value": value} for name, value in extra.items()],
        }

    def _join_configuration(self, token: str) -> dict[str, Any]:
        return {
            "apiVersion": API_VERSION,
            "kind": "JoinConfiguration",
            "discovery": discovery(self._node.tenant.workload, token),
            "nodeRegistration": self._registration(),
        }
