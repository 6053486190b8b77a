"""What the signer is told at its start: all problems at once, and nothing guessed."""

import base64
import io
import re
import socket
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from signer import cli
from signer.config import ConfigError, Flags, load, load_policy_file
from tests.harness import kubeconfig, pki

POLICY = {
    "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
    "kind": "KubeletAttestationPolicy",
    "metadata": {"name": "default"},
    "spec": {},
}


@pytest.fixture
def flags(tmp_path: Path) -> Flags:
    authority = pki.Authority.make("management", pki.ec_key())
    text = kubeconfig.with_certificate(
        "https://management.example:6443", authority.pair.certificate, authority.client("signer")
    )
    (tmp_path / "kubeconfig").write_text(text)
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(POLICY))
    return Flags(
        policy=tmp_path / "policy.yaml",
        namespace="node-attestation-system",
        kubeconfig=tmp_path / "kubeconfig",
        in_cluster_endpoint=None,
        metrics_address=None,
    )


def problems(flags: Flags) -> Sequence[str]:
    with pytest.raises(ConfigError) as caught:
        load(flags)
    return caught.value.problems


def test_everything_is_read(flags: Flags) -> None:
    config = load(flags)
    assert config.management.server == "https://management.example:6443"
    assert [p.name for p in config.policies.all()] == ["default"]
    assert set(config.anchors) == {"default"}


def test_all_problems_are_told_at_once(flags: Flags, tmp_path: Path) -> None:
    flags.policy.write_text("spec: {unknown: 1}")
    told = problems(replace(flags, kubeconfig=tmp_path / "nothing"))
    assert told[0] == f"{tmp_path / 'nothing'}: No such file or directory"
    assert len(told) > 2


def test_without_a_kubeconfig_a_pod_is_expected(flags: Flags) -> None:
    told = problems(replace(flags, kubeconfig=None))
    assert told == ("no --kubeconfig is given, and this is no pod of a cluster",)
    told = problems(replace(flags, kubeconfig=None, in_cluster_endpoint=("10.96.0.1", "443")))
    assert told == (
        "/var/run/secrets/kubernetes.io/serviceaccount: the service account's files cannot be read",
    )


def test_a_kubeconfig_that_cannot_be_used_is_told(flags: Flags) -> None:
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
def test_a_kubeconfig_that_openssl_cannot_use_is_told(
    flags: Flags, member: str, problem: str
) -> None:
    assert flags.kubeconfig is not None
    other = base64.b64encode(b"-----BEGIN NOTHING-----").decode()
    text = re.sub(f"{member}: .*", f"{member}: {other}", flags.kubeconfig.read_text())
    flags.kubeconfig.write_text(text)
    assert problems(flags) == (f"{flags.kubeconfig}: {problem}",)


@pytest.mark.parametrize("content", [b"", b"\xff", b"{}"])
def test_an_empty_or_unreadable_policy_lets_nobody_in(flags: Flags, content: bytes) -> None:
    """Broken configuration must not fall back to approving defaults."""
    flags.policy.write_bytes(content)
    assert problems(flags)


def certified(*authorities: Path) -> str:
    spec = {
        "endorsementKey": {
            "trust": "Certified",
            "certificateAuthorities": [str(path) for path in authorities],
        }
    }
    return yaml.safe_dump({**POLICY, "spec": spec})


def test_authorities_that_are_not_there_are_told(flags: Flags, tmp_path: Path) -> None:
    flags.policy.write_text(certified(tmp_path / "nothing.pem"))
    (told,) = problems(flags)
    assert told.startswith("policy default: ")
    assert "nothing.pem" in told
    with pytest.raises(ConfigError) as caught:
        load_policy_file(flags.policy)
    assert caught.value.problems == (told,)


def test_a_folder_of_no_authorities_lets_nobody_in(flags: Flags, tmp_path: Path) -> None:
    """A bundle of nothing refuses to start."""
    (tmp_path / "empty").mkdir()
    flags.policy.write_text(certified(tmp_path / "empty"))
    assert problems(flags)


def test_no_revocation_lists_where_there_should_be_let_nobody_in(
    flags: Flags, tmp_path: Path
) -> None:
    """None would mean that nothing is revoked."""
    folder, lists = tmp_path / "authorities", tmp_path / "lists"
    folder.mkdir()
    lists.mkdir()
    root = pki.Authority.make("TPM maker", pki.ec_key()).pair.certificate
    (folder / "root.pem").write_bytes(root)
    document = yaml.safe_load(certified(folder))
    document["spec"]["endorsementKey"]["certificateRevocationLists"] = [str(lists)]
    flags.policy.write_text(yaml.safe_dump(document))
    assert problems(flags) == ("policy default: there is no revocation list where the policy says",)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9443", ("127.0.0.1", 9443)),
        ("[::1]:9443", ("::1", 9443)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),  # noqa: S104 - only read
        ("host:65535", ("host", 65535)),
    ],
)
def test_an_address_for_metrics_is_read(flags: Flags, text: str, address: tuple[str, int]) -> None:
    assert load(replace(flags, metrics_address=text)).metrics_address == address


@pytest.mark.parametrize(
    "text", ["", "9443", ":9443", "host:", "host:x", "host:65536", "h:-1", "host:\u0664\u0664"]
)
def test_what_is_no_address_for_metrics_is_told(flags: Flags, text: str) -> None:
    (told,) = problems(replace(flags, metrics_address=text))
    assert told == f"--metrics-address {text}: not HOST:PORT"


def test_an_address_that_is_taken_ends_the_start(
    flags: Flags, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = run(
            monkeypatch,
            *("--policy", str(flags.policy), "--kubeconfig", str(flags.kubeconfig)),
            *("--metrics-address", f"127.0.0.1:{taken.getsockname()[1]}"),
        )
    assert ended.status == 1
    assert ended.complaint.endswith("--metrics-address: Address already in use\n")


def test_a_mounted_folder_is_read_without_its_hidden_part(flags: Flags, tmp_path: Path) -> None:
    """A ConfigMap's files are links beside hidden folders that hold each version of them."""
    folder = tmp_path / "mounted"
    (folder / "..2026").mkdir(parents=True)
    root = pki.Authority.make("TPM maker", pki.ec_key()).pair.certificate
    (folder / "..2026" / "root.pem").write_bytes(root)
    (folder / "..data").symlink_to("..2026")
    (folder / "root.pem").symlink_to("..data/root.pem")
    (folder / ".hidden").write_text("no certificate")
    flags.policy.write_text(certified(folder))
    assert len(load(flags).anchors["default"].roots) == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a command ended."""

    status: int
    output: str
    complaint: str


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Ended:
    monkeypatch.setattr(sys, "argv", ["node-attestation-signer", *arguments])
    output, complaint = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(complaint):
        try:
            status = cli.main()
        except SystemExit as e:
            status = e.code if isinstance(e.code, int) else 1
    return Ended(status=status, output=output.getvalue(), complaint=complaint.getvalue())


def test_configuration_can_be_checked_without_effects(
    flags: Flags, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = ("--policy", str(flags.policy), "--kubeconfig", str(flags.kubeconfig))
    ended = run(monkeypatch, "check-config", *common)
    assert (ended.status, ended.complaint) == (0, "")
    assert "management cluster: https://management.example:6443" in ended.output
    assert "policy default: every other Cluster, trust Registered" in ended.output
    assert "PRIVATE" not in ended.output


@pytest.mark.parametrize("command", [["check-config"], ["run"], []])
def test_wrong_configuration_ends_every_command_with_2(
    command: list[str], flags: Flags, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags.policy.write_text("")
    common = ("--policy", str(flags.policy), "--kubeconfig", str(flags.kubeconfig))
    ended = run(monkeypatch, *command, *common)
    assert (ended.status, ended.output) == (2, "")
    assert ended.complaint.startswith(f"node-attestation-signer: {flags.policy}")


@pytest.mark.parametrize("arguments", [[], ["run"], ["fly"], ["--unknown"], ["run", "--policy"]])
def test_misuse_ends_with_2(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, *arguments).status == 2


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"]])
def test_help_is_not_misuse(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    ended = run(monkeypatch, *arguments)
    assert (ended.status, ended.complaint) == (0, "")
    assert ended.output


def test_nothing_of_the_environment_counts_but_the_pods_api_server(
    flags: Flags, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setenv("KUBECONFIG", str(flags.kubeconfig))
    ended = run(monkeypatch, "check-config", "--policy", str(flags.policy))
    assert ended.status == 2
    assert "serviceaccount" in ended.complaint
