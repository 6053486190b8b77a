"""cloud-init and Ignition accept the examples of packaging/bootstrap."""

import subprocess
from pathlib import Path

import pytest

from tests.controlplane.provide import tool
from tests.imaging.conftest import Run
from tests.release import bootstrap


@pytest.mark.parametrize("example", bootstrap.CLOUD_CONFIGS, ids=lambda path: path.name)
def test_cloud_init_accepts_the_example(system: Path, run: Run, example: Path) -> None:
    text = example.read_text(encoding="utf-8")
    target = system / "srv/user-data"

    def check(content: str) -> subprocess.CompletedProcess[str]:
        target.write_text(content, encoding="utf-8")
        return run("cloud-init", "schema", "--config-file", "/srv/user-data")

    accepted = check(text)
    assert accepted.returncode == 0, accepted.stderr
    assert "Valid" in accepted.stdout
    assert check(text.replace("- path:", "- paht:")).returncode == 1


@pytest.mark.parametrize("example", bootstrap.IGNITION, ids=lambda path: path.name)
def test_ignition_accepts_the_example(example: Path, tmp_path: Path) -> None:
    validate = tool("ignition-validate")
    assert subprocess.run([validate, example], check=False).returncode == 0
    wrong = tmp_path / example.name
    wrong.write_text(example.read_text(encoding="utf-8").replace('"data:,', '"dat:,'))
    refused = subprocess.run([validate, wrong], check=False, capture_output=True, text=True)
    assert refused.returncode != 0
    assert "invalid url scheme" in (refused.stdout + refused.stderr).lower()
