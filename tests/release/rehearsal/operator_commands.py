"""Publishes the commands for operators, and installs them in each way that the documentation names.

A krew index and a Python package index are directories of the site. The libraries of the wheel come
from the Python package index that pip and uv use on this machine.
"""

import os
import resource
import shutil
import subprocess
import tarfile
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

from builders.systems import CERTIFICATES
from tests.controlplane import provide
from tests.harness.wire import output
from tests.release.rehearsal.stage import NEW, OLD, SITE, Stage
from tests.release.rehearsal.story import Step

SUBJECT: Final = "operator"
MEBIBYTES: Final = 45
_INDEX: Final = f"{SITE}/simple"
_REQUIREMENT: Final = "node-attestation[signer,operator]=={}"
_UV: Final = Path(__file__).parents[3] / ".venv/bin/uv"
_GIT: Final = ("git", "-c", "user.name=rehearsal", "-c", "user.email=rehearsal@example.com")


def publish(version: str, stage: Stage) -> str:
    """Add a version to the krew index and to the Python package index."""
    simple = stage.site / "simple/node-attestation"
    simple.mkdir(parents=True, exist_ok=True)
    [wheel] = stage.dist(version).glob("*.whl")
    shutil.copy(wheel, simple)
    plugins = stage.site / "krew-index/plugins"
    if not plugins.exists():
        plugins.mkdir(parents=True)
        output("git", "init", "--quiet", plugins.parent)
    shutil.copy(stage.dist(version) / "krew.yaml", plugins / "attestation.yaml")
    output(*_GIT, "-C", plugins.parent, "add", ".")
    output(*_GIT, "-C", plugins.parent, "commit", "--quiet", f"--message={version}")
    return f"{_INDEX}, and a krew index"


def install(stage: Stage) -> str:
    """Install the older version as an unpacked file, with krew, uv and pipx."""
    home = _home(stage)
    [archive] = stage.dist(OLD).glob("kubectl-attestation-*.tar.gz")
    unpacked = home / "operator"
    with tarfile.open(archive) as tar:
        tar.extractall(unpacked, filter="data")
    program = unpacked / "kubectl-attestation"
    size = program.stat().st_size / 2**20
    assert size <= MEBIBYTES, f"the file has {size:.1f} MiB"
    first, later = _cpu(home, program), median(_cpu(home, program) for _ in range(5))
    _run(home, provide.tool("krew"), "index", "add", "rehearsal", f"file://{stage.site}/krew-index")
    _run(home, provide.tool("krew"), "install", "rehearsal/attestation")
    _install_wheel(home, OLD)
    lines = [f"one file: {size:.1f} MiB, {first:.2f} s of CPU at first, then {later:.2f}"]
    return "\n".join([*lines, *_versions(home, krew=OLD, wheel=OLD)])


def upgrade(stage: Stage) -> str:
    """Upgrade all of them."""
    home = _home(stage)
    _run(home, provide.tool("krew"), "upgrade", "attestation")
    _install_wheel(home, NEW)
    return "\n".join(_versions(home, krew=NEW, wheel=NEW))


def go_back(stage: Stage) -> str:
    """Install the older version again. krew has no command for that: it removes and installs."""
    home, krew = _home(stage), provide.tool("krew")
    _run(home, krew, "uninstall", "attestation")
    _run(home, krew, "install", f"--manifest-url={SITE}/v{OLD}/krew.yaml")
    _install_wheel(home, OLD)
    return "\n".join(_versions(home, krew=OLD, wheel=OLD))


def _home(stage: Stage) -> Path:
    """Return the home directory of the operator, whose programs trust the rehearsal's servers."""
    home = stage.directory / "work/operator"
    if not home.exists():
        home.mkdir()
        authorities = Path(CERTIFICATES).read_bytes() + stage.authority_file.read_bytes()
        (home / "ca.crt").write_bytes(authorities)
    return home


def _install_wheel(home: Path, version: str) -> None:
    requirement = _REQUIREMENT.format(version)
    _run(home, _UV, "tool", "install", "--quiet", f"--index={_INDEX}", requirement)
    index = f"--pip-args=--extra-index-url={_INDEX}"
    _run(home, "pipx", "install", "--force", index, requirement)


def _versions(home: Path, *, krew: str, wheel: str) -> list[str]:
    """Require the versions that the installed commands print."""
    programs = {
        "krew": (home / "krew/bin/kubectl-attestation", krew),
        "uv": (home / ".local/bin/kubectl-attestation", wheel),
        "pipx": (home / "pipx-bin/kubectl-attestation", wheel),
    }
    for name, (program, expected) in programs.items():
        shown = _run(home, program, "version").strip()
        assert shown == f"version: {expected}", f"{name}: {shown}"
    return [f"{name}: {expected}" for name, (_, expected) in programs.items()]


def _cpu(home: Path, program: Path) -> float:
    """Return the CPU seconds of a start."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _run(home, program, "status", "--help")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def _run(home: Path, *command: str | Path) -> str:
    """Run a command of the operator. Raise RuntimeError with its output when it fails."""
    trust = dict.fromkeys(("SSL_CERT_FILE", "PIP_CERT", "GIT_SSL_CAINFO"), str(home / "ca.crt"))
    environment = os.environ | trust | {
        "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "", "KREW_ROOT": str(home / "krew"),
        "PIPX_BIN_DIR": str(home / "pipx-bin"),
    }  # fmt: skip
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, cwd=home
    )
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


STEPS: Final = (
    Step(phase="publish", subject=SUBJECT, run=partial(publish, OLD)),
    Step(phase="install", subject=SUBJECT, run=install),
    Step(phase="upgrade", subject=SUBJECT, run=partial(publish, NEW)),
    Step(phase="upgrade", subject=SUBJECT, run=upgrade),
    Step(phase="go back", subject=SUBJECT, run=go_back),
)
