"""The full program as it is installed: what it prints, what it leaves behind, how it ends.

Whole exchanges are in tests/integration; here the TPM is one that never answers, or is not there.
"""

import base64
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from authenticator.model import KeyPair
from authenticator.state.credential import STALE_EXPIRATION_SECONDS, Credential, encode
from authenticator.state.store import REPEAT_CALL_SECONDS
from tests.builders import credentials
from tests.harness.pki import Authority, ec_key
from tests.harness.process import wait_until

PROGRAM = Path(sys.prefix, "bin", "kubelet-authenticator-tpm")
NO_TPM = "swtpm:path=/nonexistent/socket"
AUTHORITY = Authority.make("cluster", ec_key())
CLIENT = AUTHORITY.client("system:node:worker-1", "system:nodes")
PAIR = KeyPair(certificate=CLIENT.certificate, key=CLIENT.key)
PROMPT_SECONDS = 30
"""Half of what a call has that waits, and enough for one that does not on a busy machine."""
SHORT_PAUSE_SECONDS = 10

pytestmark = pytest.mark.timeout(180)  # for more of them one after another


@dataclass
class Node:
    """A node without a cluster."""

    folder: Path
    settings: dict[str, Any] = field(default_factory=dict)
    api_version: str = "client.authentication.k8s.io/v1"

    @property
    def state(self) -> Path:
        """The state folder."""
        return self.folder / "state"

    @property
    def exec_info(self) -> bytes:
        """KUBERNETES_EXEC_INFO."""
        config = {
            "nodeName": "worker-1",
            "providerID": "test:///1",
            "stateDir": str(self.state),
            "bootstrapKubeconfig": str(self.folder / "bootstrap.conf"),
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

    def keep(self, *, age_days: float) -> Credential:
        """Put a credential for a week into the cache, received some days ago."""
        received = int(time.time() - age_days * credentials.DAY)
        credential = credentials.make(received, exec_info=self.exec_info, pair=PAIR)
        self.state.mkdir(mode=0o700, exist_ok=True)
        credentials.write_private(self.state / "credential.pem", encode(credential))
        return credential

    def run(
        self, *arguments: str, exec_info: bool = True, stderr: int = subprocess.PIPE
    ) -> subprocess.CompletedProcess[str]:
        """Run the program, with pipes as client-go makes them."""
        environment = dict(os.environ)
        if exec_info:
            environment["KUBERNETES_EXEC_INFO"] = self.exec_info.decode()
        return subprocess.run(
            [PROGRAM, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=PROMPT_SECONDS,
            check=False,
        )

    def records(self, count: int) -> list[dict[str, Any]]:
        """Return the records of runs, once there are so many."""
        path = self.state / "runs.jsonl"

        def lines() -> list[str]:
            return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

        wait_until(lambda: len(lines()) >= count, what="the run behind the call leaves a record")
        return [json.loads(line) for line in lines()]

    def logged_behind(self, text: str) -> None:
        """Wait until a run behind a call has said something."""
        log = self.state / "background.log"
        wait_until(
            lambda: text in log.read_text(encoding="utf-8"), what=f"the run behind says {text}"
        )

    def ended_behind(self) -> None:
        """Wait until no run behind a call has the lock any more: its record comes before that."""
        wait_until(lambda: not behind(self), what="the run behind the call ends")

    def cool_down_longer(self) -> None:
        """Add a minute to the pause, which a busy machine may take longer than; it was short."""
        path = self.state / "cooldown.json"
        document = json.loads(path.read_bytes())
        (cooldown,) = document["entries"]
        assert cooldown["until"] <= time.clock_gettime(time.CLOCK_BOOTTIME) + SHORT_PAUSE_SECONDS
        cooldown["until"] += 60
        credentials.write_private(path, json.dumps(document).encode())


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """Return a node."""
    return Node(tmp_path)


def expires_in(result: subprocess.CompletedProcess[str]) -> float:
    """Return how long what was printed is to be used."""
    text = json.loads(result.stdout)["status"]["expirationTimestamp"]
    moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return moment.timestamp() - time.time()


def test_due_certificate_is_served_and_renewed_behind(node: Node) -> None:
    credential = node.keep(age_days=6)
    result = node.run()
    assert (result.returncode, result.stderr, result.stdout.count("\n")) == (0, "", 1)
    status = json.loads(result.stdout)["status"]
    assert status["clientKeyData"] == credential.key_pair.key.decode()
    assert 0 < expires_in(result) <= STALE_EXPIRATION_SECONDS + 1
    (record,) = node.records(1)
    assert (record["purpose"], record["result"]) == ("renewal-due", "failed")
    assert record["reason"] == "TpmUnavailable"
    node.logged_behind("TpmUnavailable")


def test_failed_renewal_is_not_tried_again_at_once(node: Node) -> None:
    node.keep(age_days=6)
    node.run()
    node.records(1)
    node.ended_behind()
    node.cool_down_longer()
    again = node.run()
    assert again.returncode == 0
    assert again.stderr.startswith(f"{PROGRAM.name}: the last renewal failed: TpmUnavailable: ")
    assert again.stderr.count("\n") == 1
    node.logged_behind("CoolingDown")
    assert [record["reason"] for record in node.records(1)] == ["TpmUnavailable"]


@contextlib.contextmanager
def log_on_a_full_disk() -> Iterator[int]:
    """Return a descriptor that takes nothing."""
    with Path("/dev/full").open("wb") as full:
        yield full.fileno()


@contextlib.contextmanager
def log_that_nobody_reads() -> Iterator[int]:
    """Return a pipe whose other end is closed."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        yield writer
    finally:
        os.close(writer)


@pytest.mark.parametrize("log", [log_on_a_full_disk, log_that_nobody_reads])
def test_certificate_is_served_though_nothing_can_be_logged(
    node: Node, log: Callable[[], contextlib.AbstractContextManager[int]]
) -> None:
    """client-go discards what a program printed that ends with another exit code than 0."""
    node.keep(age_days=6)
    credentials.write_private(node.state / "runs.jsonl", b'{"result": "failed"}\n')
    with log() as stderr:
        result = node.run(stderr=stderr)
    assert result.returncode == 0
    assert "clientKeyData" in result.stdout
    assert "the last renewal failed" in node.run().stderr


HANGING = """\
import threading
from authenticator.clock import SystemClock
from authenticator.model import Deadline
from authenticator.runs import watchdog
with watchdog(Deadline(SystemClock(), -4)):
    threading.Event().wait()
"""


@pytest.mark.parametrize("log", [log_on_a_full_disk, log_that_nobody_reads])
def test_hanging_run_ends_though_nothing_can_be_logged(
    log: Callable[[], contextlib.AbstractContextManager[int]],
) -> None:
    with log() as stderr:
        command = [sys.executable, "-c", HANGING]
        assert subprocess.run(command, stderr=stderr, timeout=60, check=False).returncode == 1


def test_fresh_certificate_asked_for_early_is_served_and_tried_behind(node: Node) -> None:
    node.keep(age_days=1)
    note = b"%d %d\n" % (os.getpid(), time.time() - REPEAT_CALL_SECONDS - 60)
    credentials.write_private(node.state / "served", note)
    result = node.run()
    assert result.returncode == 0
    assert expires_in(result) > credentials.DAY
    assert node.records(1)[0]["purpose"] == "unauthorized-suspected"


@contextlib.contextmanager
def silent_tpm() -> Iterator[tuple[str, socket.socket]]:
    """Listen as a TPM that takes what it is told and never answers; give where it is asked."""
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX) as asked,
        socket.socket(socket.AF_UNIX) as control,
    ):
        for listener, name in ((asked, "sock"), (control, "sock.ctrl")):
            listener.bind(f"{folder}/{name}")
            listener.listen()
        asked.settimeout(PROMPT_SECONDS)
        yield f"swtpm:path={folder}/sock", asked


def behind(node: Node) -> list[Path]:
    """Return the processes of runs behind calls of this node, by its state folder."""
    found = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if (
                process.name.isdecimal()
                and b"\0behind\0" in (process / "cmdline").read_bytes()
                and str(node.state).encode() in (process / "environ").read_bytes()
            ):
                found.append(process)
    return found


def test_nobody_waits_for_the_run_behind(node: Node) -> None:
    with silent_tpm() as (tcti, asked):
        node.settings["tcti"] = tcti
        node.keep(age_days=6)
        assert node.run().returncode == 0
        connection, _ = asked.accept()
        (process,) = behind(node)
        pid = int(process.name)
        try:
            assert os.getsid(pid) == pid
            assert [str((process / "fd" / n).readlink()) for n in "01"] == [os.devnull] * 2
            assert PAIR.key.decode() not in (process / "environ").read_text()
            assert [node.run().returncode for _ in range(2)] == [0, 0]
            assert behind(node) == [process], "whoever finds the lock taken starts nothing"
        finally:
            os.kill(pid, 9)
            connection.close()


def test_v1beta1_is_answered_in_kind(node: Node) -> None:
    node.api_version = "client.authentication.k8s.io/v1beta1"
    node.keep(age_days=6)
    assert json.loads(node.run().stdout)["apiVersion"] == node.api_version


def test_other_arguments_with_the_same_meaning_are_served(node: Node) -> None:
    node.keep(age_days=1)
    assert node.run("credential", "--timeout-seconds=5").returncode == 0


def one_line(result: subprocess.CompletedProcess[str]) -> str:
    """Return the one line of an error; nothing may be on stdout."""
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_expired_certificate_is_not_served_unless_the_api_server_accepts_it(node: Node) -> None:
    node.keep(age_days=8)
    result = node.run()
    assert result.returncode == 1
    assert "ApiServerUnavailable" in one_line(result)


def test_node_name_that_changed_is_not_served(node: Node) -> None:
    node.keep(age_days=1)
    result = node.run("--node-name=worker-2")
    assert result.returncode != 0
    assert one_line(result)


def test_problems_are_told_at_once_in_one_line(node: Node) -> None:
    node.settings["surprise"] = 1
    result = node.run("--timeout-seconds=soon", "--whatever")
    assert result.returncode == 2
    told = one_line(result)
    assert all(word in told for word in ("surprise", "--timeout-seconds", "--whatever"))


def test_damaged_credential_is_told_and_treated_as_absent(node: Node) -> None:
    node.keep(age_days=1)
    path = node.state / "credential.pem"
    path.write_bytes(path.read_bytes()[:-20])
    result = node.run()
    assert result.returncode == 2
    assert "damaged" in result.stderr
    assert "BootstrapCredentialUnusable" in result.stderr


def test_missing_tpm_ends_in_one_line(node: Node) -> None:
    (node.folder / "bootstrap.conf").write_text(
        json.dumps(
            {
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {}}],
                "users": [{"name": "u", "user": {"token": "a.b"}}],
                "current-context": "x",
            }
        ),
        encoding="utf-8",
    )
    result = node.run()
    assert result.returncode == 1
    assert "TpmUnavailable" in one_line(result)
    node.cool_down_longer()
    assert "CoolingDown" in one_line(node.run())


def test_state_directory_of_another_user_is_refused(node: Node) -> None:
    node.state.mkdir()
    os.chown(node.state, 65534, 65534)
    result = node.run()
    assert result.returncode == 2
    assert "StateDirectoryUnsafe" in one_line(result)


def test_version_is_told(node: Node) -> None:
    assert node.run("--version").stdout.startswith("kubelet-authenticator-tpm ")


def test_help_names_every_command_and_the_exit_codes(node: Node) -> None:
    told = node.run("--help").stdout
    for word in ("status", "doctor", "renew", "endorsement-key", "Exit codes", "--provider-id"):
        assert word in told


def test_status_by_hand_finds_the_cache(node: Node) -> None:
    node.keep(age_days=1)
    result = node.run("status", "--state-dir", str(node.state), exec_info=False)
    assert "fresh, until" in result.stdout
    parsed = json.loads(node.run("status", "--output", "json").stdout)
    assert parsed["certificate"]["state"] == "fresh"


def test_status_without_a_folder_says_so(node: Node) -> None:
    result = node.run("status", "--state-dir", str(node.state), exec_info=False)
    assert result.returncode == 1
    assert "there is none yet" in one_line(result)
    assert not node.state.exists()


def test_renew_by_hand_takes_the_call_of_the_cache(node: Node) -> None:
    node.keep(age_days=1)
    result = node.run("renew", "--state-dir", str(node.state), exec_info=False)
    assert "TpmUnavailable" in one_line(result)
    assert node.records(1)[0]["purpose"] == "forced"


def test_renew_that_is_not_due_does_nothing(node: Node) -> None:
    node.keep(age_days=1)
    result = node.run("renew", "--if-due", "--state-dir", str(node.state), exec_info=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert "worker-1: certificate until" in result.stdout


def test_doctor_tells_all_it_finds(node: Node) -> None:
    node.keep(age_days=1)
    result = node.run("doctor", "--output", "json", "--kubeconfig", "/nonexistent/kubelet.conf")
    assert result.returncode == 1
    findings = {f["check"]: f for f in json.loads(result.stdout)["findings"]}
    assert findings["certificate"]["remedy"] == ""
    assert findings["settings"]["detail"] == "node worker-1, provider ID test:///1"
    for check in ("kubeconfig", "program", "TPM", "clock", "API server"):
        assert findings[check]["remedy"], check


def test_endorsement_key_needs_a_tpm(node: Node) -> None:
    assert "TpmUnavailable" in one_line(node.run("endorsement-key"))


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
        "authenticator.commands.inspection",
    }
