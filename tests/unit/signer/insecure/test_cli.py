"""The command line of the insecure signer accepts nothing by accident."""

import sys
from datetime import timedelta

import pytest

from signer.insecure import cli
from signer.insecure.cli import build_parser
from signer.kinds.cluster import ClusterKey


def test_clusters_are_listed_and_certificates_last_a_year() -> None:
    arguments = build_parser().parse_args(["--cluster", "a/b", "--cluster", "c/d"])
    assert arguments.clusters == [
        ClusterKey(namespace="a", name="b"),
        ClusterKey(namespace="c", name="d"),
    ]
    assert arguments.certificate_lifetime == timedelta(days=365)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "the following arguments are required: --cluster"),
        (["--cluster", "b"], "must be NAMESPACE/NAME"),
        (["--cluster", "a/b", "--certificate-lifetime", "1y"], "at least 10m"),
        (["--cluster", "a/b", "--certificate-lifetime", "9m"], "at least 10m"),
    ],
)
def test_wrong_command_line_is_refused(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        build_parser().parse_args(arguments)
    assert exit_info.value.code == 2
    assert problem in capsys.readouterr().err


def test_missing_connection_is_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["program", "--cluster", "a/b"])
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert cli.main() == 2
    assert "--kubeconfig is required outside of a pod" in capsys.readouterr().err
