"""The full program: its output, its background runs, and its exit codes.

Whole exchanges are in tests/integration; here the TPM never answers or does not exist. Tests of
what a process inherits, or of background runs, start the installed program; others call it.
"""

import base64
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from authenticator.model import KeyPair
from authenticator.state.credential import STALE_EXPIRATION_SECONDS, Credential, encode
from authenticator.state.store import REPEAT_CALL_SECONDS
from tests.builders import credentials, kubeconfigs
from tests.harness import forked_program
from tests.harness.pki import Authority, ec_key
from tests.harness.process import wait_until

PROGRAM = Path(sys.prefix, "bin", "kubelet-authenticator-tpm")
NO_TPM = "swtpm:path=/nonexistent/socket"
AUTHORITY = Authority.make("cluster", ec_key())
CLIENT = AUTHORITY.client("system:node:worker-1", "system:nodes")
PAIR = KeyPair(certificate=CLIENT.certificate, key=CLIENT.key)
PROMPT_SECONDS = 30
"""Half of the timeout of a call that waits, and enough for one that does not, on a busy machine."""
SHORT_PAUSE_SECONDS = 10

pytestmark = pytest.mark.timeout(180)  # some tests make several such calls


DUE: Final = (credentials.make(0).renew_at + 1) / credentials.DAY
"""Age of a credential whose renewal has just become due, in days."""


@dataclass
class Node:
    """A node without a cluster."""

    directory: Path
    settings: dict[str, Any] = field(default_factory=dict)
    api_version: str = "client.authentication.k8s.io/v1"

    @property
    def state(self) -> Path:
        return self.directory / "state"

    @property
    def exec_info(self) -> bytes:
        config = {
            "nodeName": "worker-1",
            "providerID": "test:///1",
            "stateDir": str(self.state),
            "bootstrapKubeconfig": str(self.directory / "bootstrap.conf"),
            "tcti": NO_TPM,
            **self.settings,
        }
        cluster = {
            "server": "https://127.0.0.1:1",
            "certificate-authority-data": base64.b64encode(AUTHORITY.pair.certificate).decode(),
            "config": config,
        }
        spec = {"cluster": cluster, "interactive": False}
        document = {"kind": "ExecCredential", "apiVersion": self.api_version, "spec": spec}
        return json.dumps(document).encode() + b"\n"

    def store_credential(self, *, age_days: float) -> Credential:
        """Store a credential of a week in the cache, as if received some days ago."""
        received = int(time.time() - age_days * credentials.DAY)
        credential = credentials.make(received, exec_info=self.exec_info, pair=PAIR)
        self.state.mkdir(mode=0o700, exist_ok=True)
        credentials.write_private(self.state / "credential.pem", encode(credential))
        return credential

    def run(
        self, *arguments: str, exec_info: bool = True, stderr: int = subprocess.PIPE
    ) -> subprocess.CompletedProcess[str]:
        """Run the installed program with pipes, as client-go does."""
        return subprocess.run(
            [PROGRAM, *arguments],
            env=self.environment(exec_info=exec_info),
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=PROMPT_SECONDS,
            check=False,
        )

    def call(self, *arguments: str, exec_info: bool = True) -> subprocess.CompletedProcess[str]:
        environment = self.environment(exec_info=exec_info)
        return forked_program.call(*arguments, environment=environment, seconds=PROMPT_SECONDS)

    def environment(self, *, exec_info: bool) -> dict[str, str]:
        """Return the environment, with the exec info as client-go passes it."""
        extra = {"KUBERNETES_EXEC_INFO": self.exec_info.decode()} if exec_info else {}
        return dict(os.environ) | extra

    def records(self, count: int) -> list[dict[str, Any]]:
        """Wait for this number of run records and return them."""
        path = self.state / "runs.jsonl"

        def lines() -> list[str]:
            return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

        wait_until(lambda: len(lines()) >= count, what="the background run writes its record")
        return [json.loads(line) for line in lines()]

    def wait_for_background_log(self, text: str) -> None:
        """Wait until a background run has logged the text."""
        log = self.state / "background.log"
        wait_until(
            lambda: text in log.read_text(encoding="utf-8"), what=f"a background run logs {text}"
        )

    def wait_for_background_end(self) -> None:
        """Wait until no background run holds the lock: it writes its record before it ends."""
        wait_until(lambda: not background_runs(self), what="the background run ends")

    def cool_down_longer(self) -> None:
        """Add a minute to the cooldown: on a busy machine a call may take longer than it."""
        path = self.state / "cooldown.json"
        document = json.loads(path.read_bytes())
        (cooldown,) = document["entries"]
        assert cooldown["until"] <= time.clock_gettime(time.CLOCK_BOOTTIME) + SHORT_PAUSE_SECONDS
        cooldown["until"] += 60
        credentials.write_private(path, json.dumps(document).encode())


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def expires_in(result: subprocess.CompletedProcess[str]) -> float:
    text = json.loads(result.stdout)["status"]["expirationTimestamp"]
    moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return moment.timestamp() - time.time()


def test_due_certificate_is_served_and_renewed_in_the_background(node: Node) -> None:
    credential = node.store_credential(age_days=DUE)
    result = node.run()
    assert (result.returncode, result.stderr, result.stdout.count("\n")) == (0, "", 1)
    status = json.loads(result.stdout)["status"]
    assert status["clientKeyData"] == credential.key_pair.key.decode()
    assert 0 < expires_in(result) <= STALE_EXPIRATION_SECONDS + 1
    start, record = node.records(2)
    assert start["result"] == "started"
    assert (record["purpose"], record["result"]) == ("renewal-due", "failed")
    assert record["reason"] == "TpmUnavailable"
    node.wait_for_background_log("TpmUnavailable")


def test_failed_renewal_starts_a_cooldown(node: Node) -> None:
    node.store_credential(age_days=6)
    node.run()
    node.records(1)
    node.wait_for_background_end()
    node.cool_down_longer()
    again = node.run()
    assert again.returncode == 0
    overdue = f"{PROGRAM.name}: the renewal is overdue for "
    assert again.stderr.startswith(overdue)
    assert " h; the last renewal failed: TpmUnavailable: " in again.stderr
    assert again.stderr.count("\n") == 1
    node.wait_for_background_log("CoolingDown")
    assert [record["reason"] for record in node.records(2)[1:]] == ["TpmUnavailable"]


def test_overdue_renewal_is_reported_although_no_run_has_failed(node: Node) -> None:
    """Eleven hours, with an empty log: each run was killed, and the one before was a success."""
    node.store_credential(age_days=6)
    killed = b'{"result": "started", "time": "2027-01-15T08:00:00Z"}\n'
    credentials.write_private(node.state / "runs.jsonl", b'{"result": "done"}\n' + killed)
    assert " h; the last run, of 2027-01-15T08:00:00Z, was killed" in node.run().stderr


@contextlib.contextmanager
def log_on_a_full_disk() -> Iterator[int]:
    with Path("/dev/full").open("wb") as full:
        yield full.fileno()


@contextlib.contextmanager
def log_without_reader() -> Iterator[int]:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        yield writer
    finally:
        os.close(writer)


@pytest.mark.parametrize("log", [log_on_a_full_disk, log_without_reader])
def test_certificate_is_served_although_the_log_is_unwritable(
    node: Node, log: Callable[[], contextlib.AbstractContextManager[int]]
) -> None:
    """If the exit code is not 0, client-go discards the output of the program."""
    node.store_credential(age_days=6)
    credentials.write_private(node.state / "runs.jsonl", b'{"result": "failed"}\n')
    with log() as stderr:
        result = node.run(stderr=stderr)
    assert result.returncode == 0
    assert "clientKeyData" in result.stdout
    node.wait_for_background_end()
    assert "the last renewal failed" in node.run().stderr


HANGING = """\
import threading
from authenticator.clock import SystemClock
from authenticator.model import Deadline
from authenticator.commands import run
run.WATCHDOG_SECONDS = 0.2
print("running", flush=True)
with run.watchdog(Deadline(SystemClock(), 0)):
    threading.Event().wait()
"""


@pytest.mark.parametrize("log", [log_on_a_full_disk, log_without_reader])
def test_unwritable_log_does_not_stop_the_watchdog(
    log: Callable[[], contextlib.AbstractContextManager[int]],
) -> None:
    with log() as stderr:
        command = [sys.executable, "-c", HANGING]
        result = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=stderr, timeout=60, check=False
        )
    assert (result.returncode, result.stdout) == (1, b"running\n")


def test_repeat_call_is_served_and_starts_a_check_of_the_certificate(node: Node) -> None:
    node.store_credential(age_days=1)
    mark = b"%d %d\n" % (os.getpid(), time.time() - REPEAT_CALL_SECONDS - 60)
    credentials.write_private(node.state / "served", mark)
    result = node.run()
    assert result.returncode == 0
    assert expires_in(result) > credentials.DAY
    assert node.records(1)[0]["purpose"] == "unauthorized-suspected"


@contextlib.contextmanager
def silent_tpm() -> Iterator[tuple[str, socket.socket]]:
    """Listen as a TPM that never answers; yield its TCTI and the listening socket."""
    with (
        tempfile.TemporaryDirectory() as directory,
        socket.socket(socket.AF_UNIX) as data,
        socket.socket(socket.AF_UNIX) as control,
    ):
        for listener, name in ((data, "sock"), (control, "sock.ctrl")):
            listener.bind(f"{directory}/{name}")
            listener.listen()
        data.settimeout(PROMPT_SECONDS)
        yield f"swtpm:path={directory}/sock", data


def background_runs(node: Node) -> list[Path]:
    """Return the processes of the background runs of this node, found by its state directory."""
    processes = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if (
                process.name.isdecimal()
                and b"\0background\0" in (process / "cmdline").read_bytes()
                and str(node.state).encode() in (process / "environ").read_bytes()
            ):
                processes.append(process)
    return processes


def test_call_does_not_wait_for_its_background_run(node: Node) -> None:
    with silent_tpm() as (tcti, tpm):
        node.settings["tcti"] = tcti
        node.store_credential(age_days=6)
        assert node.run().returncode == 0
        connection, _ = tpm.accept()
        (process,) = background_runs(node)
        pid = int(process.name)
        try:
            assert os.getsid(pid) == pid
            assert [str((process / "fd" / n).readlink()) for n in "01"] == [os.devnull] * 2
            assert PAIR.key.decode() not in (process / "environ").read_text()
            assert [node.run().returncode for _ in range(2)] == [0, 0]
            assert background_runs(node) == [process], (
                "a call starts no background run while another process holds the lock"
            )
        finally:
            os.kill(pid, 9)
            connection.close()


def test_v1beta1_call_gets_a_v1beta1_credential(node: Node) -> None:
    node.api_version = "client.authentication.k8s.io/v1beta1"
    node.store_credential(age_days=6)
    assert json.loads(node.call().stdout)["apiVersion"] == node.api_version


def test_other_arguments_with_the_same_meaning_are_served(node: Node) -> None:
    node.store_credential(age_days=1)
    assert node.call("credential", "--timeout-seconds=5").returncode == 0


def one_line(result: subprocess.CompletedProcess[str]) -> str:
    """Return the only line of stderr; stdout must be empty."""
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_expired_certificate_is_not_served_unless_the_api_server_accepts_it(node: Node) -> None:
    node.store_credential(age_days=8)
    result = node.call()
    assert result.returncode == 1
    assert "ApiServerUnavailable" in one_line(result)


def test_certificate_of_a_former_node_name_is_not_served(node: Node) -> None:
    node.store_credential(age_days=1)
    result = node.call("--node-name=worker-2")
    assert result.returncode != 0
    assert one_line(result)


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy"])
def test_unreachable_api_server_names_the_proxy_that_is_not_used(
    node: Node, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The kubelet uses it, so only the program fails."""
    node.settings["timeoutSeconds"] = 2
    node.store_credential(age_days=8)
    assert "proxy" not in one_line(node.call())
    shutil.rmtree(node.state)
    node.store_credential(age_days=8)
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    line = one_line(node.call())
    assert f"; {name} is not used: set proxy-url in the kubeconfig (join --proxy-url)" in line
    assert "ApiServerUnavailable" in line


def test_all_problems_of_settings_are_in_one_line(node: Node) -> None:
    node.settings["surprise"] = 1
    result = node.call("--timeout-seconds=soon", "--whatever")
    assert result.returncode == 2
    line = one_line(result)
    assert all(word in line for word in ("surprise", "--timeout-seconds", "--whatever"))


def test_damaged_credential_is_logged_and_not_served(node: Node) -> None:
    node.store_credential(age_days=1)
    path = node.state / "credential.pem"
    path.write_bytes(path.read_bytes()[:-20])
    result = node.call()
    assert result.returncode == 2
    assert "damaged" in result.stderr
    assert "BootstrapCredentialUnusable" in result.stderr


def test_missing_tpm_is_an_error_of_one_line(node: Node) -> None:
    bootstrap = node.directory / "bootstrap.conf"
    bootstrap.write_text(json.dumps(kubeconfigs.kubeconfig()), encoding="utf-8")
    result = node.call()
    assert result.returncode == 1
    assert "TpmUnavailable" in one_line(result)
    node.cool_down_longer()
    assert "CoolingDown" in one_line(node.call())


def test_state_directory_of_another_user_is_not_written(node: Node) -> None:
    node.state.mkdir()
    os.chown(node.state, 65534, 65534)
    result = node.call()
    assert result.returncode == 2
    assert "StateDirectoryUnsafe" in one_line(result)
    assert list(node.state.iterdir()) == []


def test_valid_certificate_in_a_directory_of_another_user_is_served_with_a_warning(
    node: Node,
) -> None:
    """Only this user can have written the file, and not to serve it costs the node."""
    credential = node.store_credential(age_days=6)
    os.chown(node.state, 65534, 65534)
    result = node.call()
    assert result.returncode == 0
    certificate = json.loads(result.stdout)["status"]["clientCertificateData"]
    assert certificate == credential.key_pair.certificate.decode()
    [warning] = result.stderr.splitlines()
    assert "no background run can be started: " in warning
    assert "belongs to another user: remove it, or check its content" in warning


def test_version_is_printed(node: Node) -> None:
    assert node.call("--version").stdout.startswith("kubelet-authenticator-tpm ")


def test_help_names_every_command_and_the_exit_codes(node: Node) -> None:
    text = node.call("--help").stdout
    for word in ("status", "doctor", "renew", "endorsement-key", "Exit codes", "--provider-id"):
        assert word in text


def test_mistyped_command_is_named(node: Node) -> None:
    """It was reported as a missing KUBERNETES_EXEC_INFO."""
    result = node.call("statu", exec_info=False)
    assert result.returncode == 2
    line = one_line(result)
    assert "invalid choice: 'statu'" in line
    assert "KUBERNETES_EXEC_INFO" not in line


def test_mistyped_flag_is_named(node: Node) -> None:
    line = one_line(node.call("--provider-idd=x", exec_info=False))
    assert "unknown argument '--provider-idd=x'" in line
    assert "KUBERNETES_EXEC_INFO" not in line


WRONG_SETTINGS: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "an unknown setting": ({"providerId": "x"}, (), "unknown setting 'providerId'"),
    "an invalid setting": ({"timeoutSeconds": "soon"}, (), "timeoutSeconds must be a number"),
    "an unknown flag": ({}, ("--provider-idd=x",), "unknown argument '--provider-idd=x'"),
}


@pytest.mark.parametrize("case", WRONG_SETTINGS)
def test_cached_certificate_is_served_although_a_setting_is_wrong(node: Node, case: str) -> None:
    """The kubelet lost its access at its next start, with a valid certificate in the cache."""
    credential = node.store_credential(age_days=1)
    settings, arguments, problem = WRONG_SETTINGS[case]
    node.settings = settings
    result = node.call(*arguments)
    assert (result.returncode, result.stderr.count("\n")) == (0, 1)
    assert f"ConfigurationInvalid: {problem}" in result.stderr
    assert "served until it expires, and not renewed" in result.stderr
    key = json.loads(result.stdout)["status"]["clientKeyData"]
    assert key == credential.key_pair.key.decode()


def test_renewal_that_fails_for_a_wrong_setting_is_recorded(node: Node) -> None:
    """As after a downgrade of the package: the launcher served the cache, and nothing said why."""
    node.settings = {"providerId": "x"}
    node.store_credential(age_days=DUE)
    assert node.run().stderr == "", "the launcher serves it"
    [record] = node.records(1)
    assert (record["purpose"], record["reason"]) == ("renewal-due", "ConfigurationInvalid")
    node.store_credential(age_days=6)
    assert "unknown setting 'providerId'" in node.run().stderr


def test_status_finds_the_state_directory_although_another_setting_is_wrong(node: Node) -> None:
    """It showed the default directory, which has nothing."""
    node.settings = {"providerId": "x"}
    node.store_credential(age_days=1)
    assert "fresh, until" in node.call("status").stdout


@pytest.mark.parametrize("age_days", [8, None])
def test_wrong_setting_is_an_error_without_a_certificate(node: Node, age_days: int | None) -> None:
    if age_days is not None:
        node.store_credential(age_days=age_days)
    node.settings = {"providerId": "x"}
    result = node.call()
    assert (result.returncode, result.stdout) == (2, "")
    assert "ConfigurationInvalid: unknown setting 'providerId'" in one_line(result)


def test_verbose_run_logs_its_steps(node: Node) -> None:
    node.store_credential(age_days=1)
    result = node.call("renew", "-v", "--state-dir", str(node.state))
    assert result.returncode == 1
    lines = result.stderr.splitlines()
    assert any("phase offer: failed after" in line for line in lines[:-1]), lines
    assert "TpmUnavailable" in lines[-1]
    assert PAIR.key.decode() not in result.stderr


def test_status_shows_the_cache(node: Node) -> None:
    node.store_credential(age_days=1)
    result = node.call("status", "--state-dir", str(node.state), exec_info=False)
    assert "fresh, until" in result.stdout
    parsed = json.loads(node.call("status", "--output", "json").stdout)
    assert parsed["certificate"]["state"] == "fresh"


def test_status_without_a_state_directory_is_an_error(node: Node) -> None:
    result = node.call("status", "--state-dir", str(node.state), exec_info=False)
    assert result.returncode == 1
    assert "does not exist yet" in one_line(result)
    assert not node.state.exists()


def test_status_of_a_file_does_not_say_that_it_will_be_created(node: Node) -> None:
    node.state.touch()
    result = node.call("status", "--state-dir", str(node.state), exec_info=False)
    assert result.returncode == 1
    assert f"state directory {node.state}: Not a directory" in one_line(result)


def test_renew_without_a_kubeconfig_and_a_certificate_names_the_next_step(node: Node) -> None:
    """It named the missing file only."""
    result = node.call("renew", "--state-dir", str(node.state), exec_info=False)
    assert result.returncode == 2
    assert (
        "kubelet.conf: No such file or directory; run kubelet-authenticator-tpm join if this node"
        " has not joined, else kubelet-authenticator-tpm doctor"
    ) in one_line(result)


def test_renew_without_a_kubeconfig_uses_the_cached_call(node: Node) -> None:
    node.store_credential(age_days=1)
    result = node.call("renew", "--state-dir", str(node.state), exec_info=False)
    assert "TpmUnavailable" in one_line(result)
    assert node.records(1)[0]["purpose"] == "forced"


def test_doctor_runs_every_check(node: Node) -> None:
    node.store_credential(age_days=1)
    result = node.call("doctor", "--output", "json")
    assert result.returncode == 1
    findings = {f["check"]: f for f in json.loads(result.stdout)["items"]}
    assert findings["certificate"]["nextStep"] == ""
    assert findings["certificate"]["result"] == "ok"
    assert findings["settings"]["message"].endswith("node worker-1, provider ID test:///1")
    for check in ("kubeconfig", "program", "TPM", "clock", "API server"):
        assert findings[check]["nextStep"], check
    assert findings["TPM"]["result"] == "problem"


def kubeconfig(node: Node, **settings: object) -> Path:
    cluster = json.loads(node.exec_info)["spec"]["cluster"]
    config = {**cluster.pop("config"), **settings}
    extension = {"name": "client.authentication.k8s.io/exec", "extension": config}
    stanza = {
        "apiVersion": node.api_version,
        "command": str(PROGRAM),
        "interactiveMode": "Never",
        "provideClusterInfo": True,
    }
    document = kubeconfigs.kubeconfig({"exec": stanza}, {**cluster, "extensions": [extension]})
    path = node.directory / "kubelet.conf"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def doctor_findings(node: Node, *arguments: str) -> dict[str, dict[str, str]]:
    """Run doctor without the environment of client-go; return its findings."""
    result = node.call("doctor", "--output", "json", *arguments, exec_info=False)
    return {f["check"]: f for f in json.loads(result.stdout)["items"]}


def test_doctor_checks_the_kubeconfig_and_not_the_cached_call(node: Node) -> None:
    """It used the cached call, and reported ok 11 times where the next call failed."""
    path = kubeconfig(node)
    node.store_credential(age_days=1)
    same = doctor_findings(node, "--kubeconfig", str(path))
    assert same["cache"]["nextStep"] == ""
    path = kubeconfig(node, providerID="test:///wrong", tcti="swtpm:path=/nonexistent/other")
    changed = doctor_findings(node, "--kubeconfig", str(path))
    assert changed["settings"]["message"].endswith("provider ID test:///wrong")
    assert "/nonexistent/other" in changed["TPM"]["message"]
    assert changed["cache"]["message"].endswith("differences: providerID, tcti")
    assert changed["cache"]["nextStep"]


def test_doctor_before_a_join_checks_flags_and_bootstrap_kubeconfig(node: Node) -> None:
    """Six checks were skipped, and flags were ignored."""
    bootstrap = kubeconfig(node).rename(node.directory / "bootstrap.conf")
    document = json.loads(bootstrap.read_text())
    document["users"][0]["user"] = kubeconfigs.TOKEN
    bootstrap.write_text(json.dumps(document))
    arguments = [
        f"--kubeconfig={node.directory}/kubelet.conf",
        f"--bootstrap-kubeconfig={bootstrap}",
        f"--state-dir={node.state}",
        f"--tcti={NO_TPM}",
        "--node-name=worker-1",
    ]
    findings = doctor_findings(node, *arguments, "--provider-id=test:///1")
    skipped = {name for name, f in findings.items() if f["result"] == "unknown"}
    assert skipped == {"clock"}  # there is no API server
    for name in ("kubeconfig", "program", "certificate"):
        assert findings[name]["result"] == "ok", "it said wrong before the first join"
    assert findings["settings"]["nextStep"] == ""
    assert findings["bootstrap credential"]["nextStep"] == ""
    assert "/nonexistent/socket" in findings["TPM"]["message"]
    assert "cannot be reached" in findings["API server"]["message"]
    assert not node.state.exists()
    assert "no provider ID" in doctor_findings(node, *arguments)["settings"]["message"]


def test_renew_uses_the_corrected_kubeconfig_and_reports_differences(node: Node) -> None:
    """It used the cached call: a corrected setting or an explicit --kubeconfig had no effect."""
    node.store_credential(age_days=1)
    path = kubeconfig(node, tcti="swtpm:path=/nonexistent/corrected")
    result = node.call("renew", "--kubeconfig", str(path), exec_info=False)
    first, last = result.stderr.splitlines()
    assert first.endswith(f"a change of {path}; differences: tcti")
    assert "/nonexistent/corrected" in last


def test_endorsement_key_needs_a_tpm(node: Node) -> None:
    assert "TpmUnavailable" in one_line(node.call("endorsement-key"))


def test_cached_path_of_the_full_program_needs_no_tpm_stack() -> None:
    code = "import authenticator.cli, sys; print(*sorted(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(result.stdout.split())
    assert not loaded & {
        "tpm2_pytss",
        "requests",
        "urllib3",
        "yaml",
        "authenticator.commands.doctor",
        "authenticator.commands.join",
        "authenticator.commands.status",
    }
