"""The configuration of the signer, and the command line that names it."""

import base64
import re
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from signer.settings.arguments import COMMANDS
from signer.settings.config import ConfigError, Flags, load, load_policy_file
from tests.builders.signer_command import POLICY, connected, run


def policy_of(flags: Flags) -> Path:
    assert flags.policy is not None
    return flags.policy


def problems(flags: Flags) -> Sequence[str]:
    with pytest.raises(ConfigError) as caught:
        load(flags)
    return caught.value.problems


def test_everything_that_the_flags_name_is_loaded(flags: Flags) -> None:
    config = load(flags)
    assert config.management.server == "https://management.example:6443"
    assert config.policy_file is not None
    assert [p.name for p in config.policy_file.policies.accepted] == ["default"]
    assert set(config.policy_file.anchors) == {"default"}


def test_without_a_policy_file_the_policies_are_objects(flags: Flags) -> None:
    assert load(replace(flags, policy=None)).policy_file is None


def test_all_problems_are_reported_at_once(flags: Flags, tmp_path: Path) -> None:
    policy_of(flags).write_text("spec: {unknown: 1}")
    reported = problems(replace(flags, kubeconfig=tmp_path / "nothing"))
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


@pytest.mark.parametrize("content", [b"", b"\xff", b"{}"])
def test_an_empty_or_unreadable_policy_is_refused(flags: Flags, content: bytes) -> None:
    """Broken configuration must not fall back to approving defaults."""
    policy_of(flags).write_bytes(content)
    assert problems(flags)


def test_a_missing_file_of_authorities_is_reported(flags: Flags, tmp_path: Path) -> None:
    authorities = [str(tmp_path / "nothing.pem")]
    rules = {"trust": "Certified", "certificateAuthorities": authorities}
    policy_of(flags).write_text(yaml.safe_dump({**POLICY, "spec": {"endorsementKey": rules}}))
    (reported,) = problems(flags)
    assert reported.startswith("policy default: ")
    assert "nothing.pem" in reported
    with pytest.raises(ConfigError) as caught:
        load_policy_file(policy_of(flags))
    assert caught.value.problems == (reported,)


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


def test_check_config_prints_the_configuration_without_secrets(
    flags: Flags, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run(monkeypatch, "check-config", *connected(flags))
    assert (result.status, result.stderr) == (0, "")
    assert "management cluster: https://management.example:6443" in result.stdout
    assert "own namespace: attestation\nwatched namespace: all\n" in result.stdout
    assert "infrastructure groups: infrastructure.cluster.x-k8s.io\n" in result.stdout
    assert "policy default: every other Cluster, trust Registered" in result.stdout
    assert "PRIVATE" not in result.stdout


@pytest.mark.parametrize("command", [["check-config"], ["run"], []])
def test_an_invalid_configuration_ends_with_2(
    command: list[str], flags: Flags, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy_of(flags).write_text("")
    result = run(monkeypatch, *command, *connected(flags))
    assert (result.status, result.stdout) == (2, "")
    assert result.stderr.startswith(f"node-attestation-signer: {flags.policy}")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "is required outside of a pod"),
        (["run"], "is required outside of a pod"),
        (["verfy", "file.json"], "invalid choice: 'verfy' (choose from "),
        (["--unknown"], "unrecognized arguments: --unknown"),
        (["run", "--policy"], "argument --policy: expected one argument"),
    ],
)
def test_misuse_ends_with_2(
    arguments: list[str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong command used to be an argument of `run`, and the message asked for --policy."""
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
    result = run(monkeypatch, "check-config", "--policy", str(flags.policy))
    assert result.status == 2
    assert "serviceaccount" in result.stderr
    assert "--own-namespace Invalid: must be" in result.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_its_own_help(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own_flags = {"run": "--namespace", "check-config": "--namespace"}
    result = run(monkeypatch, command, "--help")
    assert (result.status, result.stderr) == (0, "")
    assert result.stdout.startswith(f"usage: node-attestation-signer {command} ")
    assert own_flags.get(command, "--objects") in result.stdout


def test_infrastructure_groups_replace_the_default_one(
    flags: Flags, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = ("--infrastructure-group", "a.example", "--infrastructure-group", "b.example")
    result = run(monkeypatch, "check-config", *connected(flags), *groups)
    assert "infrastructure groups: a.example, b.example\n" in result.stdout
