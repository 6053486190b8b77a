"""Clean Debian systems for machines that boot systemd: cached, with the plugin's dependencies.

debootstrap makes a root once per machine, and then the steps of docs/node.md are done in it. It is
never changed afterwards: machines and programs are layers over it.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from builders.systems import APT_INSTALL, CERTIFICATES, SOURCE, kept, overlay, package_index
from builders.version import PROJECT
from tests.harness.wire import output

SUITES: Final = ("bookworm", "trixie")
PACKAGES: Final = (
    "systemd", "systemd-sysv", "dbus", "python3", "python3-venv", "python3-dev", "gcc", "libc6-dev",
    "pkg-config", "libtss2-dev", "ca-certificates", "iproute2",
)  # fmt: skip
VENV: Final = Path("/usr/lib/kubelet-authenticator-tpm")
LOCKS: Final = ("build", "node")
_PIP: Final = (str(VENV / "bin/pip"), "install", "--quiet", "--no-build-isolation")


def debian_root(suite: str) -> Path:
    """Return the directory with a Debian system, made when it is not in the cache."""
    locks = [PROJECT / "requirements" / f"{name}.txt" for name in LOCKS]

    def complete(root: Path) -> None:
        shutil.copy(CERTIFICATES, root / CERTIFICATES.lstrip("/"))
        _chroot(root, "python3", "-m", "venv", str(VENV))
        for lock in locks:
            shutil.copy(lock, root / "srv")
            _chroot(root, *_PIP, "--no-deps", "--require-hashes", "-r", f"/srv/{lock.name}")
        output("chroot", root, "apt-get", "clean")

    content = "".join((" ".join(PACKAGES), *(lock.read_text() for lock in locks)))
    return kept(suite, PACKAGES, content, complete)


def clean_root(
    suite: str, packages: Sequence[str], downloads: Sequence[str], architecture: str = ""
) -> Path:
    """Return the directory with a Debian system that has no other packages than these.

    apt has the `downloads` and what they depend on in its cache, but has not installed them. An
    emulator (tests/harness/emulation.py) must run the programs of another architecture.
    """

    def complete(root: Path) -> None:
        _chroot(root, "apt-get", "--quiet", "update")
        _chroot(root, *APT_INSTALL, "--download-only", *downloads)

    content = " ".join((*packages, "downloads:", *downloads))
    return kept(suite, packages, content, complete, architecture)


def _chroot(root: Path, *argv: str) -> str:
    """Run a program in a root, with this machine's way to package indexes."""
    words = package_index(os.environ)
    return output("chroot", root, "/usr/bin/env", "-i", "PATH=/usr/bin:/bin", *words, *argv)


@contextmanager
def installed_program(suite: str, directory: Path) -> Iterator[tuple[Path, ...]]:
    """Install the programs of this checkout over a root. Return the layers, uppermost first.

    Made by the Python of the root, whose path the scripts name.
    """
    root, upper = debian_root(suite), directory / "program"
    with overlay(directory / "install", upper, (root,)) as merged:
        source = merged / "srv/source"
        source.mkdir()
        for name in SOURCE:
            path = PROJECT / name
            if path.is_dir():
                shutil.copytree(path, source / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(path, source)
        _chroot(merged, *_PIP, "--no-deps", "--no-index", "/srv/source")
        (merged / "usr/bin/kubelet-authenticator-tpm").symlink_to(
            VENV / "bin/kubelet-authenticator-tpm"
        )
        shutil.rmtree(source)
    yield upper, root
