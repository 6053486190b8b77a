"""The operator's workstation: the files of a release, kubectl, clusterctl, and a kubeconfig."""

import os
import shutil
from pathlib import Path
from typing import Final

from tests.controlplane import provide
from tests.harness.documentation import run_commands
from tests.packaging.newcomer.clusters import CLUSTER, NAMESPACE, Clusters
from tests.packaging.newcomer.machine import NAME

_PACKAGE_INDEX: Final = ("PIP_", "SSL_CERT_", "PYENV_")
"""Beginnings of the variables with this machine's Python and its way to the package index."""


class Workstation:
    """Runs the commands of the page in one directory."""

    def __init__(self, directory: Path, release: Path, clusters: Clusters) -> None:
        """Copy the files of the release, as a download does."""
        self._directory = directory
        shutil.copytree(release, directory)
        programs = directory / "bin"
        programs.mkdir()
        (programs / "kubectl").symlink_to(clusters.management.assets / "kubectl")
        (programs / "clusterctl").symlink_to(provide.tool("clusterctl"))
        inherited = {k: v for k, v in os.environ.items() if k.startswith(_PACKAGE_INDEX)}
        self._environment = inherited | {
            # The directory of the commands that the page unpacks comes first.
            "PATH": f"{directory / 'operator'}:{programs}:{os.environ['PATH']}",
            "HOME": str(directory),
            "KUBECONFIG": str(clusters.management.admin_config),
            "NAMESPACE": NAMESPACE,
            "CLUSTER": CLUSTER,
            "NODE": NAME,
        }

    def write(self, name: str, text: str) -> None:
        """Write a file."""
        (self._directory / name).write_text(text, encoding="utf-8")

    def run(self, script: str) -> str:
        """Run commands in bash, which stops at the first failure; return their output."""
        return run_commands(script, self._directory, self._environment)
