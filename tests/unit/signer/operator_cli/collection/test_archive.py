"""The archive of a bug report: its files, and the list of what is in it."""

import json
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from signer.operator_cli.collection.allowed_fields import NAME
from signer.operator_cli.collection.archive import Archive

DIGEST = "5f" * 32


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


def test_log_lines_keep_what_is_listed(archive: Archive) -> None:
    verdict = {
        "time": "2026-11-23T09:30:00.123+00:00",
        "event": "verdict",
        "node": "node-1",
        "reason": "EndorsementKeyBanned",
        "message": "stolen from rack 7",
        "endorsementKey": DIGEST,
    }
    other = {"event": f"key {DIGEST}", "detail": "secret"}
    text = "\n".join((json.dumps(verdict), json.dumps(other), "Traceback: secret"))
    archive.add_log("log.json", "log lines", text)
    assert json.loads(archive.files["log.json"]) == [
        {
            "time": verdict["time"],
            "event": "verdict",
            "node": "node-1",
            "reason": "EndorsementKeyBanned",
        },
        {},
        {},
    ]


def test_samples_of_metrics_keep_what_is_listed(archive: Archive) -> None:
    text = (
        "# HELP node_attestation_verdicts_total Verdicts\n"
        'node_attestation_verdicts_total{cluster="team-a/c1",reason="PcrPolicyMismatch"} 3.0\n'
        'node_attestation_trust_anchor_not_after_seconds{policy="p",subject="CN=secret"} 1.8e+09\n'
        'other_secret{a="b"} 1\n'
        'node_attestation_ready{cluster="\\"} 1"} NaN\n'
    )
    archive.add_metrics("metrics.json", "samples", text)
    verdicts, anchor, other = json.loads(archive.files["metrics.json"])
    assert verdicts == {
        "name": "node_attestation_verdicts_total",
        "labels": {"cluster": "team-a/c1", "reason": "PcrPolicyMismatch"},
        "value": 3.0,
    }
    assert anchor["labels"] == {"policy": "p"}
    assert other == {"labels": {}, "value": 1.0}
