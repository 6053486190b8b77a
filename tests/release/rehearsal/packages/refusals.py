"""Changes one file of the repositories at a time. apt and dnf must refuse to install then."""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.harness.wire import output
from tests.release.rehearsal.packages import repositories, systems
from tests.release.rehearsal.packages.repositories import NAME, SUBJECT
from tests.release.rehearsal.stage import OLD, SITE, Stage
from tests.release.rehearsal.story import Step


@dataclass(frozen=True, slots=True)
class _Case:
    name: str
    tool: str
    file: str
    """A pattern of the file in the repositories that is changed."""
    alter: Callable[[Path, Stage], None]
    """Changes that file."""
    reason: str
    """A pattern of what the package manager says."""


def _change_last_byte(file: Path, _: Stage) -> None:
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def _change_digit(file: Path, _: Stage) -> None:
    """Change a digest in a signed text."""
    content, count = re.subn(rb"[0-8](?=[0-9a-f]{20})", b"9", file.read_bytes(), count=1)
    assert count == 1
    file.write_bytes(content)


def _replace_by_unsigned(file: Path, stage: Stage) -> None:
    """Put the package without its signature into the repository, whose own signature is right."""
    shutil.copy(stage.dist(OLD) / file.name, file)
    output("createrepo_c", "--quiet", file.parent)
    index = file.parent / "repodata/repomd.xml"
    gpg = ("env", f"GNUPGHOME={stage.once(repositories.keys)}", "gpg", "--batch", "--yes")
    output(*gpg, "--armor", "--detach-sign", index)


# Of gpgv, which apt runs in Debian 12, and of sqv.
_BAD_SIGNATURE: Final = "signatures were invalid: BADSIG|Message has been manipulated"
_INDEX: Final = "apt/dists/stable/main/binary-amd64/Packages.gz"
_CASES: Final = (
    _Case("InRelease", "apt", "apt/dists/stable/InRelease", _change_digit, _BAD_SIGNATURE),
    _Case("index", "apt", _INDEX, _change_last_byte, "Hash Sum mismatch"),
    _Case("deb", "apt", "apt/pool/main/*_amd64.deb", _change_last_byte, "Hash Sum mismatch"),
    _Case("repomd.xml", "dnf", "rpm/main/repodata/repomd.xml", _change_digit, "Bad GPG signature"),
    _Case("rpm", "dnf", "rpm/main/*.x86_64.rpm", _change_last_byte, "checksum doesn't match"),
    _Case(
        "rpm without signature",
        "dnf",
        "rpm/main/*.x86_64.rpm",
        _replace_by_unsigned,
        "rpm is not signed",
    ),
)


def refuse(stage: Stage) -> str:
    """Install from repositories of which one file is not what was published."""
    seen = []
    for case in _CASES:
        url = _publish(case, stage)
        for system in stage.once(systems.prepared):
            if system.tool == case.tool:
                with pytest.raises(RuntimeError, match=case.reason) as refusal:
                    system.install(url, stage.new_directory("refused"))
                [reason] = re.findall(rf".*(?:{case.reason}).*", str(refusal.value))[:1]
                seen.append(f"{system}, changed {case.name}: {reason.strip()}")
    return "\n".join(seen)


def _publish(case: _Case, stage: Stage) -> str:
    """Publish a copy of the repositories with a changed file. Return its URL."""
    name = f"altered-{case.name.replace(' ', '-')}"
    copy = stage.site / name
    shutil.copytree(stage.site / NAME, copy)
    [file] = copy.glob(case.file)
    case.alter(file, stage)
    return f"{SITE}/{name}"


STEPS: Final = (Step(phase="install", subject=SUBJECT, run=refuse),)
