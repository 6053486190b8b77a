"""A workstation with the programs that the documentation names, which trusts the rehearsal."""

import os
from pathlib import Path
from typing import Final

from tests.controlplane import pins, provide
from tests.harness.documentation import run_commands
from tests.release.rehearsal.stage import Stage

PASSWORD: Final = "rehearsal"
"""Of the private key, which is made for one rehearsal."""


class Workstation:
    """Runs commands in bash, in a directory of its own, without the user's configuration."""

    def __init__(self, stage: Stage, name: str) -> None:
        """Link the programs into a directory of PATH."""
        self.directory = stage.new_directory(name)
        programs = self.directory / "bin"
        programs.mkdir()
        assets = provide.kubernetes(
            os.environ.get("KUBERNETES_VERSION") or pins.newest(), provide.FEW
        )
        for program, path in {
            "kubectl": assets / "kubectl",
            "helm": provide.tool("helm4"),
            "cosign": provide.tool("cosign"),
        }.items():
            (programs / program).symlink_to(path)
        self.environment = {
            "PATH": f"{programs}:/usr/bin:/bin",
            "HOME": str(self.directory),
            "SSL_CERT_FILE": str(stage.authority_file),
            "COSIGN_PASSWORD": PASSWORD,
        }

    def run(self, script: str, **variables: str | Path) -> str:
        """Run commands, which stop at the first failure; return their output.

        Raises RuntimeError: a command has failed.
        """
        given = {name: str(value) for name, value in variables.items()}
        return run_commands(script, self.directory, self.environment | given)
