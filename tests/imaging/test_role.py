"""Ansible installs the package with the role, and the image then passes the checks of goss."""

import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from builders.version import PROJECT
from tests.imaging.conftest import Run
from tests.packaging.node import packages

IMAGE_BUILDER: Final = PROJECT / "packaging/image-builder"
PLAYBOOK: Final = """\
- hosts: localhost
  connection: local
  roles:
  - /srv/roles/node_attestation
"""


@pytest.fixture
def playbook(system: Path) -> str:
    """Return the path, in the system, of a playbook with the role."""
    shutil.copytree(IMAGE_BUILDER / "roles", system / "srv/roles", dirs_exist_ok=True)
    (system / "srv/playbook.yaml").write_text(PLAYBOOK, encoding="utf-8")
    return "/srv/playbook.yaml"


def play(run: Run, playbook: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run a playbook on the system itself."""
    return run("ansible-playbook", "--inventory=localhost,", *flags, playbook)


def failed_checks(run: Run, system: Path) -> list[str]:
    """Evaluate the checks of goss that our file uses. No registry that we reach has goss."""
    text = (IMAGE_BUILDER / "goss/goss-node-attestation.yaml").read_text(encoding="utf-8")
    checks: dict[str, dict[str, Any]] = yaml.safe_load(text)
    assert checks.keys() == {"package", "file", "command"}
    failed = []
    for name, expected in checks["package"].items():
        installed = run("dpkg-query", "--show", "--showformat=${Status}", name).stdout
        if (installed == "install ok installed") != expected["installed"]:
            failed.append(name)
    for name, expected in checks["file"].items():
        path = system / name.lstrip("/")
        content = path.read_text(encoding="utf-8") if path.exists() else ""
        contained = all(line in content for line in expected.get("contains", ()))
        if path.exists() != expected["exists"] or not contained:
            failed.append(name)
    for command, expected in checks["command"].items():
        if run("sh", "-c", command).returncode != expected["exit-status"]:
            failed.append(command)
    return failed


def test_role_installs_the_package_and_writes_the_settings(
    system: Path, run: Run, playbook: str
) -> None:
    assert failed_checks(run, system)
    package = packages.find(PROJECT / "dist", packages.DEB)
    shutil.copy(package, system / "srv")
    played = play(
        run, playbook,
        f"--extra-vars=node_attestation_package=/srv/{package.name}",
        "--extra-vars={'node_attestation_join_args': '--provider=aws'}",
    )  # fmt: skip
    assert played.returncode == 0, played.stdout
    assert failed_checks(run, system) == []
    settings = system / "etc/default/kubelet-authenticator-tpm"
    assert settings.read_text() == 'KUBELET_AUTHENTICATOR_JOIN_ARGS="--provider=aws"\n'
    assert list((system / "var/tmp").glob("*.deb")) == []
    identity = system / "etc/kubernetes/kubelet.conf"
    identity.parent.mkdir()
    identity.touch()
    assert failed_checks(run, system) == ["/etc/kubernetes/kubelet.conf"]


def test_role_demands_a_package(run: Run, playbook: str) -> None:
    refused = play(run, playbook)
    assert refused.returncode != 0
    assert "node_attestation_package must be the path" in refused.stdout
