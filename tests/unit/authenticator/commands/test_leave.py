"""leave: the kubelet gets its own certificate, or everything is as before."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest
import yaml

from authenticator import wiring
from authenticator.commands import kubelet_unit, leave
from authenticator.config.exec_info import ExecInfo
from authenticator.config.invocation import Invocation
from authenticator.config.settings import resolve
from authenticator.errors import (
    BootstrapCredentialUnusable,
    CertificateNotAccepted,
    KubeconfigNotOurs,
    KubeletNotBootstrapped,
    KubeletUnitUnchangeable,
    Unauthorized,
)
from authenticator.model import Deadline, KeyPair, Server
from common.errors import AttestationError
from tests.builders import kubeconfigs
from tests.fakes.clock import FakeClock
from tests.fakes.node import SimulatedCrash

OURS = yaml.safe_dump(
    kubeconfigs.kubeconfig({"exec": {"command": "/usr/bin/kubelet-authenticator-tpm"}}, {})
)
PAIR = {"client-certificate": "kubelet.pem", "client-key": "kubelet.pem"}
OF_THE_KUBELET = yaml.safe_dump(kubeconfigs.kubeconfig(PAIR, {}))
WRITES_KUBECONFIG = 'test "$1" != restart -o -s kubelet.conf || cp own.conf kubelet.conf'
BOOTSTRAPS = f"{WRITES_KUBECONFIG}; cp own.pem kubelet.pem"
SERVER = Server(url="https://a", ca="", tls_server_name=None, proxy=None)
CALL = Invocation(
    exec_info=ExecInfo(raw=b"", api_version="", server=SERVER, settings={}),
    settings=resolve({"nodeName": "worker-1"}, {}, "x"),
    arguments=(),
)


@dataclass(frozen=True)
class Api:
    """An API server that knows the certificate in own.pem as worker-1's."""

    server: Server
    pair: KeyPair
    deadline: Deadline

    def self_subject_review(self) -> str:
        if (self.server, self.pair.certificate) != (SERVER, b"own"):
            raise Unauthorized("401")
        return "system:node:worker-1"

    def server_time(self) -> None:
        pass


@dataclass
class SlowKubelet(FakeClock):
    """The kubelet gets its certificate while leave sleeps."""

    root: Path = Path()

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        (self.root / "kubelet.pem").write_bytes(b"own")


@dataclass(frozen=True)
class Machine:
    """A node that has joined, with a systemctl that a test writes."""

    root: Path

    @property
    def kubelet_conf(self) -> Path:
        return self.root / "kubelet.conf"

    @property
    def kept(self) -> Path:
        return self.root / "kubelet.conf.attested"

    @property
    def link(self) -> Path:
        return self.root / "kubelet.service.d/zz-20-kubelet-authenticator-tpm.conf"

    @property
    def calls(self) -> list[str]:
        """What systemctl was called with."""
        return (self.root / "calls").read_text(encoding="utf-8").splitlines()

    def let_systemctl(self, script: str) -> None:
        """Let systemctl run a script after it has noted its arguments."""
        path = self.root / "systemctl"
        path.write_text(f'#!/bin/sh\ncd {self.root}\necho "$*" >>calls\n{script}\n')
        path.chmod(0o755)

    def interrupt(self, own: str | None) -> None:
        """Let a leave end with the machine, when the kubelet has written its `own` kubeconfig."""
        self.kubelet_conf.rename(self.kept)
        kubelet_unit.hide_drop_in(self.link)
        if own is not None:
            self.kubelet_conf.write_text(own, encoding="utf-8")

    def leave(self, clock: FakeClock | None = None) -> None:
        clock = clock or FakeClock()
        leave.leave(self.kubelet_conf, CALL, clock, Deadline(clock, 60))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path)
    machine.kubelet_conf.write_text(OURS, encoding="utf-8")
    (tmp_path / "own.conf").write_text(OF_THE_KUBELET, encoding="utf-8")
    (tmp_path / "own.pem").write_bytes(b"own")
    machine.let_systemctl(BOOTSTRAPS)
    monkeypatch.setattr(wiring, "connect", Api)
    monkeypatch.setattr(kubelet_unit, "HIDING_LINK", machine.link)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return machine


def require_as_before(machine: Machine) -> None:
    assert machine.kubelet_conf.read_text(encoding="utf-8") == OURS
    assert not machine.kept.exists()
    assert not os.path.lexists(machine.link)
    assert machine.calls[-2:] == ["daemon-reload", "restart --no-block kubelet.service"]


def test_kubelet_gets_a_certificate_of_its_own(machine: Machine) -> None:
    machine.leave()
    assert machine.kubelet_conf.read_text(encoding="utf-8") == OF_THE_KUBELET
    assert not machine.kept.exists()
    assert kubelet_unit.is_hidden(machine.link), "an upgrade of the package brings its file back"


def test_certificate_is_awaited_that_comes_after_the_kubeconfig(machine: Machine) -> None:
    """The kubelet writes its kubeconfig before it requests the certificate that this names."""
    machine.let_systemctl(WRITES_KUBECONFIG)
    clock = SlowKubelet(root=machine.root)
    machine.leave(clock)
    assert clock.slept == [leave.POLL_SECONDS]
    assert not machine.kept.exists()


NO_CERTIFICATE: dict[str, tuple[str, type[AttestationError], str]] = {
    "no kubeconfig": ("", BootstrapCredentialUnusable, "kubelet.conf: No such file"),
    "a kubeconfig that names no file": (
        WRITES_KUBECONFIG,
        BootstrapCredentialUnusable,
        "kubelet.pem: No such file",
    ),
    "a certificate from before": (
        f"echo stale >own.pem; {BOOTSTRAPS}",
        CertificateNotAccepted,
        "the API server refuses the new certificate",
    ),
}


@pytest.mark.parametrize("case", NO_CERTIFICATE)
def test_kubelet_without_a_certificate_gets_its_attested_one_back(
    machine: Machine, case: str
) -> None:
    script, cause, message = NO_CERTIFICATE[case]
    machine.let_systemctl(script)
    with pytest.raises(
        KubeletNotBootstrapped, match="uses its attested certificate again"
    ) as caught:
        machine.leave()
    assert isinstance(caught.value.__cause__, cause)
    assert message in str(caught.value.__cause__)
    require_as_before(machine)


def test_signals_put_everything_back(machine: Machine) -> None:
    """As of a connection that ends while leave waits, and again while it puts things back."""
    machine.let_systemctl("test $(wc -l <calls) = 1 || kill -HUP $PPID")
    with pytest.raises(SystemExit):
        machine.leave()
    require_as_before(machine)


def test_kubeconfig_of_this_program_never_stands_beside_a_hidden_drop_in(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet would overwrite it, also after a power cut while everything is put back."""

    def stop(_: Path) -> NoReturn:
        raise SimulatedCrash

    machine.let_systemctl("")
    monkeypatch.setattr(kubelet_unit, "show_drop_in", stop)
    with pytest.raises(SimulatedCrash):
        machine.leave()
    assert kubelet_unit.is_hidden(machine.link)
    assert not machine.kubelet_conf.exists()
    assert leave.attested_kubeconfig(machine.kubelet_conf) == machine.kept


def test_systemctl_that_fails_is_named(machine: Machine) -> None:
    machine.let_systemctl('test "$1" = daemon-reload -o -e failed || { touch failed; exit 4; }')
    with pytest.raises(KubeletUnitUnchangeable, match="systemctl restart --no-block kubelet"):
        machine.leave()
    require_as_before(machine)


@pytest.mark.parametrize("own", [None, OF_THE_KUBELET, ""])
def test_leave_continues_after_a_power_cut(machine: Machine, own: str | None) -> None:
    """Before or after the kubelet has written its kubeconfig, or while it does."""
    machine.interrupt(own)
    assert leave.attested_kubeconfig(machine.kubelet_conf) == machine.kept
    (machine.root / "own.pem").write_bytes(b"stale")
    with pytest.raises(KubeletNotBootstrapped):
        machine.leave()
    require_as_before(machine)
    machine.interrupt(own)
    (machine.root / "own.pem").write_bytes(b"own")
    machine.leave()
    assert machine.kubelet_conf.read_text(encoding="utf-8") == (own or OF_THE_KUBELET)
    assert not machine.kept.exists()


def test_node_that_has_left_has_nothing_to_leave(machine: Machine) -> None:
    machine.leave()
    with pytest.raises(KubeconfigNotOurs, match=r"kubelet\.conf does not run this program: there"):
        leave.attested_kubeconfig(machine.kubelet_conf)


def test_drop_in_is_shown_again_and_another_file_of_its_name_is_kept(machine: Machine) -> None:
    before = os.umask(0o077)
    try:
        kubelet_unit.hide_drop_in(machine.link)
    finally:
        os.umask(before)
    assert stat.S_IMODE(machine.link.parent.stat().st_mode) == 0o755
    kubelet_unit.show_drop_in(machine.link)
    assert machine.calls == ["daemon-reload"] * 2
    machine.link.write_text("[Service]\n", encoding="utf-8")
    kubelet_unit.show_drop_in(machine.link)
    assert machine.link.read_text(encoding="utf-8") == "[Service]\n"
    with pytest.raises(KubeletUnitUnchangeable, match=r"\.conf is yours: move it away first"):
        kubelet_unit.hide_drop_in(machine.link)
    assert machine.link.read_text(encoding="utf-8") == "[Service]\n"
