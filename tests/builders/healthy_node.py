"""A node on which `doctor` finds no problem."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

from authenticator.checks.doctor_check import DoctorContext, Finding
from authenticator.commands import doctor
from authenticator.config.exec_info import ExecInfo
from authenticator.config.settings import Settings, resolve
from authenticator.model import ApiCredential, CsrApi, Deadline, Server
from authenticator.state.credential import Credential
from authenticator.state.directory import StateDirectory
from authenticator.state.store import FileStore
from authenticator.tpm.device import Tpm
from common.errors import AttestationError
from tests.builders import credentials
from tests.builders.kubeconfigs import kubeconfig
from tests.fakes.clock import FakeClock
from tests.fakes.tpm import FakeTpm

KUBEADM_FLAGS = "--bootstrap-kubeconfig=/b --kubeconfig=/k"


@dataclass
class HealthyNode:
    """A node without a problem. A test breaks one thing."""

    root: Path
    clock: FakeClock
    tpm: FakeTpm
    skew: float = 0.0
    allowed: bool = True
    refusal: AttestationError | None = None
    has_date: bool = True
    settings: Settings | AttestationError = field(init=False)
    exec_info: ExecInfo | AttestationError = field(init=False)
    differences: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("etc/kubernetes", "var/lib/kubelet", "usr/lib", "usr/bin"):
            (self.root / name).mkdir(parents=True)
        program = self.root / "usr/bin/kubelet-authenticator-tpm"
        program.touch(mode=0o755)
        self.write("var/lib/kubelet/config.yaml", {"rotateCertificates": False})
        self.write("etc/kubernetes/bootstrap.conf", self.kubeconfig({"token": "a.b"}))
        self.write("etc/kubernetes/kubelet.conf", self.kubeconfig({"exec": self.stanza()}))
        settings = {
            "nodeName": "worker-1",
            "providerID": "test:///1",
            "stateDir": str(self.root / "state"),
            "bootstrapKubeconfig": str(self.root / "etc/kubernetes/bootstrap.conf"),
        }
        server = Server(url="https://a", ca="", tls_server_name=None, proxy=None)
        self.exec_info = ExecInfo(
            raw=credentials.EXEC_INFO, api_version="", server=server, settings={}
        )
        self.settings = resolve(settings, {}, "x")
        with self.store() as store:
            store.save_credential(self.credential())

    @contextlib.contextmanager
    def store(self) -> Iterator[FileStore]:
        """Open the state of the node."""
        with StateDirectory(self.root / "state") as directory:
            yield FileStore(directory, self.clock)

    def credential(self) -> Credential:
        """Return a certificate that was received yesterday."""
        return credentials.make(int(self.clock.now()) - credentials.DAY)

    def stanza(self, **change: object) -> dict[str, object]:
        """Return the exec stanza, changed."""
        return {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "/usr/bin/kubelet-authenticator-tpm",
            "interactiveMode": "Never",
            "provideClusterInfo": True,
            **change,
        }

    def kubeconfig(self, user: dict[str, Any]) -> dict[str, Any]:
        """Return a kubeconfig with this user."""
        return kubeconfig(user, {"server": "https://a"})

    def write(self, name: str, content: object) -> None:
        """Write a file below the root of the machine."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else yaml.safe_dump(content)
        path.write_text(text, encoding="utf-8")

    def server_time(self) -> float | None:
        """See `CsrApi`."""
        if self.refusal is not None:
            raise self.refusal
        return self.clock.now() - self.skew if self.has_date else None

    def can_create_csrs(self) -> bool:
        """See `CsrApi`."""
        if self.refusal is not None:
            raise self.refusal
        return self.allowed

    def findings(self) -> dict[str, Finding]:
        """Run every check."""

        @contextlib.contextmanager
        def open_tpm(settings: Settings, deadline: Deadline) -> Iterator[Tpm]:
            assert settings is self.settings
            deadline.clamp(1)
            yield self.tpm

        def probe(server: Server, requester: ApiCredential, deadline: Deadline) -> CsrApi:
            assert isinstance(self.exec_info, ExecInfo)
            assert server is self.exec_info.server
            assert repr(requester)
            deadline.clamp(1)
            return cast("CsrApi", self)

        context = DoctorContext(
            kubeconfig=Path("/etc/kubernetes/kubelet.conf"),
            root=self.root,
            clock=self.clock,
            origin="kubelet.conf",
            settings=self.settings,
            exec_info=self.exec_info,
            differences=self.differences,
            open_tpm=open_tpm,
            probe=probe,
        )
        return {finding.check: finding for finding in doctor.run_checks(context)}


def drop_in(directory: str, name: str, arguments: str) -> Callable[[HealthyNode], None]:
    """Return a change that adds a drop-in to the unit of the kubelet."""
    line = f'[Service]\nEnvironment="KUBELET_KUBECONFIG_ARGS={arguments}"\n'
    return lambda machine: machine.write(
        f"{directory}/systemd/system/kubelet.service.d/{name}", line
    )
