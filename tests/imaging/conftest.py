"""A clean Debian system with Ansible and cloud-init."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from builders.systems import APT_INSTALL, command_in, overlay
from tests.harness.debian_root import clean_root

PACKAGES = ("ansible-core", "cloud-init", "python3-apt")
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the root directory of the system, which ends with the test run."""
    directory = tmp_path_factory.mktemp("imaging")
    clean = clean_root("bookworm", ("ca-certificates",), PACKAGES)
    with overlay(directory / "overlay", directory / "upper", (clean,)) as root:
        runner(root)(*APT_INSTALL, *PACKAGES, check=True)
        yield root


def runner(root: Path) -> Run:
    """Return a function that runs a program in a root directory."""

    def run(*argv: str, check: bool = False) -> subprocess.CompletedProcess[str]:
        command = command_in(root, *argv)
        return subprocess.run(command, check=check, capture_output=True, text=True)

    return run


@pytest.fixture
def run(system: Path) -> Run:
    """Return a function that runs a program in the system."""
    return runner(system)
