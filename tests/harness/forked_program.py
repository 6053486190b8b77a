"""Calls the node's full program in a process that is forked from one that has loaded it.

A new interpreter takes ten times as long to import the program as most calls take. Tests of the
launcher, of inherited descriptors and of background runs start the installed program instead.
"""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from authenticator import cli

FULL_PROGRAM = Path(sys.prefix, "bin", "kubelet-authenticator-tpm-full")
_LOADED = (
    "authenticator.cli",
    "authenticator.wiring",
    "authenticator.enroll.exchange",
    "authenticator.tpm.open_tpm",
    *(
        f"authenticator.commands.{name}"
        for name in ("doctor", "endorsement_key", "join", "renew", "serving", "status")
    ),
)

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(list(_LOADED))


def call(
    *arguments: str, environment: Mapping[str, str], seconds: float
) -> subprocess.CompletedProcess[str]:
    """Call the program; return its exit code and output. Raises TimeoutError."""
    with TemporaryDirectory() as directory:
        output, errors = Path(directory, "stdout"), Path(directory, "stderr")
        process = _context.Process(
            target=_main, args=(arguments, dict(environment), output, errors), daemon=True
        )
        process.start()
        process.join(seconds)
        if process.exitcode is None:
            process.kill()
            raise TimeoutError(f"{arguments} took longer than {seconds:g} s")
        return subprocess.CompletedProcess(
            arguments, process.exitcode, output.read_text(), errors.read_text()
        )


def _main(
    arguments: tuple[str, ...], environment: dict[str, str], output: Path, errors: Path
) -> None:
    """Become the program: its arguments, environment and standard streams."""
    sys.argv = [str(FULL_PROGRAM), *arguments]
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, path in ((1, output), (2, errors)):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.exit(cli.main())
