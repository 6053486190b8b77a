"""The plugin under strace, which kills it or makes system calls fail. The product has no hook."""

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.harness.node import CALL_SECONDS, Node
from tests.harness.programs import PLUGIN

KILLED = {128 + 9, -9}


def tampered(
    node: Node, arguments: Iterable[str], calls: str, action: str, *, paths: Iterable[Path] = ()
) -> subprocess.CompletedProcess[str]:
    """Run the plugin to its end. strace applies `action` to system calls, on these paths if any."""
    only = [f"--trace-path={path}" for path in paths]
    return _straced(
        node, arguments, "--quiet=all", "--output=/dev/null",
        f"--trace={calls}", f"--inject={calls}:{action}", *only,
    )  # fmt: skip


def steps(node: Node, arguments: Iterable[str]) -> dict[str, int]:
    """Return how often a successful run makes each system call."""
    with tempfile.NamedTemporaryFile() as report:
        done = _straced(
            node, arguments, "--summary-only", "--summary-columns=name,calls",
            f"--output={report.name}",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        lines = Path(report.name).read_text(encoding="ascii").splitlines()
    rows = (re.fullmatch(r"(\w+)\s+(\d+)", line.strip()) for line in lines)
    counted = {row[1]: int(row[2]) for row in rows if row is not None}
    del counted["total"], counted["execve"]
    return counted


def _straced(
    node: Node, arguments: Iterable[str], *options: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["strace", "--follow-forks", *options, PLUGIN, *arguments],
        env=os.environ | {"KUBERNETES_EXEC_INFO": node.exec_info()} | dict(node.environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=CALL_SECONDS,
        check=False,
    )
