"""Launchers of this checkout for several interpreters: the installed one, and Debian's."""

import os
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from tests.harness.programs import PLUGIN

ROOT = Path(__file__).parents[2]
DEBIAN = Path("/usr/bin/python3")
OLDEST = (3, 11)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """A launcher, and the interpreter that runs it."""

    path: Path
    interpreter: Path

    @property
    def name(self) -> str:
        """Its name in a table."""
        return f"{self.interpreter}"


def all_here(directory: Path) -> list[Launcher]:
    """Return the installed launcher, and one for Debian's interpreter if that is a different one.

    The same setup.py builds the latter, into `directory`.
    """
    installed = Launcher(path=PLUGIN, interpreter=_interpreter(PLUGIN))
    if not DEBIAN.exists() or _version(DEBIAN) < OLDEST:
        return [installed]
    if DEBIAN.resolve() == installed.interpreter.resolve():
        return [installed]
    return [installed, _built(DEBIAN, directory)]


def _built(interpreter: Path, directory: Path) -> Launcher:
    """Run setup.py with another interpreter, which uses setuptools of this environment."""
    packages = sysconfig.get_path("purelib")
    subprocess.run(
        [interpreter, "-P", "setup.py", "--quiet", "build_scripts", "--build-dir", directory],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": packages},
        check=True,
    )
    path = directory / PLUGIN.name
    return Launcher(path=path, interpreter=_interpreter(path))


def _interpreter(launcher: Path) -> Path:
    """Return the interpreter in the first line: `#!<interpreter> -IS`."""
    with launcher.open("rb") as file:
        return Path(os.fsdecode(file.readline()[len("#!") :].split()[0]))


def _version(interpreter: Path) -> tuple[int, ...]:
    version = subprocess.run(
        [interpreter, "-ISc", "import sys; print(*sys.version_info[:2])"],
        check=True,
        capture_output=True,
        text=True,
    )
    return tuple(map(int, version.stdout.split()))
