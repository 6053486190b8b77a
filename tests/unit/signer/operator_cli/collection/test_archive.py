"""The archive of a bug report: the list of what is in it. test_collect.py reads its files."""

import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from signer.operator_cli.collection.allowed_fields import NAME
from signer.operator_cli.collection.archive import Archive


@pytest.fixture
def archive() -> Archive:
    """Return an archive without files."""
    return Archive(datetime(2026, 11, 23, tzinfo=UTC))


def test_manifest_names_each_file_and_what_is_missing(archive: Archive, tmp_path: Path) -> None:
    archive.add("nodes.json", "nodes", [{"name": "a"}, {"name": "b"}], {"name": NAME})
    archive.add_missing("pods.json", "pods")
    path = tmp_path / "report.tar.gz"
    archive.write(path)
    with tarfile.open(path) as written:
        assert written.getnames() == ["node-attestation/MANIFEST", "node-attestation/nodes.json"]
        manifest = written.extractfile("node-attestation/MANIFEST")
        assert manifest is not None
        lines = manifest.read().decode().splitlines()
    assert lines[-2:] == ["nodes.json  2 nodes", "pods.json  missing: pods cannot be read"]


def test_existing_file_is_not_overwritten(archive: Archive, tmp_path: Path) -> None:
    path = tmp_path / "report.tar.gz"
    path.write_text("of another person", encoding="utf-8")
    with pytest.raises(FileExistsError):
        archive.write(path)
    assert path.read_text(encoding="utf-8") == "of another person"
