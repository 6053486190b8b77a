"""Builds the node tree in another Debian system than this one.

    python -m builders.node_tree bundled build/bundled
    python -m builders.node_tree arm64 build/arm64

The variant with a CPython of its own is built in Debian 11, whose glibc 2.31 is older than that of
any supported system. The tree for arm64 is built in Debian 12 with a cross compiler: what runs is
for this machine. Both systems are made with debootstrap, once per machine. Needs root.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from builders.systems import (
    CERTIFICATES,
    SOURCE,
    build_root,
    command_in,
    overlay,
    package_index,
    say,
)
from builders.version import PROJECT

WORK: Final = PROJECT / "build"
BUNDLED_SUITE: Final = "bullseye"
OLDEST_SUITE: Final = "bookworm"
CPYTHON: Final = WORK / "python"
_CHECKOUT: Final = (*SOURCE, "packaging", "requirements")
_INSIDE: Final = "/srv/source"
_TREE_PACKAGES: Final = ("gcc", "libc6-dev", "pkg-config", "libtss2-dev", "ca-certificates")
_LIBRARIES: Final = ("zlib1g-dev", "libffi-dev")
"""What is linked into the CPython."""
_TOOLS: Final = ("make", "dpkg-dev", "perl", "xz-utils")
_CPYTHON_PACKAGES: Final = (*_TREE_PACKAGES, *_TOOLS, *_LIBRARIES)
_ARM64_PACKAGES: Final = (
    "gcc-aarch64-linux-gnu", "pkg-config", "ca-certificates", "python3", "python3-venv",
)  # fmt: skip
_ARM64_LIBRARIES: Final = ("libc6-dev:arm64", "libpython3-dev:arm64", "libtss2-dev:arm64")
_SOURCES: Final = """\
deb-src [signed-by=/srv/sources.gpg] {mirror} trixie main
deb-src [signed-by=/srv/sources.gpg] {mirror}-security trixie-security main
"""
_KEYS: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_MAKE_TREE: Final = """
cd {source}
{python} -m venv .venv
.venv/bin/pip install --quiet --no-deps --require-hashes --requirement requirements/build.txt
packaging/node/package/tree.sh tree
"""


def build_cpython(destination: Path) -> None:
    """Build the CPython of the bundled packages."""
    script = PROJECT / "packaging/node/package/build-python.sh"
    with _system(build_root(BUNDLED_SUITE, _CPYTHON_PACKAGES)) as root:
        shutil.copy(_KEYS, root / "srv/sources.gpg")
        # debootstrap wrote there where it got the system from: "deb MIRROR bullseye main".
        mirror = (root / "etc/apt/sources.list").read_text(encoding="utf-8").split()[1]
        sources = _SOURCES.format(mirror=mirror)
        (root / "etc/apt/sources.list.d/sources.list").write_text(sources, encoding="utf-8")
        shutil.copy(script, root / "srv")
        _run(root, f"apt-get --quiet --quiet update; /srv/{script.name} /srv/python")
        _move(root / "srv/python", destination)


def build_bundled(destination: Path) -> None:
    """Build the tree with a CPython of its own."""
    with _system(build_root(BUNDLED_SUITE, _CPYTHON_PACKAGES)) as root:
        shutil.copytree(CPYTHON, root / "srv/python", symlinks=True)
        version = _run(
            root, "/srv/python/bin/python3 -c 'import sys; print(*sys.version_info[:2])'"
        )
        _make_tree(root, "/srv/python/bin/python3", destination, PYTHONS=".".join(version.split()))
    bundle = PROJECT / "packaging/node/package/bundle-python.sh"
    subprocess.run([bundle, destination, CPYTHON], check=True)


def build_arm64(destination: Path) -> None:
    """Build the tree for arm64."""
    with _system(build_root(OLDEST_SUITE, _ARM64_PACKAGES, _ARM64_LIBRARIES)) as root:
        _make_tree(root, "/usr/bin/python3", destination, MACHINE="aarch64")


BUILDS: Final = {"cpython": build_cpython, "bundled": build_bundled, "arm64": build_arm64}


def main() -> int:
    """Build what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m builders.node_tree")
    parser.add_argument("what", choices=BUILDS)
    parser.add_argument("destination", type=Path)
    arguments = parser.parse_args()
    BUILDS[arguments.what](arguments.destination)
    return 0


@contextmanager
def _system(root: Path) -> Iterator[Path]:
    """Mount a writable copy of a system, which is deleted at the end."""
    WORK.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".system-", dir=WORK) as directory:
        place = Path(directory)
        with overlay(place, place / "upper", (root,)) as merged:
            shutil.copy(CERTIFICATES, merged / CERTIFICATES.lstrip("/"))
            yield merged


def _make_tree(root: Path, python: str, destination: Path, **variables: str) -> None:
    """Run tree.sh with variables on a copy of this checkout."""
    inside = root / _INSIDE.lstrip("/")
    for name in _CHECKOUT:
        source, target = PROJECT / name, inside / name
        if source.is_dir():
            shutil.copytree(
                source, target, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True
            )
        else:
            target.parent.mkdir(exist_ok=True)
            shutil.copy(source, target)
    say(f"building {destination.name} with {python} in {root}")
    _run(root, _MAKE_TREE.format(source=_INSIDE, python=python), **variables)
    _move(inside / "tree", destination)


def _run(root: Path, script: str, **variables: str) -> str:
    """Run a script in a system. Its messages appear; its output is returned."""
    settings = (f"{name}={value}" for name, value in variables.items())
    environment = (*package_index(os.environ), *settings)
    command = command_in(root, "sh", "-euc", script, environment=environment)
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _move(source: Path, destination: Path) -> None:
    shutil.rmtree(destination, ignore_errors=True)
    destination.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(source, destination)


if __name__ == "__main__":
    sys.exit(main())
