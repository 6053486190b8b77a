"""The examples of bootstrap data match the program, its units and each other.

tests/integration/test_bootstrap_data.py gives them to a real API server and to the real kubeadm,
and tests/imaging to cloud-init, Ignition and Ansible.
"""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from authenticator.config.command_line import parse_arguments
from tests.release import bootstrap
from tests.release.bootstrap import EXAMPLES, File

PACKAGING = Path(__file__).parents[3] / "packaging"
NODE = PACKAGING / "node"
SETTINGS = "/etc/default/kubelet-authenticator-tpm"
SERVICE = "/etc/systemd/system/kubelet-authenticator-tpm-replace.service"
HOST_UNITS = Path("/usr/lib/systemd/system")

each_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)


def files(example: Path) -> dict[str, File]:
    """Return the files of an example by path."""
    return {file.path: file for file in bootstrap.files(example)}


def test_readme_lists_every_example() -> None:
    readme = (PACKAGING / "bootstrap/README.md").read_text(encoding="utf-8")
    assert [example.name for example in EXAMPLES if f"| `{example.name}` |" not in readme] == []


@each_example
def test_drop_in_reads_the_settings_and_the_program_accepts_them(example: Path) -> None:
    drop_in = (NODE / "systemd/zz-20-kubelet-authenticator-tpm.conf").read_text(encoding="utf-8")
    assert f"EnvironmentFile=-{SETTINGS}" in drop_in
    [line] = files(example)[SETTINGS].content.splitlines()
    [assignment] = shlex.split(line)
    name, _, flags = assignment.partition("=")
    assert f"join ${name}" in drop_in
    parse_arguments(["join", *shlex.split(flags)])  # exits if it does not accept them


@each_example
def test_bootstrap_token_is_readable_by_root_alone(example: Path) -> None:
    for file in files(example).values():
        assert file.mode == (0o600 if "token:" in file.content else 0o644), file.path


@each_example
def test_kubeadm_waits_an_hour_for_the_kubelet(example: Path) -> None:
    """After its default of 4 minutes it removes the bootstrap credential of an unknown TPM."""
    match yaml.safe_load(example.read_text(encoding="utf-8")):
        case {"spec": {"kubeadmConfigSpec": {"joinConfiguration": {"timeouts": timeouts}}}} | {
            "spec": {"template": {"spec": {"joinConfiguration": {"timeouts": timeouts}}}}
        }:
            assert timeouts == {"kubeletHealthCheckSeconds": 3600}
        case _:
            [content] = [
                file.content
                for file in files(example).values()
                if "kind: JoinConfiguration" in file.content
            ]
            assert yaml.safe_load(content)["timeouts"] == {"kubeletHealthCheck": "1h0m0s"}


def test_service_that_replaces_the_certificate_is_valid(tmp_path: Path) -> None:
    units = tmp_path / "usr/lib/systemd/system"
    units.mkdir(parents=True)
    for path in [*HOST_UNITS.glob("*.target"), *HOST_UNITS.glob("*.slice")]:
        shutil.copy(path, units)
    (units / "kubelet.service").write_text("[Service]\nExecStart=/usr/bin/kubelet\n")
    for program in ("usr/bin/kubelet", "usr/bin/systemctl", "usr/bin/kubelet-authenticator-tpm"):
        (tmp_path / program).parent.mkdir(exist_ok=True)
        (tmp_path / program).touch(mode=0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sh").touch(mode=0o755)
    service = files(bootstrap.DIRECTORY / "control-plane.yaml")[SERVICE]
    (units / Path(SERVICE).name).write_text(service.content, encoding="utf-8")
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", f"--root={tmp_path}", Path(SERVICE).name],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")


def test_control_plane_starts_the_service_that_it_installs() -> None:
    example = bootstrap.DIRECTORY / "control-plane.yaml"
    spec = yaml.safe_load(example.read_text(encoding="utf-8"))["spec"]["kubeadmConfigSpec"]
    assert f"systemctl enable --now --no-block {Path(SERVICE).name}" in spec["postKubeadmCommands"]
    assert SERVICE in files(example)


def test_image_is_checked_for_the_files_that_the_package_installs() -> None:
    goss = PACKAGING / "image-builder/goss/goss-node-attestation.yaml"
    document = yaml.safe_load(goss.read_text(encoding="utf-8"))
    package = yaml.safe_load((NODE / "package/nfpm.yaml").read_text(encoding="utf-8"))
    assert document["package"].keys() == {package["name"]}
    checked = document["file"]
    sources = {
        path.name: path.read_text(encoding="utf-8") for path in NODE.rglob("*") if path.is_file()
    }
    for path, expected in checked.items():
        for line in expected.get("contains", ()):
            assert line in sources[Path(path).name], path
