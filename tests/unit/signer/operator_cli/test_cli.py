"""The command line of operators: commands, completion, and what the processes import."""

import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from common.errors import ApiServerUnavailable
from signer.operator_cli import cli, command_parser
from signer.operator_cli.commands.fleet import clusters, status
from signer.operator_cli.errors import ServerUnavailable
from signer.operator_cli.session import Session
from tests.harness.programs import SCRIPTS


@pytest.mark.parametrize("name", command_parser.COMMANDS)
def test_every_command_has_a_module(name: str) -> None:
    action = {"policy": "check", "pcrs": "review"}.get(name, "")
    command = cli.find_command(Namespace(command=name, action=action))
    module = f"{name}_{action}" if action else name.replace("-", "_")
    assert command.__module__.startswith("signer.operator_cli.commands.")
    assert command.__module__.rpartition(".")[2] == module


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["re"], ["register", "replace", "release", ":4"]),
        (["ban", "--re"], ["--reason", ":4"]),
        (["nodes", "-o", ""], ["table", "wide", "json", "yaml", "name", ":4"]),
        (["policy", "c"], ["check", ":4"]),
        (["problems", "--wa"], ["--watch", ":4"]),
        (["ban", "$(reboot) '", "--re"], ["--reason", ":4"]),
        (["register", "--inventory", "inv"], [":0"]),
        (["policy", "check", "inv"], [":0"]),
    ],
    ids=" ".join,
)
def test_words_are_completed(words: list[str], expected: list[str], tmp_path: Path) -> None:
    """As kubectl asks for them; with :0, the shell completes names of files.

    Otherwise it would end the word after the name of a directory.
    """
    (tmp_path / "inventories").mkdir()
    done = subprocess.run(
        [SCRIPTS / "kubectl_complete-attestation", *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout.splitlines() == expected


@pytest.mark.parametrize(
    "module",
    [
        "signer.cli",
        "authenticator.cli",
        "authenticator.launcher",
        "signer.operator_cli.command_parser",
    ],
)
def test_process_does_not_import_the_official_client(module: str) -> None:
    """Neither the signer nor the node is installed with it; completion would be slow with it."""
    program = (
        f"import sys, {module}; print('kubernetes' in sys.modules, 'signer.cli' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[0] == "False"


def test_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An installation without the extra has the script, but not the client."""
    monkeypatch.delitem(sys.modules, "signer.operator_cli.management.api", raising=False)
    monkeypatch.delattr("signer.operator_cli.management.api", raising=False)
    monkeypatch.setitem(sys.modules, "kubernetes.client", None)
    monkeypatch.setattr(sys, "argv", ["kubectl-attestation", "status"])
    assert cli.main() == 2
    assert "install the project with the extras `signer` and `operator`" in capsys.readouterr().err


def test_defect_of_the_program_is_not_a_no(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python would end with 1, which a script takes for the answer."""

    def fail(_: object) -> int:
        raise KeyError("defect")

    monkeypatch.setattr(status, "run", fail)
    monkeypatch.setattr(sys, "argv", ["kubectl-attestation", "status"])
    assert cli.main() == 3
    assert "KeyError: 'defect'" in capsys.readouterr().err


def test_outage_does_not_end_a_watch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dashboard was gone after one restart of the API server."""
    away = ServerUnavailable("no answer", hint="check the server")
    unread = ApiServerUnavailable("the answer cannot be read", detail="at `$.metadata`")
    outcomes: list[BaseException | int] = [0, away, away, unread, 0, 0, KeyboardInterrupt("end")]
    pauses: list[float] = []

    def run(session: Session) -> int:
        assert session.is_first_round is (not pauses)
        outcome = outcomes.pop(0)
        if isinstance(outcome, int):
            return outcome
        raise outcome

    monkeypatch.setattr(clusters, "run", run)
    monkeypatch.setattr("time.sleep", pauses.append)
    monkeypatch.setattr("signal.signal", print)
    monkeypatch.setattr(sys, "argv", ["kubectl-attestation", "clusters", "--watch"])
    with pytest.raises(KeyboardInterrupt):
        cli.main()
    assert pauses == [cli._WATCH_SECONDS] * 6
    assert capsys.readouterr().err.splitlines() == [
        "kubectl-attestation: no answer",
        "next step: check the server",
        "kubectl-attestation: the answer cannot be read at `$.metadata`",
        "the management cluster can be read again",
    ]


def test_watch_that_never_read_anything_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The kubeconfig may be the wrong one."""

    def run(_: Session) -> int:
        raise ServerUnavailable("no answer")

    monkeypatch.setattr(clusters, "run", run)
    monkeypatch.setattr("signal.signal", print)
    monkeypatch.setattr(sys, "argv", ["kubectl-attestation", "clusters", "--watch"])
    assert cli.main() == 3
    assert capsys.readouterr().err == "kubectl-attestation: no answer\n"


def test_mistyped_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command_parser.parse_arguments(["regsiter"])
    assert ended.value.code == 2
    assert "invalid choice: 'regsiter'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "listed"), [([], "list the Clusters"), (["pcrs"], "{review,accept,withdraw,import}")]
)
def test_missing_command_lists_the_commands(
    words: list[str], listed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said only that COMMAND is required."""
    with pytest.raises(SystemExit) as ended:
        command_parser.parse_arguments(words)
    assert ended.value.code == 2
    assert listed in capsys.readouterr().err
