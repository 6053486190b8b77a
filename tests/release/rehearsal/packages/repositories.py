"""Publishes the node packages in signed repositories for apt and dnf."""

from functools import partial
from pathlib import Path
from typing import Final

from tests.harness.documentation import ROOT
from tests.harness.wire import output
from tests.release.rehearsal.stage import NEW, OLD, SITE, Stage
from tests.release.rehearsal.story import Step

SUBJECT: Final = "packages"
NAME: Final = "packages"
"""Of the directory with the repositories, in the site."""
_SCRIPT: Final = ROOT / "packaging/release/package-repositories.sh"
_OWNER: Final = "Rehearsal <rehearsal@example.com>"


def publish(version: str, stage: Stage) -> str:
    """Add the packages of a version to the repositories, signed with the key of this rehearsal."""
    home, directory = stage.once(keys), stage.site / NAME
    output("env", f"GNUPGHOME={home}", _SCRIPT, stage.dist(version), directory, _OWNER)
    packages = [each for each in directory.rglob("*") if each.suffix in {".deb", ".rpm"}]
    size = sum(package.stat().st_size for package in packages)
    return f"{SITE}/{NAME}: {len(packages)} packages, {size / 1e6:.1f} MB"


def keys(stage: Stage) -> Path:
    """Make a key pair, in a directory of gpg."""
    home = stage.new_directory("gnupg")
    home.chmod(0o700)
    gpg = ("env", f"GNUPGHOME={home}", "gpg", "--batch", "--quiet", "--passphrase", "")
    # The agent of gpg would outlive the rehearsal.
    stage.stack.callback(output, "env", f"GNUPGHOME={home}", "gpgconf", "--kill", "all")
    output(*gpg, "--quick-generate-key", _OWNER, "rsa3072", "sign", "1d")
    return home


STEPS: Final = (
    Step(phase="publish", subject=SUBJECT, run=partial(publish, OLD)),
    Step(phase="upgrade", subject=SUBJECT, run=partial(publish, NEW)),
)
