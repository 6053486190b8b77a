"""The CPython of the bundled packages is fetched by its digest."""

import hashlib
import platform
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Final

import pytest

PACKAGE: Final = Path(__file__).parents[3] / "packaging/node/package"
PIN: Final = re.compile(
    r"(?P<machine>x86_64|aarch64) [0-9a-f]{64} "
    r"https://github\.com/astral-sh/python-build-standalone/releases/download/(?P<release>\d{8})/"
    r"cpython-(?P<version>3\.1[1-4]\.\d+)%2B(?P=release)-(?P=machine)"
    r"-unknown-linux-gnu-install_only_stripped\.tar\.gz"
)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Write an archive in the layout of python-build-standalone."""
    source = tmp_path / "source/python"
    (source / "bin").mkdir(parents=True)
    (source / "bin/python3").write_text("#!/bin/sh\n")
    path = tmp_path / "cpython.tar.gz"
    with tarfile.open(path, "w:gz") as opened:
        opened.add(source, arcname="python")
    return path


def fetch(archive: Path, digest: str, machine: str = "") -> subprocess.CompletedProcess[str]:
    """Run the script with a pin file that names a local archive; the result goes to `python`."""
    scripts = archive.with_name("scripts")
    scripts.mkdir()
    shutil.copy(PACKAGE / "fetch-python.sh", scripts)
    pin = f"{machine or platform.machine()} {digest} {archive.as_uri()}\n"
    (scripts / "python.txt").write_text(pin, encoding="utf-8")
    return subprocess.run(
        [scripts / "fetch-python.sh", archive.with_name("python")],
        check=False, capture_output=True, text=True,
    )  # fmt: skip


def test_archive_with_the_pinned_digest_is_unpacked(archive: Path) -> None:
    stale = archive.with_name("python") / "lib/python3.13"
    stale.mkdir(parents=True)
    fetched = fetch(archive, hashlib.sha256(archive.read_bytes()).hexdigest())
    assert fetched.returncode == 0, fetched.stderr
    assert (archive.with_name("python") / "bin/python3").is_file()
    assert not stale.exists()


def test_archive_with_another_digest_is_not_unpacked(archive: Path) -> None:
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    archive.write_bytes(archive.read_bytes() + b"\0")
    refused = fetch(archive, digest)
    assert refused.returncode == 1
    assert "does not have the SHA-256 that python.txt pins" in refused.stderr
    assert not archive.with_name("python").exists()


def test_unreachable_archive_is_named_with_the_next_step(archive: Path) -> None:
    """Only curl reported it: neither the URL nor what needs it was named."""
    archive.unlink()
    refused = fetch(archive, "0" * 64)
    assert refused.returncode == 1
    assert f"cannot download {archive.as_uri()}" in refused.stderr
    assert "`make packages`" in refused.stderr
    assert not archive.with_name("python").exists()


def test_machine_without_a_pin_is_refused(archive: Path) -> None:
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    refused = fetch(archive, digest, machine="s390x")
    assert refused.returncode == 1
    assert "has no CPython for" in refused.stderr


def test_pins_name_one_release_for_both_architectures() -> None:
    lines = (PACKAGE / "python.txt").read_text(encoding="utf-8").splitlines()
    pins = [PIN.fullmatch(line) for line in lines if not line.startswith("#")]
    assert [pin and pin["machine"] for pin in pins] == ["x86_64", "aarch64"]
    assert len({(pin["version"], pin["release"]) for pin in pins if pin}) == 1
    assert f"CPython {pins[0] and pins[0]['version']} " in lines[0]
