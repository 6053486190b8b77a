"""The scripts of the node packages, without a package manager: their bytecode, and its removal."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

PACKAGE: Final = Path(__file__).parents[3] / "packaging/node/package"
INSTALLED: Final = "/usr/lib/kubelet-authenticator-tpm"
OTHER: Final = "def main(): print('ran')\n"


def install(directory: Path, script: str) -> Path:
    """Install a script that runs the modules in a directory, and compile them."""
    modules = directory / "lib/authenticator"
    modules.mkdir(parents=True)
    (modules / "__init__.py").touch()
    (modules / "launcher.py").write_text(f"{OTHER}if __name__ == '__main__':\n    main()\n")
    (modules / "cli.py").write_text("from authenticator import other\nmain = other.main\n")
    (modules / "other.py").write_text(OTHER)
    command = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    subprocess.run([*command, modules], check=True)
    text = (PACKAGE / script).read_text(encoding="utf-8")
    program = directory / script
    text = text.replace("/usr/bin/python3", sys.executable).replace(INSTALLED, str(directory))
    program.write_text(text)
    program.chmod(0o755)
    return program


DAMAGES: dict[str, Callable[[Path], object]] = {
    "none": lambda _: None,
    "removed": Path.unlink,
    "emptied": lambda path: path.write_bytes(b""),
    "cut off": lambda path: os.truncate(path, path.stat().st_size - 9),
    "zeros": lambda path: path.write_bytes(path.read_bytes()[:20] + bytes(100)),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    ("script", "module"),
    [("kubelet-authenticator-tpm", "launcher"), ("kubelet-authenticator-tpm-full", "other")],
)
def test_damaged_bytecode_falls_back_to_the_source(
    tmp_path: Path, script: str, module: str, damage: str
) -> None:
    """As after a power cut. No file of the package has changed, so that `dpkg -V` shows nothing."""
    program = install(tmp_path, script)
    [bytecode] = (tmp_path / "lib/authenticator/__pycache__").glob(f"{module}.*.pyc")
    DAMAGES[damage](bytecode)
    ran = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("ran\n", "", 0)


def test_upgrade_removes_no_directory_that_a_program_may_write_into(tmp_path: Path) -> None:
    """Dpkg failed in 4 of 16 upgrades: `rm` found a directory that was not empty any more."""
    program = install(tmp_path, "kubelet-authenticator-tpm")
    script = (PACKAGE / "preinstall.sh").read_text(encoding="utf-8")
    # What a program that runs has begun to write.
    half = tmp_path / "lib/authenticator/__pycache__/launcher.cpython-311.pyc.123"
    half.touch()
    subprocess.run(["sh", "-c", script.replace(INSTALLED, str(tmp_path))], check=True)
    assert [path.name for path in half.parent.iterdir()] == [half.name]
    assert subprocess.run([program], capture_output=True, check=True).stdout == b"ran\n"


def remove(root: Path, kubelet_conf: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the script before a removal on a machine with a kubelet.conf, without systemd."""
    path = root / "kubelet.conf"
    path.write_text(kubelet_conf)
    script = (PACKAGE / "preremove.sh").read_text(encoding="utf-8")
    script = script.replace("/etc/kubernetes/kubelet.conf", str(path))
    script = script.replace("/run/systemd/system", str(root / "none"))
    command = [shutil.which("sh") or "sh", "-c", script, "preremove.sh", "remove"]
    environment = os.environ | variables
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_removal_is_refused_while_the_kubelet_runs_the_program(tmp_path: Path) -> None:
    joined = "command: /usr/bin/kubelet-authenticator-tpm\n"
    refused = remove(tmp_path, joined)
    assert refused.returncode == 1
    assert 'run "kubelet-authenticator-tpm leave" first' in refused.stderr
    assert remove(tmp_path, joined, KUBELET_AUTHENTICATOR_REMOVE="1").returncode == 0
    assert remove(tmp_path, "client-certificate: /x\n").returncode == 0
