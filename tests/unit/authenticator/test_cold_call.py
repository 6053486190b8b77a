"""What calls import: those that have nothing to do, and those that join.

client-go has no backoff, and repeats a call that has nothing to do at once.
"""

import json
import os
import subprocess
import sys
import sysconfig
import time
from dataclasses import asdict
from pathlib import Path

from authenticator.clock import SystemClock
from authenticator.enroll.fingerprint import digest
from authenticator.model import Cooldown
from authenticator.state.directory import StateDirectory
from authenticator.state.store import FileStore
from tests.builders import credentials
from tests.builders.kubeconfigs import kubeconfig

SLOW = {"cryptography", "requests", "urllib3", "tpm2_pytss", "ssl"}
REPORT = """
import atexit, sys
atexit.register(lambda: print(*sorted({name.partition(".")[0] for name in sys.modules})))
from authenticator import cli
from authenticator.state.store import FileStore
FileStore.load_cooldown = lambda store, fingerprint: next(iter(store.cooldowns()), None)
sys.argv[0] = "kubelet-authenticator-tpm"
sys.exit(cli.main())
"""
"""Runs the program, whose cooldown is the stored one whatever its fingerprint."""


def test_call_in_a_cooldown_loads_no_slow_library(tmp_path: Path) -> None:
    """Issue 11, point 30: 340 ms of CPU for each call, 40 % of it for `cryptography`."""
    bootstrap = tmp_path / "bootstrap.conf"
    bootstrap.write_text(json.dumps(kubeconfig()), encoding="utf-8")
    clock = SystemClock()
    cooldown = Cooldown(
        boot_id=clock.boot_id(),
        until=clock.boottime() + 600,
        failures=3,
        reason="RequestDenied",
        message="no",
        fingerprint=digest("any"),
        clock_offset=time.time(),
    )
    with StateDirectory(tmp_path / "state") as directory:
        FileStore(directory, clock).save_cooldown(cooldown)
    command = [sys.executable, "-I", "-c", REPORT, f"--state-dir={tmp_path / 'state'}"]
    command += [f"--bootstrap-kubeconfig={bootstrap}", "--node-name=worker-1", "--provider=aws"]
    environment = {**os.environ, "KUBERNETES_EXEC_INFO": credentials.WITH_CA.decode()}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "CoolingDown" in result.stderr, (result.stderr, asdict(cooldown))
    assert set(result.stdout.split()) & SLOW == set()


JOIN = """
import sys
import authenticator.cli
import authenticator.config.bootstrap_credential
import authenticator.enroll.exchange
import authenticator.kube.client
import authenticator.tpm.open_tpm
import common.formats.strict_yaml
print(*sys.modules)
"""
"""Imports what a cold join imports, as `wiring` and `enroll` do step by step."""

THIRD_PARTY = {"_cffi_backend", "cryptography", "tpm2_pytss", "urllib3", "yaml"}
SETUPTOOLS = "_distutils_hack"
"""It starts with the interpreter of a virtual environment; no node has it."""
PARSER_OF_THE_SIGNER = {
    "common.requests.pkcs10",
    "common.requests.pkcs10_asn1",
    "common.requests.pkcs10_key",
}


def test_cold_join_imports_only_what_it_uses() -> None:
    """Issue 14: `requests` and the parser of PKCS#10 took a third of the time of all imports."""
    command = [sys.executable, "-I", "-c", JOIN]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    modules = set(result.stdout.split())
    assert modules & PARSER_OF_THE_SIGNER == set()
    packages = Path(sysconfig.get_path("platlib"))
    installed = {path.name.partition(".")[0] for path in packages.iterdir()} - {SETUPTOOLS}
    assert {name.partition(".")[0] for name in modules} & installed == THIRD_PARTY


EXIT = """
import atexit, gc, sys
atexit.register(lambda: print(gc.isenabled(), len(gc.get_objects())))
from authenticator import cli
sys.argv = ["kubelet-authenticator-tpm", "doctor", "--unknown"]
sys.exit(cli.main())
"""
MOST_OBJECTS_LEFT = 1000


def test_exit_has_no_objects_to_search_for_garbage() -> None:
    """Issue 14: the search at the exit of the interpreter took 60 ms of CPU after a cold join."""
    result = subprocess.run(
        [sys.executable, "-I", "-c", EXIT], capture_output=True, text=True, check=False
    )
    enabled, objects = result.stdout.splitlines()[-1].split()
    assert enabled == "False"
    assert int(objects) < MOST_OBJECTS_LEFT
