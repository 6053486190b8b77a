"""Each artifact with libraries of others gets a bill, and each file a checksum."""

import io
import json
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from builders.describe import CHECKSUMS, describe

SYFT = """\
#!/bin/sh
listed=$(find . -name METADATA)
metadata='{"timestamp": "now", "tools": []}'
echo '{"serialNumber": "x", "metadata": '$metadata', "found": "'$listed'"}'
"""
COMMANDS = "kubectl-attestation-1.2.3-linux-amd64"


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    """Return a directory with the commands of operators and a manifest."""
    program = io.BytesIO()
    with zipfile.ZipFile(program, "w") as file:
        file.writestr("site-packages/x-1.dist-info/METADATA", "Name: x")
    directory = tmp_path / "dist"
    directory.mkdir()
    with tarfile.open(directory / f"{COMMANDS}.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("kubectl-attestation")
        member.size = len(program.getvalue())
        archive.addfile(member, io.BytesIO(program.getvalue()))
    (directory / "crds.yaml").write_text("kind: List\n", encoding="utf-8")
    return directory


def test_bill_is_of_the_unpacked_files_and_the_same_in_each_run(
    dist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syft = tmp_path / "syft"
    syft.write_text(SYFT, encoding="utf-8")
    syft.chmod(0o755)
    monkeypatch.setenv("SYFT", str(syft))
    describe(dist)
    bill = json.loads((dist / f"{COMMANDS}.cdx.json").read_text(encoding="utf-8"))
    assert bill == {
        "metadata": {"tools": []},
        "found": "./site-packages/x-1.dist-info/METADATA",
    }
    sums = (dist / CHECKSUMS).read_text(encoding="utf-8")
    assert [line.split()[1] for line in sums.splitlines()] == [
        "crds.yaml",
        f"{COMMANDS}.cdx.json",
        f"{COMMANDS}.tar.gz",
    ]
    subprocess.run(["sha256sum", "--check", "--quiet", CHECKSUMS], cwd=dist, check=True)
    describe(dist)
    assert (dist / CHECKSUMS).read_text(encoding="utf-8") == sums
