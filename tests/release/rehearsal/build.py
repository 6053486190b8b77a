"""Builds two versions of the commit: the one to publish, and the one to upgrade to."""

import os
import re
import subprocess
from functools import partial
from pathlib import Path
from typing import Final

from tests.harness.wire import output
from tests.release.rehearsal.stage import REGISTRY, SITE, VERSIONS, Stage
from tests.release.rehearsal.story import ALWAYS, Step

ROOT: Final = Path(__file__).parents[3]
TARGETS: Final = ("wheel", "plugin", "packages", "arm64", "image", "chart")
IMAGE: Final = f"{REGISTRY}/node-attestation-signer"
_VERSION: Final = re.compile(r'^version = ".*"$', re.MULTILINE)
_CHANGES: Final = "## {version} - 2026-01-01\n\n- Rehearsal.\n\n"
_AUTHOR: Final = ("-c", "user.name=rehearsal", "-c", "user.email=rehearsal@example.com")


def build(version: str, stage: Stage) -> str:
    """Build the artifacts of a version in a clone of the commit, unless they are there."""
    clone, done = stage.source(version), stage.source(version) / "dist/SHA256SUMS"
    commit = output("git", "-C", ROOT, "rev-parse", "HEAD").strip()
    if not done.exists() or not (stage.as_built or _parent(clone) == commit):
        clone_as(version, commit, clone)
        _build(version, clone)
    files = [file for file in stage.dist(version).iterdir() if file.is_file()]
    size = sum(file.stat().st_size for file in files)
    return f"{version}: {len(files)} files, {size / 1e6:.1f} MB"


def _parent(clone: Path) -> str:
    """Return the commit that a clone was made from, to which it has added the version."""
    return output("git", "-C", clone, "rev-parse", "HEAD^").strip()


def clone_as(version: str, commit: str, clone: Path) -> None:
    """Clone a commit, and commit what a person changes for a release: version and changelog."""
    output("rm", "-rf", clone)
    clone.parent.mkdir(parents=True, exist_ok=True)
    output("git", "clone", "--quiet", ROOT, clone)
    output("git", "-C", clone, "checkout", "--quiet", commit)
    (clone / ".venv").symlink_to(ROOT / ".venv")
    project, changelog = clone / "pyproject.toml", clone / "CHANGELOG.md"
    text, count = _VERSION.subn(f'version = "{version}"', project.read_text(encoding="utf-8"))
    assert count == 1, "pyproject.toml must have one line with the version"
    project.write_text(text, encoding="utf-8")
    head, mark, rest = changelog.read_text(encoding="utf-8").partition("## ")
    changelog.write_text(head + _CHANGES.format(version=version) + mark + rest, encoding="utf-8")
    output("git", "-C", clone, *_AUTHOR, "commit", "--quiet", "--all", f"--message=v{version}")


def make(clone: Path, *arguments: str) -> None:
    """Run make in a clone, with the virtual environment of this checkout."""
    command = ("make", "--no-print-directory", "--old-file=.venv/.setup-done", *arguments)
    subprocess.run(command, cwd=clone, env=os.environ | _epoch(clone), check=True)


def _epoch(clone: Path) -> dict[str, str]:
    """Return the variable with the time of the commit."""
    return {"SOURCE_DATE_EPOCH": output("git", "-C", clone, "log", "-1", "--format=%ct").strip()}


def _build(version: str, clone: Path) -> None:
    """Build as `make dist` does, but once, and describe the files."""
    image = f"{IMAGE}:{version}"
    make(clone, *TARGETS, f"IMAGE={image}", f"RELEASE_URL={SITE}/v{version}")
    make(clone, "description")


STEPS: Final = tuple(
    Step(phase="build", subject=ALWAYS, run=partial(build, version)) for version in VERSIONS
)
