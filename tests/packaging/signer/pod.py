"""Runs the signer as a kubelet runs the pod of a Deployment, without a container runtime.

What the pod gets comes from the API server: its arguments, environment, volumes, user and the token
of its service account. Its root file system is read-only.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import requests

from builders.systems import overlay
from tests.harness import process
from tests.harness.client import Object
from tests.harness.controlplane import HOST, ApiServer
from tests.harness.netns import NetworkNamespace
from tests.harness.wire import output

SERVICE_ACCOUNT: Final = "var/run/secrets/kubernetes.io/serviceaccount"
_TOKEN_SECONDS: Final = 3600


class Pod:
    """The signer of a Deployment. It shares this machine's network unless it has its own."""

    def __init__(  # noqa: PLR0913 - what a kubelet gets from the API server, and where to run it
        self,
        cluster: ApiServer,
        namespace: str,
        name: str,
        *,
        root: Path,
        directory: Path,
        network: NetworkNamespace | None = None,
    ) -> None:
        """Read the Deployment. `root` is the file system of its image."""
        self._address = network.address if network else HOST
        self._enter = network.enter_network() if network else ()
        self._cluster = cluster
        self._namespace = namespace
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
        self._spec: Object = cluster.admin.get(path)["spec"]["template"]["spec"]
        [self._container] = self._spec["containers"]
        self._root = root
        self._directory = directory
        self.log = directory / "signer.log"

    @contextmanager
    def running(self, entrypoint: Sequence[str], *, seconds: float = 60) -> Iterator[None]:
        """Run the image's entry point with the arguments of the Deployment, until the end.

        It must become ready within some seconds.
        """
        layer = self._directory / "layer"
        self._write_volumes(layer)
        self._write_service_account(layer / SERVICE_ACCOUNT)
        output("chmod", "--recursive", "a+rX", layer)
        _write_devices(layer / "dev")
        overlay_directory = self._directory / "overlay"
        with overlay(overlay_directory, layer, (self._root,)) as merged, _proc(merged):
            output("mount", "-o", "remount,ro", merged)
            user = self._spec["securityContext"]
            argv: list[str | Path] = [
                *self._enter, "setpriv", "--no-new-privs", "--",
                "/usr/sbin/chroot", f"--userspec={user['runAsUser']}:{user['runAsGroup']}", merged,
                *entrypoint, *self._arguments(),
            ]  # fmt: skip
            with process.running(argv, log=self.log, env=self._environment()) as started:
                process.wait_until_ready(
                    started,
                    self._is_ready,
                    what="the signer is ready",
                    log=self.log,
                    seconds=seconds,
                )
                yield

    @property
    def log_lines(self) -> str:
        """All lines of the log."""
        return self.log.read_text(encoding="utf-8")

    def _arguments(self) -> list[str]:
        arguments: list[str] = self._container["args"]
        for name, value in self._environment().items():
            arguments = [argument.replace(f"$({name})", value) for argument in arguments]
        return arguments

    def _environment(self) -> dict[str, str]:
        fields = {"metadata.namespace": self._namespace, "status.podIP": self._address}
        address = urlsplit(self._cluster.url)
        return {
            "KUBERNETES_SERVICE_HOST": str(address.hostname),
            "KUBERNETES_SERVICE_PORT": str(address.port),
            **{
                variable["name"]: fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
                for variable in self._container["env"]
            },
        }

    def _write_volumes(self, layer: Path) -> None:
        volumes = {volume["name"]: volume for volume in self._spec.get("volumes", ())}
        for mount in self._container.get("volumeMounts", ()):
            directory = layer / mount["mountPath"].lstrip("/")
            directory.mkdir(parents=True)
            name = volumes[mount["name"]]["configMap"]["name"]
            path = f"/api/v1/namespaces/{self._namespace}/configmaps/{name}"
            for file, text in self._cluster.admin.get(path)["data"].items():
                (directory / file).write_text(text, encoding="utf-8")

    def _write_service_account(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        name = self._spec["serviceAccountName"]
        path = f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{name}/token"
        request = {"spec": {"expirationSeconds": _TOKEN_SECONDS}}
        token = self._cluster.admin.create(path, request)["status"]["token"]
        (directory / "token").write_text(token, encoding="utf-8")
        (directory / "namespace").write_text(self._namespace, encoding="utf-8")
        shutil.copy(self._cluster.admin.authority, directory / "ca.crt")

    def _is_ready(self) -> bool:
        probe = self._container["readinessProbe"]["httpGet"]
        ports = {port["name"]: port["containerPort"] for port in self._container["ports"]}
        url = f"http://{self._address}:{ports[probe['port']]}{probe['path']}"
        with requests.Session() as session:
            session.trust_env = False
            try:
                return session.get(url, timeout=5).ok
            except requests.ConnectionError:
                return False


def _write_devices(directory: Path) -> None:
    """Create /dev/null, as each container runtime does."""
    directory.mkdir()
    output("mknod", "--mode=666", directory / "null", "c", "1", "3")


@contextmanager
def _proc(root: Path) -> Iterator[None]:
    """Mount /proc, as each container runtime does. The signer opens files in memory through it."""
    output("mount", "-t", "proc", "-o", "nosuid,nodev,noexec", "proc", root / "proc")
    try:
        yield
    finally:
        output("umount", root / "proc")
