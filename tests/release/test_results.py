"""The files in dist/ are complete and describe each other. `make dist` runs these tests."""

import json
import os
import re
import subprocess
import tarfile
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final, cast

import pytest

from builders.describe import BILL, CHECKSUMS
from builders.version import PROJECT, project_version, semantic_version
from tests.controlplane import provide

DIST: Final = PROJECT / "dist"
VERSION: Final = project_version()
IMAGE: Final = f"node-attestation-signer-{semantic_version()}-linux"


def load(name: str) -> dict[str, Any]:
    """Return a JSON document of dist/."""
    return cast("dict[str, Any]", json.loads((DIST / name).read_text(encoding="utf-8")))


def locked(name: str) -> dict[str, str]:
    """Return the version of each package of a lock."""
    text = (PROJECT / f"requirements/{name}.txt").read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9.-]+)==([^ ]+)", text, re.MULTILINE))


def files() -> set[str]:
    """Return the names of all files."""
    return {p.relative_to(DIST).as_posix() for p in DIST.rglob("*") if p.is_file()}


def test_checksums_are_right_and_cover_every_other_file() -> None:
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", CHECKSUMS], cwd=DIST, check=True)
    listed = {line.split("  ", 1)[1] for line in (DIST / CHECKSUMS).read_text().splitlines()}
    assert listed == files() - {CHECKSUMS}


@pytest.mark.parametrize(
    ("artifact", "lock"),
    [
        (f"kubectl-attestation-{VERSION}-linux-amd64", "operator"),
        (f"{IMAGE}-amd64", "signer"),
        (f"{IMAGE}-arm64", "signer"),
    ],
)
def test_bill_of_materials_lists_what_the_lock_names(artifact: str, lock: str) -> None:
    """The image also has Debian packages, and lacks what its Python does not need."""
    libraries = [each for each in load(f"{artifact}{BILL}")["components"] if "purl" in each]
    found = {(each["name"].lower(), each["version"]) for each in libraries}
    assert {pin for pin in locked(lock).items() if pin[0] != "typing-extensions"} <= found
    python = [each for each in libraries if each["purl"].startswith("pkg:pypi/")]
    assert [each["name"] for each in python if not each.get("licenses")] == []
    if artifact.startswith(IMAGE):
        assert {"libc6", "libssl3t64"} <= {name for name, _ in found}


def test_commands_for_operators_are_one_file_with_two_names(tmp_path: Path) -> None:
    with tarfile.open(DIST / f"kubectl-attestation-{VERSION}-linux-amd64.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    (tmp_path / "kubectl_complete-attestation").symlink_to("kubectl-attestation")
    environment = os.environ | {"HOME": str(tmp_path)}

    def output(name: str, *words: str) -> str:
        return subprocess.check_output([tmp_path / name, *words], env=environment, text=True)

    assert output("kubectl-attestation", "version") == f"version: {VERSION}\n"
    assert output("kubectl_complete-attestation", "doc") == "doctor\n:4\n"
    (site,) = (tmp_path / ".shiv").glob("*/site-packages")
    libraries = {
        found.name.lower().replace("_", "-"): found.version
        for found in distributions(path=[str(site)])
    }
    assert libraries == locked("operator") | {"node-attestation": VERSION}


def test_krew_installs_the_commands(tmp_path: Path) -> None:
    archive = DIST / f"kubectl-attestation-{VERSION}-linux-amd64.tar.gz"
    manifest = DIST / "krew.yaml"
    environment = os.environ | {"HOME": str(tmp_path), "KREW_ROOT": str(tmp_path / "krew")}
    krew = str(provide.tool("krew"))
    install = [krew, "install", f"--manifest={manifest}", f"--archive={archive}"]
    subprocess.run(install, env=environment, check=True)
    program = tmp_path / "krew/bin/kubectl-attestation"
    output = subprocess.check_output([program, "version"], env=environment, text=True)
    assert output == f"version: {VERSION}\n"


def test_source_distribution_holds_every_tracked_file() -> None:
    """Also links to directories, such as the CRDs of the chart."""
    top = f"node_attestation-{VERSION}"
    with tarfile.open(DIST / f"{top}.tar.gz") as archive:
        members = archive.getmembers()
    names = {Path(member.name).relative_to(top).as_posix() for member in members}
    tracked = subprocess.check_output(["git", "ls-files", "-z"], cwd=PROJECT, text=True)
    assert set(filter(None, tracked.split("\0"))) <= names
    assert {(member.uid, member.mtime) for member in members} == {(0, members[0].mtime)}
