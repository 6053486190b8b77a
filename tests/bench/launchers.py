"""Launchers of this checkout: the installed one, and two for Debian's interpreter.

One of these is built by setup.py, and one is that of the node packages.
"""

import os
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from tests.harness.programs import PLUGIN

ROOT = Path(__file__).parents[2]
DEBIAN = Path("/usr/bin/python3")
OLDEST = (3, 11)
PACKAGED = ROOT / "packaging/node/package/kubelet-authenticator-tpm"
PACKAGED_SOURCE = "/usr/lib/kubelet-authenticator-tpm/lib/authenticator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """A launcher, and the interpreter that runs it."""

    path: Path
    interpreter: Path
    form: str = ""
    """How it differs from a script of setup.py."""

    @property
    def name(self) -> str:
        """Its name in a table."""
        return f"{self.interpreter}{self.form}"


def all_here(directory: Path) -> list[Launcher]:
    """Return the installed launcher, and those for Debian's interpreter if that is another one."""
    installed = Launcher(path=PLUGIN, interpreter=_interpreter(PLUGIN))
    if not DEBIAN.exists() or _version(DEBIAN) < OLDEST:
        return [installed]
    if DEBIAN.resolve() == installed.interpreter.resolve():
        return [installed]
    return [installed, _built(DEBIAN, directory), packaged(DEBIAN, directory / "package")]


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


def packaged(interpreter: Path, directory: Path) -> Launcher:
    """Install the launcher of the node packages and its module into `directory`."""
    source = directory / "lib" / "launcher.py"
    source.parent.mkdir(parents=True)
    source.write_bytes((ROOT / "authenticator/launcher.py").read_bytes())
    compiler: list[str | Path] = [
        interpreter,
        "-ISm",
        "compileall",
        "-q",
        "--invalidation-mode",
        "unchecked-hash",
    ]
    subprocess.run([*compiler, source.parent], check=True)
    path = directory / PLUGIN.name
    text = PACKAGED.read_text(encoding="utf-8")
    path.write_text(text.replace(PACKAGED_SOURCE, str(source.parent)), encoding="utf-8")
    path.chmod(0o755)
    return Launcher(path=path, interpreter=_interpreter(path), form=" (node package)")


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
