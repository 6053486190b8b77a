"""join: what is planned, what is refused, and what is written; whole joins are in integration."""

import base64
import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from authenticator.commands import join
from authenticator.commands.join import JoinPlan
from authenticator.config import invocation, kubeconfig
from authenticator.config.arguments import parse_arguments
from authenticator.errors import (
    BootstrapCredentialUnusable,
    ConfigurationInvalid,
    KubeconfigNotOurs,
    KubeconfigUnusable,
    KubeconfigUnwritable,
)

CA = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
LAUNCHER = Path("/usr/bin/kubelet-authenticator-tpm")
CLUSTER: dict[str, Any] = {
    "server": "https://api.example:6443",
    "certificate-authority-data": base64.b64encode(CA.encode()).decode(),
    "tls-server-name": "kubernetes",
    "proxy-url": "http://proxy.example:3128",
}
EXEC = {"command": str(LAUNCHER), "apiVersion": "client.authentication.k8s.io/v1"}


@dataclass(frozen=True)
class Machine:
    """A machine's /etc/kubernetes."""

    folder: Path

    @property
    def kubelet_conf(self) -> Path:
        """The kubelet's kubeconfig."""
        return self.folder / "kubelet.conf"

    @property
    def bootstrap_conf(self) -> Path:
        """The bootstrap kubeconfig."""
        return self.folder / "bootstrap-kubelet.conf"

    def write(self, path: Path, user: dict[str, Any], **change: object) -> None:
        """Write a kubeconfig."""
        document = {
            "clusters": [{"name": "c", "cluster": CLUSTER | change}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(yaml.safe_dump(document), encoding="utf-8")

    def plan(self, *arguments: str) -> JoinPlan | None:
        """Plan a join."""
        given = (
            "join",
            f"--kubeconfig={self.kubelet_conf}",
            f"--bootstrap-kubeconfig={self.bootstrap_conf}",
            "--provider-id=test:///1",
            *arguments,
        )
        return join.plan_join(parse_arguments(given), LAUNCHER, "worker-1")

    def planned(self, *arguments: str) -> JoinPlan:
        """Plan a join that has something to do."""
        made = self.plan(*arguments)
        assert made is not None
        return made


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return a machine that kubeadm join has brought a bootstrap credential to."""
    made = Machine(tmp_path)
    made.write(made.bootstrap_conf, {"token": "abcdef.0123456789abcdef"})
    return made


def test_kubeconfig_runs_the_launcher_for_the_bootstrap_cluster(machine: Machine) -> None:
    document = yaml.safe_load(machine.planned("--timeout-seconds=30").content)
    found = document["clusters"][0]["cluster"]
    [extension] = found.pop("extensions")
    assert found == CLUSTER
    assert extension == {
        "name": "client.authentication.k8s.io/exec",
        "extension": {
            "bootstrapKubeconfig": str(machine.bootstrap_conf),
            "providerID": "test:///1",
            "timeoutSeconds": 30,
        },
    }
    assert document["users"][0]["user"] == {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(LAUNCHER),
            "interactiveMode": "Never",
            "provideClusterInfo": True,
        }
    }


def test_call_is_the_one_that_the_kubeconfig_leads_to(machine: Machine) -> None:
    made = machine.planned("--state-dir=/var/lib/a")
    join.write_kubeconfig(made, may_replace=False)
    found = invocation.invocation_from_kubeconfig(kubeconfig.load(machine.kubelet_conf))
    assert (found.exec_info, found.arguments) == (made.call.exec_info.raw, made.call.arguments)
    assert made.call.settings.state_dir == Path("/var/lib/a")
    assert made.call.settings.node_name == "worker-1"


def test_authority_in_a_file_is_written_inline(machine: Machine) -> None:
    (machine.folder / "ca.crt").write_text(CA, encoding="ascii")
    change = {"certificate-authority-data": None, "certificate-authority": "ca.crt"}
    machine.write(machine.bootstrap_conf, {"token": "a.b"}, **change)
    document = yaml.safe_load(machine.planned().content)
    assert document["clusters"][0]["cluster"]["certificate-authority-data"] == base64.b64encode(
        CA.encode()
    ).decode("ascii")


@pytest.mark.parametrize("tcti", ["n", "0x1f", "~", "ä", "\u2028", "\x7f", "\U0001f600", "<&>"])
def test_settings_survive_yaml(machine: Machine, tcti: str) -> None:
    made = machine.planned(f"--tcti={tcti}")
    [entry] = yaml.safe_load(made.content)["clusters"][0]["cluster"]["extensions"]
    assert entry["extension"]["tcti"] == tcti
    assert json.loads(made.call.exec_info.raw)["spec"]["cluster"]["config"]["tcti"] == tcti


def test_kubeconfig_is_private_and_whole(machine: Machine) -> None:
    made = machine.planned()
    join.write_kubeconfig(made, may_replace=False)
    assert stat.S_IMODE(machine.kubelet_conf.stat().st_mode) == 0o600
    assert machine.kubelet_conf.read_bytes() == made.content
    assert sorted(path.name for path in machine.folder.iterdir()) == [
        "bootstrap-kubelet.conf",
        "kubelet.conf",
    ]


def test_second_join_has_nothing_to_do(machine: Machine) -> None:
    join.write_kubeconfig(machine.planned(), may_replace=False)
    machine.bootstrap_conf.unlink()
    assert machine.plan() is None


def test_wrong_flag_is_told_where_there_is_nothing_to_do(machine: Machine) -> None:
    machine.write(machine.kubelet_conf, {"exec": EXEC})
    with pytest.raises(ConfigurationInvalid, match=r"'--whatever'; --tcti"):
        machine.plan("--tcti=", "--whatever")


OTHERS: dict[str, Callable[[Machine], object]] = {
    "certificate": lambda m: m.write(m.kubelet_conf, {"client-certificate": "/x"}),
    "another program": lambda m: m.write(m.kubelet_conf, {"exec": EXEC | {"command": "/x"}}),
    "a token beside ours": lambda m: m.write(m.kubelet_conf, {"exec": EXEC, "token": "a.b"}),
    "no kubeconfig": lambda m: m.kubelet_conf.write_text("surprise", encoding="utf-8"),
    "nothing at all": lambda m: m.kubelet_conf.touch(),
}


@pytest.mark.parametrize("other", OTHERS)
def test_other_credential_is_kept_until_told_otherwise(machine: Machine, other: str) -> None:
    OTHERS[other](machine)
    before = machine.kubelet_conf.read_bytes()
    with pytest.raises(KubeconfigNotOurs, match=r"join --replace"):
        machine.plan()
    with pytest.raises(KubeconfigNotOurs):
        join.write_kubeconfig(machine.planned("--replace"), may_replace=False)
    assert machine.kubelet_conf.read_bytes() == before
    made = machine.planned("--replace")
    assert made.call.settings.bootstrap_kubeconfig == machine.bootstrap_conf
    join.write_kubeconfig(made, may_replace=True)
    assert machine.kubelet_conf.read_bytes() == made.content


def test_credential_that_is_replaced_is_asked_with_where_there_is_no_other(
    machine: Machine,
) -> None:
    """As on a control plane node that kubeadm init made."""
    machine.bootstrap_conf.unlink()
    pair = {"client-certificate": "kubelet.pem", "client-key": "kubelet.pem"}
    machine.write(machine.kubelet_conf, pair, server="https://other.example")
    made = machine.planned("--replace")
    assert made.call.settings.bootstrap_kubeconfig == machine.kubelet_conf
    assert made.call.exec_info.server.url == "https://other.example"


def test_missing_bootstrap_kubeconfig_names_the_step(machine: Machine) -> None:
    machine.bootstrap_conf.unlink()
    for arguments in ((), ("--replace",)):
        with pytest.raises(BootstrapCredentialUnusable, match=r"bootstrap token, as kubeadm join"):
            machine.plan(*arguments)


@pytest.mark.parametrize(
    "change",
    [
        {"certificate-authority-data": ""},
        {"server": "http://api.example"},
        {"insecure-skip-tls-verify": True},
    ],
)
def test_cluster_that_cannot_be_trusted_is_refused(
    machine: Machine, change: dict[str, object]
) -> None:
    machine.write(machine.bootstrap_conf, {"token": "a.b"}, **change)
    with pytest.raises(KubeconfigUnusable, match=r"bootstrap-kubelet\.conf: "):
        machine.plan()


def test_kubeconfig_that_cannot_be_written_is_told(machine: Machine) -> None:
    made = machine.planned(f"--kubeconfig={machine.folder}/nowhere/kubelet.conf")
    with pytest.raises(KubeconfigUnwritable, match=r"nowhere/kubelet\.conf: No such file"):
        join.write_kubeconfig(made, may_replace=False)


def test_join_that_was_faster_is_not_undone(machine: Machine) -> None:
    made = machine.planned("--tcti=slow")
    join.write_kubeconfig(machine.planned("--tcti=fast"), may_replace=False)
    before = machine.kubelet_conf.read_bytes()
    join.write_kubeconfig(made, may_replace=False)
    assert machine.kubelet_conf.read_bytes() == before


def test_launcher_is_beside_the_full_program(tmp_path: Path) -> None:
    launcher = tmp_path / "kubelet-authenticator-tpm"
    launcher.touch(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "kubelet-authenticator-tpm-full")
    assert join.launcher_path(os.fspath(tmp_path / "link")) == launcher
    for unknown in (launcher, tmp_path / "cli.py", tmp_path / "other-full"):
        with pytest.raises(ConfigurationInvalid):
            join.launcher_path(os.fspath(unknown))
