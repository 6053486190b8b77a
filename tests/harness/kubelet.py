"""The real kubelet of a node. Its only credential is our exec kubeconfig."""

import signal
import subprocess
from pathlib import Path
from typing import Self

import yaml

from tests.harness.netns import NetworkNamespace
from tests.harness.node import Node
from tests.harness.process import wait_until_ready

LEASE_SECONDS = 10
"""Duration of a node lease, a quarter of the default. The kubelet renews it four times as often."""

REPORT_SECONDS = 10
"""Interval of status reports when nothing changes; the default is five minutes."""

PORT = 10250
HEALTH_PORT = 10248
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


class Kubelet:
    """A kubelet in a machine. A context manager; it can be restarted."""

    def __init__(
        self, node: Node, enclosure: NetworkNamespace, *, program: Path, runtime_endpoint: str
    ) -> None:
        self.node = node
        self.log = node.directory / "kubelet.log"
        self.address = enclosure.address
        self._enclosure = enclosure
        self._program = program
        self._directory = enclosure.directory / "kubelet"
        self._process: subprocess.Popen[bytes] | None = None
        self._directory.mkdir()
        self._authority = self._directory / "ca.crt"
        self._authority.write_bytes(node.tenant.workload.authority.pair.certificate)
        self._config = self._directory / "config.yaml"
        self._config.write_text(
            yaml.safe_dump(self._configuration(runtime_endpoint)), encoding="utf-8"
        )

    @property
    def certificates(self) -> Path:
        """Directory of its serving certificates, and of client certificates if it had any."""
        return self._directory / "pki"

    def start(self) -> None:
        """Start it, and return when its health port is open."""
        process = self._process = self._enclosure.start(
            [
                self._program,
                f"--config={self._config}",
                f"--kubeconfig={self.node.kubeconfig()}",
                f"--hostname-override={self.node.name}",
                f"--node-ip={self.address}",
                f"--provider-id={self.node.provider_id}",
                f"--root-dir={self._directory / 'root'}",
                f"--cert-dir={self.certificates}",
            ],
            log=self.log,
            env=ENVIRONMENT,
        )
        what = "the kubelet listens"
        wait_until_ready(process, self._listens, what=what, log=self.log, seconds=180)

    def stop(self) -> None:
        """End it with SIGTERM, as systemd does, and wait until it has ended."""
        if self._process is not None:
            self._enclosure.end(self._process, signal.SIGTERM)
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _listens(self) -> bool:
        try:
            self._enclosure.run("bash", "-c", f"</dev/tcp/127.0.0.1/{HEALTH_PORT}")
        except RuntimeError:
            return False
        return True

    def _configuration(self, runtime_endpoint: str) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            # It requests serving certificates itself, and no client certificates.
            "rotateCertificates": False,
            "serverTLSBootstrap": True,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self._authority)},
            },
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": runtime_endpoint,
            "nodeLeaseDurationSeconds": LEASE_SECONDS,
            "nodeStatusReportFrequency": f"{REPORT_SECONDS}s",
            "port": PORT,
            "healthzPort": HEALTH_PORT,
            "volumePluginDir": str(self._directory / "plugins"),
            # A machine of tests may have swap and no systemd, and shares its cgroups.
            "failSwapOn": False,
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "localStorageCapacityIsolation": False,
        }
