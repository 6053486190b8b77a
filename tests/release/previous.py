"""The release before this one: built as the rehearsal builds it, and kept on this machine.

    python -m tests.release.previous

No release is published yet. Until there is one, a commit stands for version 0.1.0.
"""

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.controlplane import provide
from tests.controlplane.progress import say
from tests.harness.wire import output
from tests.release.rehearsal import build

VERSION: Final = "0.1.0"
COMMIT: Final = "d316f6228f59666ba3cf0853cd98384c9fb28c17"
"""docs/releasing.md says when to change both."""
_LOCKS: Final = ("build", "node", "signer")


@dataclass(frozen=True, slots=True)
class Release:
    """The kept files of a release."""

    directory: Path

    @property
    def plugin(self) -> Path:
        """The program of nodes."""
        return self.directory / "venv/bin/kubelet-authenticator-tpm"

    @property
    def signer(self) -> Path:
        """The signer."""
        return self.directory / "venv/bin/node-attestation-signer"

    @property
    def packaging(self) -> Path:
        """The manifests of the signer, in the files of the source."""
        return self.directory / "signer"


def previous() -> Release:
    """Return the previous release, which is built when it is not in the cache."""
    cache = provide.cache_directory(os.environ).with_name("releases")
    kept = cache / f"{VERSION}-{COMMIT[:12]}"
    with provide.locked(cache / f".{VERSION}"):
        if not (kept / "complete").exists():
            shutil.rmtree(kept, ignore_errors=True)
            _build(kept)
            _install(kept)
            (kept / "complete").touch()
    return Release(kept)


def _build(directory: Path) -> None:
    say(f"building the previous release, {VERSION}: 2 minutes, once on this machine")
    clone = directory / "source"
    build.clone_as(VERSION, COMMIT, clone)
    build.make(clone, "wheel")
    shutil.copytree(clone / "dist", directory / "dist")
    shutil.copytree(clone / "packaging/signer", directory / "signer", symlinks=True)
    shutil.copytree(clone / "requirements", directory / "requirements")
    shutil.rmtree(clone)


def _install(directory: Path) -> None:
    """Install both programs with the libraries of their locks."""
    venv = directory / "venv"
    output(sys.executable, "-m", "venv", venv)
    pip = (venv / "bin/pip", "install", "--quiet", "--no-build-isolation")
    for lock in _LOCKS:
        requirements = directory / f"requirements/{lock}.txt"
        output(*pip, "--no-deps", "--require-hashes", "--requirement", requirements)
    [wheel] = (directory / "dist").glob("*.whl")
    output(*pip, "--no-deps", wheel)


if __name__ == "__main__":
    sys.stdout.write(f"{previous().directory}\n")
