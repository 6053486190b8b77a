"""join: what it plans, refuses and writes. Whole joins are in tests/integration."""

import base64
import io
import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

from authenticator.commands import join, join_copied, kubelet_unit
from authenticator.commands.join import JoinPlan
from authenticator.commands.run import CommandContext
from authenticator.config import invocation, kubeconfig
from authenticator.config.command_line import Arguments, parse_arguments
from authenticator.errors import (
    BootstrapCredentialUnusable,
    ConfigurationInvalid,
    CoolingDown,
    KubeconfigNotOurs,
    KubeconfigUnusable,
    KubeconfigUnwritable,
)
from authenticator.state.credential import Credential
from tests.builders import credentials
from tests.builders import kubeconfigs as builders

CA = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
OTHER_CA = CA.replace("AAAA", "BBBB")
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
    """A machine with /etc/kubernetes."""

    directory: Path

    @property
    def kubelet_conf(self) -> Path:
        return self.directory / "kubelet.conf"

    @property
    def kept(self) -> Path:
        return self.directory / "kubelet.conf.attested"

    @property
    def link(self) -> Path:
        return self.directory / "kubelet.service.d/zz-20-kubelet-authenticator-tpm.conf"

    @property
    def bootstrap_conf(self) -> Path:
        return self.directory / "bootstrap-kubelet.conf"

    def write(self, path: Path, user: dict[str, Any], **change: object) -> None:
        document = builders.kubeconfig(user, CLUSTER | change)
        path.write_text(yaml.safe_dump(document), encoding="utf-8")

    def arguments(self, *arguments: str) -> Arguments:
        return parse_arguments(
            (
                "join",
                f"--kubeconfig={self.kubelet_conf}",
                f"--bootstrap-kubeconfig={self.bootstrap_conf}",
                "--provider-id=test:///1",
                *arguments,
            )
        )

    def plan(self, *arguments: str) -> JoinPlan | None:
        return join.plan_join(self.arguments(*arguments), LAUNCHER, "worker-1")

    def run(self, *arguments: str) -> None:
        given, out = self.arguments(*arguments), io.StringIO()
        context = CommandContext(arguments=given, exec_info=None, program="", out=out)
        assert join.run(context) == 0

    def require_plan(self, *arguments: str) -> JoinPlan:
        """Plan a join that has work to do."""
        plan = self.plan(*arguments)
        assert plan is not None
        return plan


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return a machine on which kubeadm join has written the bootstrap kubeconfig."""
    machine = Machine(tmp_path)
    machine.write(machine.bootstrap_conf, {"token": "abcdef.0123456789abcdef"})
    return machine


def test_kubeconfig_runs_the_launcher_for_the_bootstrap_cluster(machine: Machine) -> None:
    document = yaml.safe_load(machine.require_plan("--timeout-seconds=30").content)
    cluster = document["clusters"][0]["cluster"]
    [extension] = cluster.pop("extensions")
    assert cluster == CLUSTER
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


def test_certificate_is_for_the_call_of_the_kubeconfig(machine: Machine) -> None:
    plan = machine.require_plan("--state-dir=/var/lib/a")
    join.write_kubeconfig(plan, may_replace=False)
    call = invocation.call_of_kubeconfig(kubeconfig.load(machine.kubelet_conf))
    assert (call.exec_info, call.arguments) == (plan.call.exec_info.raw, plan.call.arguments)
    assert plan.call.settings.state_dir == Path("/var/lib/a")
    assert plan.call.settings.node_name == "worker-1"


def test_proxy_is_written_for_the_program_and_the_kubelet(machine: Machine) -> None:
    """HTTPS_PROXY is not used."""
    plan = machine.require_plan("--proxy-url=http://other.example:3128")
    [cluster] = yaml.safe_load(plan.content)["clusters"]
    assert cluster["cluster"]["proxy-url"] == "http://other.example:3128"
    assert plan.call.exec_info.server.proxy == "http://other.example:3128"
    with pytest.raises(KubeconfigUnusable, match="proxy-url must be an http or https URL"):
        machine.plan("--proxy-url=socks5://other.example")


def test_ca_in_a_file_is_written_inline(machine: Machine) -> None:
    (machine.directory / "ca.crt").write_text(CA, encoding="ascii")
    change = {"certificate-authority-data": None, "certificate-authority": "ca.crt"}
    machine.write(machine.bootstrap_conf, {"token": "a.b"}, **change)
    document = yaml.safe_load(machine.require_plan().content)
    assert document["clusters"][0]["cluster"]["certificate-authority-data"] == base64.b64encode(
        CA.encode()
    ).decode("ascii")


@pytest.mark.parametrize("tcti", ["n", "0x1f", "~", "ä", "\u2028", "\x7f", "\U0001f600", "<&>"])
def test_settings_survive_yaml(machine: Machine, tcti: str) -> None:
    plan = machine.require_plan(f"--tcti={tcti}")
    [entry] = yaml.safe_load(plan.content)["clusters"][0]["cluster"]["extensions"]
    assert entry["extension"]["tcti"] == tcti
    assert json.loads(plan.call.exec_info.raw)["spec"]["cluster"]["config"]["tcti"] == tcti


def test_kubeconfig_is_private_and_complete(machine: Machine) -> None:
    plan = machine.require_plan()
    join.write_kubeconfig(plan, may_replace=False)
    assert stat.S_IMODE(machine.kubelet_conf.stat().st_mode) == 0o600
    assert machine.kubelet_conf.read_bytes() == plan.content
    assert sorted(path.name for path in machine.directory.iterdir()) == [
        "bootstrap-kubelet.conf",
        "kubelet.conf",
    ]


def test_second_join_has_nothing_to_do(machine: Machine) -> None:
    join.write_kubeconfig(machine.require_plan(), may_replace=False)
    machine.bootstrap_conf.unlink()
    assert machine.plan() is None


def test_wrong_flag_is_an_error_although_there_is_nothing_to_do(machine: Machine) -> None:
    machine.write(machine.kubelet_conf, {"exec": EXEC})
    with pytest.raises(ConfigurationInvalid, match=r"'--whatever' of join; --tcti"):
        machine.plan("--tcti=", "--whatever")


OTHERS: dict[str, Callable[[Machine], object]] = {
    "certificate": lambda m: m.write(m.kubelet_conf, {"client-certificate": "/x"}),
    "another program": lambda m: m.write(m.kubelet_conf, {"exec": EXEC | {"command": "/x"}}),
    "a token in addition to our program": lambda m: m.write(
        m.kubelet_conf, {"exec": EXEC, "token": "a.b"}
    ),
    "no kubeconfig": lambda m: m.kubelet_conf.write_text("surprise", encoding="utf-8"),
    "an empty file": lambda m: m.kubelet_conf.touch(),
}


@pytest.mark.parametrize("other", OTHERS)
def test_other_credential_is_replaced_only_with_the_flag_replace(
    machine: Machine, other: str
) -> None:
    OTHERS[other](machine)
    before = machine.kubelet_conf.read_bytes()
    with pytest.raises(KubeconfigNotOurs, match=r"join --replace"):
        machine.plan()
    with pytest.raises(KubeconfigNotOurs):
        join.write_kubeconfig(machine.require_plan("--replace"), may_replace=False)
    assert machine.kubelet_conf.read_bytes() == before
    plan = machine.require_plan("--replace")
    assert plan.call.settings.bootstrap_kubeconfig == machine.bootstrap_conf
    join.write_kubeconfig(plan, may_replace=True)
    assert machine.kubelet_conf.read_bytes() == plan.content


def test_replaced_credential_requests_where_there_is_no_bootstrap_kubeconfig(
    machine: Machine,
) -> None:
    """As on a control plane node that kubeadm init has created."""
    machine.bootstrap_conf.unlink()
    pair = {"client-certificate": "kubelet.pem", "client-key": "kubelet.pem"}
    machine.write(machine.kubelet_conf, pair, server="https://other.example")
    plan = machine.require_plan("--replace")
    assert plan.call.settings.bootstrap_kubeconfig == machine.kubelet_conf
    assert plan.call.exec_info.server.url == "https://other.example"


def test_entry_kubeconfig_alone_starts_no_join(machine: Machine) -> None:
    """The image may have it before kubeadm runs, and kubeadm refuses an existing kubelet.conf."""
    machine.bootstrap_conf.rename(machine.directory / "entry-kubelet.conf")
    with pytest.raises(BootstrapCredentialUnusable):
        machine.plan()


SHARED = "https://control-plane.example:6443"


def test_join_of_a_control_plane_node_uses_the_server_of_admin_conf(machine: Machine) -> None:
    """In kubeadm's local mode the bootstrap kubeconfig names a server that does not run yet."""
    machine.write(machine.directory / "admin.conf", {"token": "admin"}, server=SHARED)
    plan = machine.require_plan()
    assert plan.call.exec_info.server.url == SHARED
    assert plan.call.exec_info.server.proxy == CLUSTER["proxy-url"]
    assert plan.call.settings.bootstrap_kubeconfig == machine.bootstrap_conf
    assert yaml.safe_load(plan.content)["clusters"][0]["cluster"] == {
        **CLUSTER,
        "extensions": yaml.safe_load(plan.content)["clusters"][0]["cluster"]["extensions"],
    }
    assert SHARED not in plan.call.exec_info.raw.decode(), "the kubelet keeps the local server"
    assert "admin" not in plan.content.decode() + plan.call.exec_info.raw.decode()


@pytest.mark.parametrize(
    "change",
    [
        {"certificate-authority-data": base64.b64encode(OTHER_CA.encode()).decode()},
        {"certificate-authority-data": ""},
        {"insecure-skip-tls-verify": True},
        {"server": "http://control-plane.example"},
    ],
    ids=["other CA", "no CA", "insecure", "no TLS"],
)
def test_admin_conf_of_another_cluster_is_ignored(
    machine: Machine, change: dict[str, object]
) -> None:
    given = {"server": SHARED, **change}
    machine.write(machine.directory / "admin.conf", {"token": "admin"}, **given)
    assert machine.require_plan().call.exec_info.server.url == CLUSTER["server"]


def test_unreadable_admin_conf_is_ignored(machine: Machine) -> None:
    (machine.directory / "admin.conf").write_text("surprise", encoding="utf-8")
    assert machine.require_plan().call.exec_info.server.url == CLUSTER["server"]


def test_missing_bootstrap_kubeconfig_names_the_next_step(machine: Machine) -> None:
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


def test_unwritable_kubeconfig_is_an_error(machine: Machine) -> None:
    plan = machine.require_plan(f"--kubeconfig={machine.directory}/nowhere/kubelet.conf")
    with pytest.raises(KubeconfigUnwritable, match=r"nowhere/kubelet\.conf: No such file"):
        join.write_kubeconfig(plan, may_replace=False)


def test_kubeconfig_of_a_concurrent_join_is_not_replaced(machine: Machine) -> None:
    plan = machine.require_plan("--tcti=slow")
    join.write_kubeconfig(machine.require_plan("--tcti=fast"), may_replace=False)
    before = machine.kubelet_conf.read_bytes()
    join.write_kubeconfig(plan, may_replace=False)
    assert machine.kubelet_conf.read_bytes() == before


def test_launcher_is_in_the_directory_of_the_full_program(tmp_path: Path) -> None:
    launcher = tmp_path / "kubelet-authenticator-tpm"
    launcher.touch(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "kubelet-authenticator-tpm-full")
    assert join.launcher_path(os.fspath(tmp_path / "link")) == launcher
    for unknown in (launcher, tmp_path / "cli.py", tmp_path / "other-full"):
        with pytest.raises(ConfigurationInvalid):
            join.launcher_path(os.fspath(unknown))


@pytest.fixture
def left(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a machine that has left, whose join gets a certificate."""

    def obtain(plan: JoinPlan, *, may_replace: bool) -> Credential:
        assert machine.link.is_symlink(), "the drop-in is shown when the kubeconfig is written"
        join.write_kubeconfig(plan, may_replace=may_replace)
        return credentials.make(0)

    machine.write(machine.kubelet_conf, {"client-certificate": "/x", "client-key": "/x"})
    machine.link.parent.mkdir()
    machine.link.symlink_to(os.devnull)
    systemctl = machine.directory / "systemctl"
    systemctl.write_text("#!/bin/sh\n", encoding="ascii")
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", str(machine.directory), prepend=os.pathsep)
    monkeypatch.setattr(kubelet_unit, "HIDING_LINK", machine.link)
    monkeypatch.setattr(join, "launcher_path", lambda _: LAUNCHER)
    monkeypatch.setattr(join_copied, "rejoin_if_copied", lambda _: None)
    monkeypatch.setattr(join, "_join", obtain)
    return machine


def test_interrupted_leave_ends_with_a_join(left: Machine) -> None:
    left.write(left.kept, {"exec": EXEC})
    left.run()
    assert join.runs_this_program(left.kubelet_conf)
    assert not left.kept.exists(), "a later leave would put it back"
    assert not os.path.lexists(left.link)


def test_join_that_has_nothing_to_do_ends_an_interrupted_leave(left: Machine) -> None:
    for path in (left.kubelet_conf, left.kept):
        left.write(path, {"exec": EXEC})
    left.run()
    assert not left.kept.exists()
    assert not os.path.lexists(left.link)


def test_node_that_has_left_is_not_joined_without_the_flag_replace(left: Machine) -> None:
    with pytest.raises(KubeconfigNotOurs, match="join --replace"):
        left.run()


def test_drop_in_stays_hidden_while_join_gets_no_certificate(
    left: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the drop-in, the kubelet would not renew the certificate of its own."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise CoolingDown("the signer is down")

    monkeypatch.setattr(join, "_join", fail)
    with pytest.raises(CoolingDown, match="the signer is down"):
        left.run("--replace")
    assert kubelet_unit.is_hidden(left.link)
