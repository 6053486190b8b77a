"""Debian systems in which something is built or tested: made by debootstrap, kept, layered.

A kept system is never changed. What writes mounts an overlay over it. Needs root.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

SOURCE: Final = ("authenticator", "common", "signer", "pyproject.toml", "README.md", "LICENSE")
"""What setuptools needs of a checkout."""

CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"
APT_INSTALL: Final = ("apt-get", "--quiet", "--yes", "--no-install-recommends", "install")
# The root gets /proc and /dev only inside these namespaces. So they end with the program, also when
# it is killed, and nothing that removes the root can reach the machine's devices.
_ENTER: Final = """
mount -t proc proc "$0/proc"
mount --bind /dev "$0/dev"
exec chroot "$0" "$@"
"""
_ENVIRONMENT: Final = (
    "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8",
    "DEBIAN_FRONTEND=noninteractive",
)  # fmt: skip


def say(message: str) -> None:
    """Write one line to stderr; stdout is for results."""
    sys.stderr.write(f"build: {message}\n")
    sys.stderr.flush()


def output(*argv: str | Path, environment: Mapping[str, str] | None = None) -> str:
    """Run a program and return its stdout. Raises `RuntimeError` with what it wrote: it failed."""
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, argv))}: {done.stdout}{done.stderr}")
    return done.stdout


def command_in(root: Path, *argv: str, environment: tuple[str, ...] = ()) -> list[str | Path]:
    """Return the command that runs a program in a root directory, in namespaces of its own."""
    return [
        "unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child",
        "sh", "-ec", _ENTER, root, "/usr/bin/env", "-i", *_ENVIRONMENT, *environment, *argv,
    ]  # fmt: skip


def package_index(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the settings of pip in an environment, without directories of this machine."""
    pip = {name: value for name, value in environ.items() if name.startswith("PIP_")}
    pip.pop("PIP_FIND_LINKS", None)
    return tuple(f"{name}={value}" for name, value in pip.items())


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

    return kept(suite, packages, " ".join(("build:", *packages, *foreign)), complete)


def kept(
    suite: str,
    packages: Sequence[str],
    content: str,
    complete: Callable[[Path], None],
    architecture: str = "",
) -> Path:
    """Return a system with these packages from the cache, or make it.

    `content` is what its name depends on; `complete` does the rest after debootstrap.
    """
    key = hashlib.sha256(content.encode()).hexdigest()[:12]
    root = cache() / "-".join(filter(None, (suite, architecture, key)))
    if not root.exists():
        with locked(root.with_name(f".{suite}")):
            if not root.exists():
                options = [f"--include={','.join(packages)}"]
                if architecture:
                    options.append(f"--arch={architecture}")
                bootstrap(suite, root, options, complete)
    return root


def bootstrap(
    suite: str, root: Path, options: Sequence[str], complete: Callable[[Path], None]
) -> None:
    """Make a minimal Debian system. A directory is there when its system is complete."""
    partial = root.with_name(f".{root.name}")
    shutil.rmtree(partial, ignore_errors=True)
    say(f"Debian {suite} with debootstrap: 1 to 4 minutes, once on this machine")
    output("debootstrap", "--variant=minbase", *options, suite, partial)
    complete(partial)
    partial.rename(root)


def cache() -> Path:
    """Return the directory that keeps the systems from run to run."""
    home = os.environ.get("XDG_CACHE_HOME") or Path(os.environ["HOME"], ".cache")
    return Path(home, "node-attestation/roots")


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Lock a directory while it is filled. The kernel releases the lock when its holder dies."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
