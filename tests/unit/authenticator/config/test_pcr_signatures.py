"""The file with signatures of PCR values: which of them are sent."""

import json
from pathlib import Path
from typing import Any

import pytest

from authenticator.config import pcr_signatures
from authenticator.errors import PcrSignaturesUnusable
from common.evidence import MAX_PCR_SIGNATURES


def entry(*pcrs: int, size: int = 1000) -> dict[str, Any]:
    return {"pcrs": [*pcrs], "pkfp": "00", "pol": "11", "sig": "A" * size}


def written(directory: Path, document: object) -> Path:
    path = directory / "tpm2-pcr-signature.json"
    path.write_text(json.dumps(document))
    return path


def test_only_entries_of_the_challenge_are_sent(tmp_path: Path) -> None:
    """With two keys, as in a rotation, the file had 16,536 bytes, and was dropped silently."""
    document = {
        "sha1": [entry(11, size=9000)],
        "sha256": [entry(11), entry(4, 11), entry(7, 11, size=9000)],
    }
    path = written(tmp_path, document)
    assert path.stat().st_size > MAX_PCR_SIGNATURES
    sent = pcr_signatures.load_for(path, {"sha256": (4, 11), "sha384": (0,)})
    assert sent is not None
    assert json.loads(sent) == {"sha256": document["sha256"][:2]}


def test_too_many_entries_of_the_challenge_name_file_and_limit(tmp_path: Path) -> None:
    path = written(tmp_path, {"sha256": [entry(11)] * 16})
    with pytest.raises(PcrSignaturesUnusable, match=rf"{path}: .* room for {MAX_PCR_SIGNATURES}"):
        pcr_signatures.load_for(path, {"sha256": (11,)})
    with pytest.raises(PcrSignaturesUnusable, match="room for"):
        pcr_signatures.require_usable(path)


@pytest.mark.parametrize(
    "document", [[], {"sha256": 1}, {"sha256": [1]}, {"sha256": [{}]}, {"sha256": [{"pcrs": "x"}]}]
)
def test_other_file_is_named(tmp_path: Path, document: object) -> None:
    path = written(tmp_path, document)
    with pytest.raises(PcrSignaturesUnusable, match="is not a file of systemd-measure"):
        pcr_signatures.load_for(path, {"sha256": (11,)})


def test_file_over_its_limit_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b" " * (pcr_signatures.FILE_LIMIT + 1))
    with pytest.raises(PcrSignaturesUnusable, match="over 1048576 bytes"):
        pcr_signatures.require_usable(path)


def test_missing_file_is_no_error(tmp_path: Path) -> None:
    """A policy may not need it."""
    assert pcr_signatures.load_for(tmp_path / "none", {"sha256": (11,)}) is None
    assert pcr_signatures.require_usable(tmp_path / "none") is None
