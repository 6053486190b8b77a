"""Runs promtool, the checker of Prometheus."""

import subprocess
from pathlib import Path

from tests.controlplane import provide


class PromtoolFailed(Exception):
    """Promtool found a mistake; the text is its output."""


def promtool(*arguments: str | Path, stdin: str = "") -> str:
    """Run promtool and return its stdout. Raises `PromtoolFailed`: it ended with an error."""
    done = subprocess.run(
        [provide.tool("promtool"), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise PromtoolFailed(done.stdout + done.stderr)
    return done.stdout
