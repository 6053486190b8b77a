"""Runs the fast tests with the Python of other Debian releases, each in a clean system.

    python -m tests.release.pythons trixie testing

Debian 12 (bookworm) has Python 3.11, Debian 13 (trixie) 3.13 and Debian testing 3.14. Needs root.
"""

import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from builders.systems import command_in, overlay, package_index
from builders.version import PROJECT
from tests.controlplane.progress import say
from tests.harness.debian_root import debian_root
from tests.harness.wire import output

SOURCE: Final = "/srv/source"
_COMMANDS: Final = f"""
set -e
apt-get update --quiet
apt-get install --quiet --yes --no-install-recommends git make
git config --global --add safe.directory {SOURCE}
cd {SOURCE}
python3 --version
exec make unit
"""


def main() -> int:
    """Test each suite of the command line. Return the number of suites that failed."""
    return sum(_test(suite) != 0 for suite in sys.argv[1:])


def _test(suite: str) -> int:
    root = debian_root(suite)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="python-")))
        merged = stack.enter_context(overlay(directory / "overlay", directory / "upper", (root,)))
        output("git", "clone", "--quiet", PROJECT, f"{merged}{SOURCE}")
        say(f"fast tests in Debian {suite}")
        # Without it a test server waits for the name of its address.
        (merged / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
        # A mirror may be a snapshot that is older than its files say they may be.
        snapshot = merged / "etc/apt/apt.conf.d/90snapshot"
        snapshot.write_text('Acquire::Check-Valid-Until "false";\n', encoding="utf-8")
        command = command_in(merged, "sh", "-c", _COMMANDS, environment=package_index(os.environ))
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
