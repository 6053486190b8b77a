"""Common code of the subcommands: the watchdog, and output that cannot control a terminal."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from authenticator.commands.run import CommandContext, escape_unprintable
from authenticator.config.command_line import Arguments

FULL_PROGRAM = Path(sys.prefix, "bin", "kubelet-authenticator-tpm-full")
HANGING = """\
import importlib, sys
from authenticator import cli
from authenticator.commands import run
run.WATCHDOG_SECONDS = 0.2
command = importlib.import_module(f"authenticator.commands.{sys.argv[1].replace('-', '_')}")
for name in ("TIMEOUT_SECONDS", "RESOLVE_SECONDS"):
    if hasattr(command, name):
        setattr(command, name, 0)
sys.argv[0] = sys.argv.pop(2)
print("running", flush=True)
sys.exit(cli.run(sys.argv[1:], {}))
"""


@pytest.mark.parametrize(
    "command", ["status", "doctor", "endorsement-key", "renew", "serving", "join"]
)
def test_command_that_hangs_is_ended_by_its_watchdog(tmp_path: Path, command: str) -> None:
    """Opening a pipe without a writer blocks, and no timeout applies."""
    pipe = tmp_path / "kubelet.conf"
    os.mkfifo(pipe)
    flags = [f"--kubeconfig={pipe}", f"--bootstrap-kubeconfig={pipe}", f"--state-dir={tmp_path}/s"]
    if command == "status":
        flags.pop()
    elif command == "join":
        flags[0] = f"--kubeconfig={tmp_path}/none"
    result = subprocess.run(
        [sys.executable, "-c", HANGING, command, FULL_PROGRAM, *flags],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stdout) == (1, "running\n")
    assert "DeadlinePassed" in result.stderr


def test_output_cannot_control_a_terminal() -> None:
    assert escape_unprintable("a\x1b[2J\tb\u202e\n") == "a\\x1b[2J\\tb\\u202e\n"
    out = io.StringIO()
    context = CommandContext(arguments=Arguments(), exec_info=None, program="", out=out)
    context.print_document({}, "message: \x1b[2J\n")
    assert out.getvalue() == "message: \\x1b[2J\n"
