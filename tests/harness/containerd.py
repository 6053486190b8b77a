"""Debian's containerd with its own directories and socket, for one kubelet."""

import json
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from tests.harness.netns import NetworkNamespace
from tests.harness.process import wait_until_ready

NETWORK = """{
  "cniVersion": "0.4.0",
  "name": "none",
  "plugins": [{"type": "loopback"}]
}
"""
"""A network for pods. No pod uses it, but a node without one does not become Ready."""


class Containerd:
    """The container runtime of a node. A context manager."""

    def __init__(self, enclosure: NetworkNamespace, log: Path, *, sandbox_image: str = "") -> None:
        """Write its configuration. Pods need a sandbox image that has been imported."""
        self._sandbox_image = sandbox_image
        self._enclosure = enclosure
        self._directory = enclosure.directory / "containerd"
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._directory.mkdir()
        (self._directory / "cni").mkdir()
        (self._directory / "cni/none.conflist").write_text(NETWORK, encoding="utf-8")
        self._config = self._directory / "config.toml"
        self._config.write_text(self._configuration(), encoding="utf-8")

    @property
    def endpoint(self) -> str:
        """Address of its socket."""
        return f"unix://{self._socket}"

    @property
    def _socket(self) -> Path:
        return self._directory / "sock"

    def __enter__(self) -> Self:
        argv: list[str | Path] = ["containerd", "--config", self._config]
        process = self._process = self._enclosure.start(argv, log=self._log)
        try:
            wait_until_ready(
                process, self._answers, what="containerd answers", log=self._log, seconds=90
            )
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._enclosure.end(self._process, signal.SIGKILL)

    def import_images(self, archive: Path) -> None:
        """Import an OCI archive for the kubelet's pods."""
        ctr = ("ctr", "--address", str(self._socket), "--namespace", "k8s.io")
        self._enclosure.run(*ctr, "images", "import", archive)

    def kill_containers(self) -> None:
        """Kill every container at once."""
        for name in self._tasks("list", "--quiet").split():
            self._tasks("kill", "--signal", "SIGKILL", name)

    def _tasks(self, *argv: str) -> str:
        ctr = ("ctr", "--address", str(self._socket), "--namespace", "k8s.io", "tasks")
        return self._enclosure.run(*ctr, *argv)

    def _answers(self) -> bool:
        if not self._socket.exists():
            return False
        try:
            self._enclosure.run("ctr", "--address", self._socket, "version")
        except RuntimeError:
            return False
        return True

    def _configuration(self) -> str:
        lines: dict[str, dict[str, Any]] = {
            "": {
                "version": 2,
                "root": str(self._directory / "root"),
                "state": str(self._directory / "state"),
            },
            "grpc": {"address": str(self._socket)},
            # A container must not need CAP_SYS_RESOURCE, which this machine may lack.
            'plugins."io.containerd.grpc.v1.cri"': {
                "restrict_oom_score_adj": True,
                "sandbox_image": self._sandbox_image,
            },
            'plugins."io.containerd.grpc.v1.cri".containerd': {"snapshotter": "overlayfs"},
            'plugins."io.containerd.grpc.v1.cri".cni': {
                "bin_dir": str(self._directory / "cni"),
                "conf_dir": str(self._directory / "cni"),
            },
        }
        return "\n".join(_table(name, values) for name, values in lines.items())


def remove_empty_cgroups() -> None:
    """Remove the cgroups of containers whose processes ended with their machine."""
    for parent in Path("/sys/fs/cgroup").glob("*/k8s.io"):
        for cgroup in (*parent.glob("*/"), parent):
            with suppress(OSError):  # it is in use, by another test run perhaps
                cgroup.rmdir()


def _table(name: str, values: dict[str, Any]) -> str:
    """Write one table of TOML, which has strings, numbers and booleans as in JSON."""
    header = f"[{name}]\n" if name else ""
    return header + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
