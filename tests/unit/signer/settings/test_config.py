"""The configuration of the signer, and the command line that names it."""

import base64
import re
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from signer import cli
from signer.settings.arguments import COMMANDS, parse_arguments
from signer.settings.config import ConfigError, Flags, load
from tests.builders.signer_command import connected, run


def problems(flags: Flags) -> Sequence[str]:
    with pytest.raises(ConfigError) as caught:
        load(flags)
    return caught.value.problems


def test_all_problems_are_reported_at_once(flags: Flags, tmp_path: Path) -> None:
    wrong = replace(
        flags, kubeconfig=tmp_path / "nothing", metrics_address="x", watched_namespace="A"
    )
    reported = problems(wrong)
    assert reported[0] == f"{tmp_path / 'nothing'}: No such file or directory"
    assert len(reported) > 2


def test_a_kubeconfig_is_required_outside_of_a_pod(flags: Flags) -> None:
    reported = problems(replace(flags, kubeconfig=None))
    assert reported == ("--kubeconfig is required outside of a pod",)
    in_pod = replace(flags, kubeconfig=None, in_cluster_endpoint=("10.96.0.1", "443"))
    assert problems(in_pod) == (
        "/var/run/secrets/kubernetes.io/serviceaccount: the service account's files cannot be read",
    )


def test_the_own_namespace_is_required_outside_of_a_pod(flags: Flags) -> None:
    assert problems(replace(flags, own_namespace=None)) == (
        "--own-namespace or POD_NAMESPACE is required outside of a pod",
    )


def test_the_own_namespace_is_by_default_that_of_the_service_account(
    flags: Flags, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signer.settings.config.SERVICE_ACCOUNT", tmp_path)
    (tmp_path / "namespace").write_text("attestation")
    assert load(replace(flags, own_namespace=None)).own_namespace == "attestation"
    assert load(flags).own_namespace == "node-attestation-system"


@pytest.mark.parametrize("name", ["", "Team", "a/b", "a.b", "-a", "a" * 64])
def test_an_invalid_own_namespace_is_reported(flags: Flags, name: str) -> None:
    (reported,) = problems(replace(flags, own_namespace=name))
    assert reported == f"--own-namespace {name}: must be the name of a namespace"


def test_all_namespaces_are_watched_unless_one_is_named(flags: Flags) -> None:
    assert load(flags).watched_namespace == ""
    assert load(replace(flags, watched_namespace="team-a")).watched_namespace == "team-a"
    (reported,) = problems(replace(flags, watched_namespace="../kube-system"))
    assert reported == "--namespace ../kube-system: must be the name of a namespace"


@pytest.mark.parametrize("group", ["", "Infra", "a/b", "a..", "a" * 254])
def test_an_invalid_infrastructure_group_is_reported(flags: Flags, group: str) -> None:
    (reported,) = problems(replace(flags, infrastructure_groups=(group,)))
    assert reported == f"--infrastructure-group {group}: must be the name of an API group"


def test_a_kubeconfig_that_is_not_accepted_is_reported(flags: Flags) -> None:
    assert flags.kubeconfig is not None
    text = flags.kubeconfig.read_text().replace("server: https", "server: http")
    flags.kubeconfig.write_text(text)
    assert problems(flags) == (f"{flags.kubeconfig}: server must start with https://",)


@pytest.mark.parametrize(
    ("member", "problem"),
    [
        ("certificate-authority-data", "the server's CA must be a list of PEM certificates"),
        ("client-key-data", "the client certificate and its key cannot be used"),
    ],
)
def test_a_kubeconfig_that_openssl_cannot_use_is_reported(
    flags: Flags, member: str, problem: str
) -> None:
    assert flags.kubeconfig is not None
    other = base64.b64encode(b"-----BEGIN NOTHING-----").decode()
    text = re.sub(f"{member}: .*", f"{member}: {other}", flags.kubeconfig.read_text())
    flags.kubeconfig.write_text(text)
    assert problems(flags) == (f"{flags.kubeconfig}: {problem}",)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9443", ("127.0.0.1", 9443)),
        ("[::1]:9443", ("::1", 9443)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),  # noqa: S104 - only parsed
        ("host:65535", ("host", 65535)),
    ],
)
def test_a_metrics_address_is_parsed(flags: Flags, text: str, address: tuple[str, int]) -> None:
    assert load(replace(flags, metrics_address=text)).metrics_address == address


@pytest.mark.parametrize(
    "text", ["", "9443", ":9443", "host:", "host:x", "host:65536", "h:-1", "host:\u0664\u0664"]
)
def test_an_invalid_metrics_address_is_reported(flags: Flags, text: str) -> None:
    (reported,) = problems(replace(flags, metrics_address=text))
    assert reported == f"--metrics-address {text}: must be HOST:PORT"


def test_a_metrics_address_in_use_ends_the_program(
    flags: Flags, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        address = f"127.0.0.1:{used.getsockname()[1]}"
        result = run(monkeypatch, *connected(flags), "--metrics-address", address)
    assert result.status == 1
    assert result.stderr.endswith("--metrics-address: Address already in use\n")


@pytest.mark.parametrize("command", [["run"], []])
def test_an_invalid_configuration_ends_with_2(
    command: list[str], flags: Flags, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert flags.kubeconfig is not None
    flags.kubeconfig.write_text("")
    result = run(monkeypatch, *command, *connected(flags))
    assert (result.status, result.stdout) == (2, "")
    assert result.stderr.startswith(f"node-attestation-signer: {flags.kubeconfig}")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "is required outside of a pod"),
        (["run"], "is required outside of a pod"),
        (["verfy", "file.json"], "invalid choice: 'verfy' (choose from "),
        (["--policy", "file.yaml"], "unrecognized arguments: --policy file.yaml"),
    ],
)
def test_misuse_ends_with_2(
    arguments: list[str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong command is no argument of `run`, and no file replaces the policies."""
    result = run(monkeypatch, *arguments)
    assert result.status == 2
    assert problem in result.stderr


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_help_and_version_are_printed(flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, flag)
    assert (result.status, result.stderr) == (0, "")
    assert result.stdout


def test_only_the_pods_own_variables_of_the_environment_count(
    flags: Flags, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setenv("POD_NAMESPACE", "Invalid")
    monkeypatch.setenv("KUBECONFIG", str(flags.kubeconfig))
    result = run(monkeypatch, "run")
    assert result.status == 2
    assert "serviceaccount" in result.stderr
    assert "--own-namespace Invalid: must be" in result.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_its_own_help(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own_flags = {"run": "--namespace"}
    result = run(monkeypatch, command, "--help")
    assert (result.status, result.stderr) == (0, "")
    assert result.stdout.startswith(f"usage: node-attestation-signer {command} ")
    assert own_flags.get(command, "--objects") in result.stdout


def test_infrastructure_groups_replace_the_default_one() -> None:
    groups = ("--infrastructure-group", "a.example", "--infrastructure-group", "b.example")
    for arguments, expected in (
        ((), ("infrastructure.cluster.x-k8s.io",)),
        (groups, ("a.example", "b.example")),
    ):
        flags = cli._flags(parse_arguments(["run", *arguments]), {})
        assert flags.infrastructure_groups == expected
