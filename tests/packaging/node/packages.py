"""The built packages, and how a system installs, upgrades and removes them."""

import platform
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from builders.systems import APT_INSTALL, overlay
from tests.controlplane.release import ARCHITECTURES
from tests.harness import emulation
from tests.harness.debian_root import SUITES, clean_root
from tests.harness.wire import output

PROJECT: Final = Path(__file__).parents[3]
BUILD: Final = PROJECT / "packaging/node/package"
TREE: Final = PROJECT / "build/node"
"""The root directory with the files that `make packages` has packed."""

NAME: Final = "node-attestation-authenticator"
DIRECTORY: Final = "/usr/lib/kubelet-authenticator-tpm"
FULL_PROGRAM: Final = f"{DIRECTORY}/bin/kubelet-authenticator-tpm-full"
NEWER: Final = "99.0"
SYSTEM: Final = ("systemd", "systemd-sysv", "dbus", "iproute2")
DEPENDENCIES: Final = (
    "python3", "libtss2-esys-3.0.2-0", "libtss2-rc0", "libtss2-tctildr0", "libtss2-tcti-device0",
)  # fmt: skip
TCTI: Final = "libtss2-tcti-swtpm0"
"""The connection to a software TPM, which a node does not need."""
DOWNLOADS: Final = (*DEPENDENCIES, TCTI)
FOR_APT: Final = ("curl", "ca-certificates")
"""What docs/node.md requires of a system that installs with apt."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A package format, with the commands of its package manager."""

    format: str
    upgrade: tuple[str, ...]
    remove: tuple[str, ...]
    defaults: str
    """The configuration file of the package."""

    def __str__(self) -> str:
        return self.format


Installer = Callable[[str, Kind], tuple[Path, ...]]
"""Installs the package in a system; returns its layers, uppermost first."""

DEB: Final = Kind(
    "deb",
    ("dpkg", "--install"),
    ("dpkg", "--remove"),
    "/etc/default/kubelet-authenticator-tpm",
)
# rpm's database does not know Debian's packages, and Debian's rpm refuses without a flag.
RPM: Final = Kind(
    "rpm",
    ("rpm", "--upgrade", "--nodeps", "--force-debian"),
    ("rpm", "--erase", "--nodeps", "--force-debian"),
    "/etc/sysconfig/kubelet-authenticator-tpm",
)
SYSTEMS: Final = (*((suite, DEB) for suite in SUITES), (SUITES[0], RPM))


def pack_newer(directory: Path) -> None:
    """Pack a newer version into a directory. One module has one more line."""
    tree = directory / "tree"
    shutil.copytree(TREE, tree, symlinks=True)
    with (tree / DIRECTORY.lstrip("/") / "lib/authenticator/__init__.py").open("a") as module:
        module.write(f'VERSION = "{NEWER}"\n')
    output("env", f"VERSION={NEWER}", BUILD / "pack.sh", tree, directory)
    shutil.rmtree(tree)


def find(directory: Path, kind: Kind) -> Path:
    """Return the one package of a format in a directory."""
    machine = platform.machine()
    ending = f"-1.{machine}.rpm" if kind is RPM else f"_{ARCHITECTURES[machine]}.deb"
    pattern = f"{NAME}[_-][0-9]*[0-9]{ending}"
    [package] = directory.glob(pattern)
    return package


def install(
    suite: str,
    kind: Kind,
    directory: Path,
    *,
    more: tuple[str, ...] = (),
    package: Path | None = None,
) -> tuple[Path, ...]:
    """Install a package over a clean root, which has `more` Debian packages.

    Return the layers, uppermost first.
    """
    root = clean_root(suite, (*SYSTEM, *more), (*DOWNLOADS, "rpm"))
    upper = directory / "installed"
    package = package or find(PROJECT / "dist", kind)
    with overlay(directory / "mounts", upper, (root,)) as merged:
        shutil.copy(package, merged / "srv")
        if kind is DEB:
            apt_install(merged, f"/srv/{package.name}")
        else:
            apt_install(merged, "rpm", *DEPENDENCIES)
            output("chroot", merged, *kind.upgrade, f"/srv/{package.name}")
        import_everything(merged)
        apt_install(merged, TCTI)
    return upper, root


def arm64_root() -> Path:
    """Return a clean root for arm64, with an emulator for its programs."""
    emulation.enable("aarch64")
    return clean_root(SUITES[0], FOR_APT, DOWNLOADS, architecture="arm64")


@contextmanager
def without_package(suite: str, directory: Path) -> Iterator[Path]:
    """Mount a system that has what the package needs, except Python and the package."""
    root = clean_root(suite, SYSTEM, (*DOWNLOADS, "rpm"))
    with overlay(directory / "mounts", directory / "system", (root,)) as merged:
        apt_install(merged, *DEPENDENCIES[1:])
        yield merged


def apt_install(root: Path, *packages: str) -> None:
    """Install Debian packages in a root that has them in apt's cache."""
    path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
    environment = ("env", "-i", path, "DEBIAN_FRONTEND=noninteractive")
    output("chroot", root, *environment, *APT_INSTALL, *packages)


_IMPORT_EVERYTHING: Final = f"""
import ctypes, importlib, pkgutil, sys
sys.path.insert(0, "{DIRECTORY}/lib")
import authenticator, common
for package in (authenticator, common):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
import authenticator.tpm.open_tpm
ctypes.CDLL("libtss2-tcti-device.so.0")
"""


def import_everything(root: Path) -> None:
    """Import every module with the Python that the installed program names.

    Raises RuntimeError: something is missing.
    """
    program = (root / FULL_PROGRAM.lstrip("/")).read_text(encoding="utf-8")
    python = program.split()[0].removeprefix("#!")
    output("chroot", root, python, "-ISB", "-W", "error", "-c", _IMPORT_EVERYTHING)
