"""Clean Debian systems for machines that boot systemd: cached, with the plugin's dependencies.

debootstrap makes a root once per machine, and then the steps of docs/node.md are done in it. It is
never changed afterwards: machines and programs are layers over it.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.controlplane import provide
from tests.controlplane.progress import Heartbeat, say
from tests.harness.chroot import command_in
from tests.harness.wire import output

PROJECT: Final = Path(__file__).parents[2]
SUITES: Final = ("bookworm", "trixie")
PACKAGES: Final = (
    "systemd", "systemd-sysv", "dbus", "python3", "python3-venv", "python3-dev", "gcc", "libc6-dev",
    "pkg-config", "libtss2-dev", "ca-certificates", "iproute2",
)  # fmt: skip
VENV: Final = Path("/usr/lib/kubelet-authenticator-tpm")
LOCKS: Final = ("build", "node")
SOURCE: Final = ("authenticator", "common", "signer", "pyproject.toml", "README.md", "LICENSE")
CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"
APT_INSTALL: Final = ("apt-get", "--quiet", "--yes", "--no-install-recommends", "install")
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
    return _cached(suite, PACKAGES, content, complete)


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
    return _cached(suite, packages, content, complete, architecture)


def build_root(suite: str, packages: Sequence[str], foreign: Sequence[str] = ()) -> Path:
    """Return the directory with a Debian system in which something is built.

    `foreign` are packages of another architecture, as NAME:ARCHITECTURE.
    """

    def complete(root: Path) -> None:
        if foreign:
            architecture = foreign[0].partition(":")[2]
            output("chroot", root, "dpkg", "--add-architecture", architecture)
            output(*command_in(root, "apt-get", "--quiet", "update"))
            output(*command_in(root, *APT_INSTALL, *foreign))
        output("chroot", root, "apt-get", "clean")

    return _cached(suite, packages, " ".join(("build:", *packages, *foreign)), complete)


def package_index(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the settings of pip in an environment, without directories of this machine."""
    pip = {name: value for name, value in environ.items() if name.startswith("PIP_")}
    pip.pop("PIP_FIND_LINKS", None)
    return tuple(f"{name}={value}" for name, value in pip.items())


def _cached(
    suite: str,
    packages: Sequence[str],
    content: str,
    complete: Callable[[Path], None],
    architecture: str = "",
) -> Path:
    """Return a root from the cache. `content` is what its name depends on."""
    key = hashlib.sha256(content.encode()).hexdigest()[:12]
    name = "-".join(filter(None, (suite, architecture, key)))
    root = provide.cache_directory(os.environ).with_name("roots") / name
    if root.exists():
        return root
    with provide.locked(root.with_name(f".{suite}")):
        if not root.exists():
            partial = root.with_name(f".{root.name}")
            shutil.rmtree(partial, ignore_errors=True)
            say(f"Debian {suite} with debootstrap: 2 to 4 minutes, once on this machine")
            options = ["--variant=minbase", f"--include={','.join(packages)}"]
            if architecture:
                options.append(f"--arch={architecture}")
            with Heartbeat(lambda: f"Debian {suite}"):
                output("debootstrap", *options, suite, partial)
                complete(partial)
            partial.rename(root)
    return root


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


@contextmanager
def overlay(directory: Path, upper: Path, lower: tuple[Path, ...]) -> Iterator[Path]:
    """Mount an overlay while the context lasts; what is written stays in `upper`."""
    merged, work = directory / "merged", directory / "work"
    for path in (merged, work, upper):
        path.mkdir(parents=True, exist_ok=True)
    layers = ":".join(map(str, lower))
    options = f"lowerdir={layers},upperdir={upper},workdir={work}"
    output("mount", "-t", "overlay", "overlay", "-o", options, merged)
    try:
        yield merged
    finally:
        output("umount", merged)
