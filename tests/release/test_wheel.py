"""The wheel is for any Python and system: it has ordinary entry points and complete metadata."""

import os
import shutil
import zipfile
from email.parser import HeaderParser
from pathlib import Path
from typing import Final

import pytest

from builders.systems import command_in, overlay, package_index
from builders.version import PROJECT, project_version
from tests.harness.debian_root import SUITES, debian_root
from tests.harness.wire import output

VERSION: Final = project_version()
INSTALL: Final = """
python3 -m venv /srv/fresh
pip="/srv/fresh/bin/pip install --quiet"
$pip --no-deps --require-hashes --only-binary :all: --requirement /srv/operator.txt
$pip --no-deps --no-index /srv/*.whl
"""


@pytest.fixture
def wheel() -> Path:
    """Return the wheel that `make wheel` has written."""
    [path] = (PROJECT / "dist").glob("*.whl")
    return path


def test_wheel_has_nothing_of_the_building_machine(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"authenticator/cli.py", "signer/cli.py", "common/errors.py"} <= set(names)
    tops = {name.split("/")[0] for name in names}
    assert tops == {"authenticator", "common", "signer", f"node_attestation-{VERSION}.dist-info"}


def test_metadata_has_readme_license_and_address(wheel: Path) -> None:
    text = zipfile.ZipFile(wheel).read(f"node_attestation-{VERSION}.dist-info/METADATA")
    metadata = HeaderParser().parsestr(text.decode())
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload() == (PROJECT / "README.md").read_text(encoding="utf-8")
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["License-File"] == "LICENSE"
    assert metadata["Project-URL"].startswith("Homepage, https://")


@pytest.mark.parametrize("suite", [*SUITES, "testing"])
def test_commands_of_operators_run_in_a_fresh_environment(
    suite: str, wheel: Path, tmp_path: Path
) -> None:
    """With Python 3.11, 3.13 and 3.14."""
    with overlay(tmp_path / "mounts", tmp_path / "upper", (debian_root(suite),)) as root:
        for file in (wheel, PROJECT / "requirements/operator.txt"):
            shutil.copy(file, root / "srv")
        index = package_index(os.environ)
        output(*command_in(root, "sh", "-euc", INSTALL, environment=index))
        program = "/srv/fresh/bin/kubectl-attestation"
        assert output(*command_in(root, program, "version")) == f"version: {VERSION}\n"
        assert "doctor" in output(*command_in(root, program, "--help"))
