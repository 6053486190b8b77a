"""A clean Debian system with Ansible and cloud-init."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness.debian_root import APT_INSTALL, clean_root, overlay
from tests.harness.wire import output

PACKAGES = ("ansible-core", "cloud-init", "python3-apt")
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the root directory of the system, which ends with the test run."""
    directory = tmp_path_factory.mktemp("imaging")
    with ExitStack() as stack:
        clean = clean_root("bookworm", ("ca-certificates",), PACKAGES)
        layer = overlay(directory / "overlay", directory / "upper", (clean,))
        root = stack.enter_context(layer)
        for place in ("proc", "dev"):
            output("mount", "--bind", f"/{place}", root / place)
            stack.callback(output, "umount", "--lazy", root / place)
        runner(root)(*APT_INSTALL, *PACKAGES, check=True)
        yield root


def runner(root: Path) -> Run:
    """Return a function that runs a program in a root directory."""

    def run(*argv: str, check: bool = False) -> subprocess.CompletedProcess[str]:
        environment = ("DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8", "HOME=/root")
        path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
        command = ("chroot", str(root), "/usr/bin/env", "-i", path, *environment, *argv)
        return subprocess.run(command, check=check, capture_output=True, text=True)

    return run


@pytest.fixture
def run(system: Path) -> Run:
    """Return a function that runs a program in the system."""
    return runner(system)
