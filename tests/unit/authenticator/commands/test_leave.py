"""leave: the kubelet gets its own certificate, or everything is as before."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from authenticator.commands import kubelet_unit, leave
from authenticator.errors import (
    KubeletNotBootstrapped,
    KubeletUnitUnchangeable,
)
from authenticator.model import Deadline
from tests.builders import kubeconfigs
from tests.fakes.clock import FakeClock

OURS = yaml.safe_dump(
    kubeconfigs.kubeconfig({"exec": {"command": "/usr/bin/kubelet-authenticator-tpm"}}, {})
)
OF_THE_KUBELET = yaml.safe_dump(kubeconfigs.kubeconfig({"client-certificate": "/x.pem"}, {}))


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

    def leave(self) -> None:
        clock = FakeClock()
        leave.leave(self.kubelet_conf, self.kept, clock, Deadline(clock, 60))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path)
    machine.kubelet_conf.write_text(OURS, encoding="utf-8")
    (tmp_path / "own.conf").write_text(OF_THE_KUBELET, encoding="utf-8")
    machine.let_systemctl('test "$1" != restart || cp own.conf kubelet.conf')
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


def test_kubelet_without_a_certificate_gets_its_attested_one_back(machine: Machine) -> None:
    machine.let_systemctl("")
    with pytest.raises(KubeletNotBootstrapped, match="uses its attested certificate again"):
        machine.leave()
    require_as_before(machine)


def test_signal_puts_everything_back(machine: Machine) -> None:
    """As of a connection that ends while leave waits."""
    machine.let_systemctl(
        'test "$1" != restart -o -e hung-up || { touch hung-up; kill -HUP $PPID; }'
    )
    with pytest.raises(SystemExit):
        machine.leave()
    require_as_before(machine)


def test_systemctl_that_fails_is_named(machine: Machine) -> None:
    machine.let_systemctl('test "$1" = daemon-reload -o -e failed || { touch failed; exit 4; }')
    with pytest.raises(KubeletUnitUnchangeable, match="systemctl restart --no-block kubelet"):
        machine.leave()
    require_as_before(machine)


def test_leave_continues_after_a_power_cut(machine: Machine) -> None:
    machine.kubelet_conf.rename(machine.kept)
    machine.leave()
    assert machine.kubelet_conf.read_text(encoding="utf-8") == OF_THE_KUBELET
    assert not machine.kept.exists()


def test_drop_in_is_shown_again_and_another_file_of_its_name_is_kept(machine: Machine) -> None:
    kubelet_unit.hide_drop_in(machine.link)
    kubelet_unit.show_drop_in(machine.link)
    assert machine.calls == ["daemon-reload"] * 2
    machine.link.write_text("[Service]\n", encoding="utf-8")
    kubelet_unit.show_drop_in(machine.link)
    assert machine.link.read_text(encoding="utf-8") == "[Service]\n"
