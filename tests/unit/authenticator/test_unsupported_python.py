"""A Python for which the package has no C module: the cache is served, and the error is clear.

After an upgrade of the distribution, `_cffi_backend` is missing for the new interpreter.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from authenticator.clock import SystemClock
from authenticator.state.directory import StateDirectory
from authenticator.state.store import FileStore
from tests.builders import credentials
from tests.builders.kubeconfigs import kubeconfig

PROGRAM = """
import importlib.abc, sys
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, *_):
        if name == MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from authenticator import cli
sys.argv[0] = "/bin/true"
sys.exit(cli.main())
"""
ERROR = f"ProgramIncomplete: Python 3.{sys.version_info[1]} cannot import a module of this program"


def run(*arguments: str, missing: str = "_cffi_backend") -> subprocess.CompletedProcess[str]:
    """Run the full program without one module, by default the C module."""
    return subprocess.run(
        [sys.executable, "-I", "-c", f"MISSING = {missing!r}{PROGRAM}", *arguments],
        env={**os.environ, "KUBERNETES_EXEC_INFO": credentials.WITH_CA.decode()},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    """Return the settings of a node with a bootstrap credential."""
    bootstrap = tmp_path / "bootstrap.conf"
    bootstrap.write_text(json.dumps(kubeconfig()), encoding="utf-8")
    return [
        f"--state-dir={tmp_path / 'state'}",
        f"--bootstrap-kubeconfig={bootstrap}",
        "--node-name=worker-1",
        "--provider-id=test:///1",
    ]


def test_due_certificate_is_served(tmp_path: Path, flags: list[str]) -> None:
    received = int(time.time()) - 6 * credentials.DAY
    with StateDirectory(tmp_path / "state") as directory:
        store = FileStore(directory, SystemClock())
        store.save_credential(credentials.make(received, exec_info=credentials.WITH_CA))
    served = run(*flags)
    assert served.returncode == 0, served.stderr
    assert json.loads(served.stdout)["status"]["clientCertificateData"]


def test_call_without_a_certificate_names_the_python_and_the_remedy(
    tmp_path: Path, flags: list[str]
) -> None:
    failed = run(*flags)
    assert failed.returncode == 2
    [line] = failed.stderr.splitlines()
    assert ERROR in line
    assert "install a version of it that supports this Python" in line
    [record] = (tmp_path / "state/runs.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(record)["reason"] == "ProgramIncomplete"


def test_command_that_needs_a_missing_module_names_it(flags: list[str]) -> None:
    failed = run("endorsement-key", *flags)
    assert failed.returncode == 2
    assert ERROR in failed.stderr
    assert "Traceback" not in failed.stderr


def test_workstation_without_the_binding_to_the_tpm_is_sent_to_a_node(flags: list[str]) -> None:
    """It is installed there with `kubectl attestation`, without the extra of the node."""
    failed = run("endorsement-key", *flags, missing="tpm2_pytss")
    assert failed.returncode == 2
    [line] = failed.stderr.splitlines()
    assert "run this command on a node" in line


def test_doctor_names_it_and_makes_its_other_checks(tmp_path: Path, flags: list[str]) -> None:
    report = run("doctor", *flags, f"--kubeconfig={tmp_path / 'kubelet.conf'}").stdout
    assert ERROR in report
    assert "ok     identity: node worker-1, provider ID test:///1" in report
