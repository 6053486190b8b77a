"""Runs Helm in an environment of its own, without the configuration of the user."""

import subprocess
import tempfile
from pathlib import Path
from typing import Final

from builders.chart import NAMESPACE, RELEASE
from builders.version import CHART
from tests.controlplane import pins, provide

VERSIONS: Final = ("helm3", "helm4")
__all__ = ["CHART", "NAMESPACE", "RELEASE", "VERSIONS", "HelmFailed", "helm", "template"]


class HelmFailed(Exception):
    """Helm ended with an error; the text is its stderr."""


def helm(version: str, *arguments: str | Path) -> str:
    """Run Helm of a major version, `helm3` or `helm4`, and return its stdout.

    Raises `HelmFailed`: it ended with an error.
    """
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            [provide.tool(version), *arguments],
            env={"HOME": home, "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        raise HelmFailed(done.stderr)
    return done.stdout


def template(version: str, *options: str | Path, chart: Path = CHART) -> str:
    """Render the chart for the Kubernetes version under test."""
    return helm(
        version, "template", RELEASE, chart, "--namespace", NAMESPACE,
        "--kube-version", pins.newest(), *options,
    )  # fmt: skip
