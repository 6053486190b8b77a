"""Calls of the signer's command in the process of a test."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from signer import cli
from signer.settings.config import Flags
from tests.harness import kubeconfig, pki


@pytest.fixture
def flags(tmp_path: Path) -> Flags:
    authority = pki.Authority.make("management", pki.ec_key())
    text = kubeconfig.with_certificate(
        "https://management.example:6443", authority.pair.certificate, authority.client("signer")
    )
    (tmp_path / "kubeconfig").write_text(text)
    return Flags(
        create_default_policy=False,
        kubeconfig=tmp_path / "kubeconfig",
        in_cluster_endpoint=None,
        own_namespace="node-attestation-system",
        watched_namespace="",
        infrastructure_groups=("infrastructure.cluster.x-k8s.io",),
        metrics_address=None,
        metrics_secure=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """Exit status and output of a command."""

    status: int
    stdout: str
    stderr: str


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> CommandResult:
    monkeypatch.setattr(sys, "argv", ["node-attestation-signer", *arguments])
    stdout, stderr = io.StringIO(), io.StringIO()
    with redirect_stdout(stdout), redirect_stderr(stderr):
        try:
            status = cli.main()
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else 1
    return CommandResult(status=status, stdout=stdout.getvalue(), stderr=stderr.getvalue())


def connected(flags: Flags) -> list[str]:
    """Return the flags without which nothing runs outside of a pod."""
    named = {"--kubeconfig": flags.kubeconfig}
    return [str(word) for flag in named.items() for word in flag] + [
        "--own-namespace",
        "attestation",
    ]
