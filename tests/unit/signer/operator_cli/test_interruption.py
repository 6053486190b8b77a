"""Ctrl-C ends a command at once, quietly, and says what was written."""

import signal
import subprocess
import sys
from pathlib import Path
from threading import Event

from tests.fakes.api_server import Answering, api_server
from tests.harness import kubeconfig
from tests.harness.programs import OPERATOR

FIRST, SECOND = "aa" * 32, "bb" * 32
REVIEW = {"status": {"userInfo": {"username": "alice"}}}


class Silent:
    """An API server that answers until it is asked to write the second key."""

    def __init__(self) -> None:
        self.asked, self.ended = Event(), Event()

    def __call__(self, request: Answering) -> None:
        if request.path.endswith("selfsubjectreviews"):
            request.give(REVIEW, 201)
        elif request.command == "POST":
            if request.server.requests[-1].body["metadata"]["name"] == FIRST:
                request.give({}, 201)
            else:
                self.wait()
        elif request.path.endswith(f"/{FIRST}") or request.path.endswith(f"/{SECOND}"):
            request.give({}, 404)
        elif "endorsementkeys" in request.path:
            request.give({"metadata": {}, "items": []})
        else:
            self.wait()

    def wait(self) -> None:
        """Give no answer before the test ends."""
        self.asked.set()
        self.ended.wait(60)


def interrupted(directory: Path, *arguments: str) -> tuple[int, str]:
    """Interrupt a command while it waits for an answer; return its exit status and its stderr."""
    silent = Silent()
    with api_server(silent, directory) as server:
        file = directory / "kubeconfig"
        authority = server.authority.pair.certificate
        file.write_text(kubeconfig.with_token(server.url, authority, "secret-token"))
        process = subprocess.Popen(
            [OPERATOR, *arguments, "--kubeconfig", file],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert silent.asked.wait(60)
            process.send_signal(signal.SIGINT)
            _, complaint = process.communicate(timeout=60)
        finally:
            silent.ended.set()
            process.kill()
    return process.returncode, complaint


def lines_of(complaint: str) -> list[str]:
    """Return stderr without the lines that show what the command waits for."""
    return [line for line in complaint.splitlines() if not line.endswith("...")]


def test_interrupted_reading_says_that_nothing_was_written(tmp_path: Path) -> None:
    status, complaint = interrupted(tmp_path, "status")
    assert status == 130
    assert lines_of(complaint) == ["kubectl-attestation: interrupted; nothing was written"]


def test_interrupted_writing_names_what_was_written_and_what_is_in_doubt(tmp_path: Path) -> None:
    inventory = tmp_path / "machines.csv"
    inventory.write_text(f"key,machine\n{FIRST},m-1\n{SECOND},m-2\n")
    flags = ("--inventory", str(inventory), "--cluster", "team-a/c1")
    status, complaint = interrupted(tmp_path, "register", *flags)
    assert status == 130
    [line] = lines_of(complaint)
    done, doubt = f"written: endorsementkeys/{FIRST}", f"perhaps written: endorsementkeys/{SECOND}"
    assert line == f"kubectl-attestation: interrupted; {done}; {doubt}"


def test_command_ends_also_when_nobody_reads_its_output() -> None:
    """The output fills its pipe, and the signal arrives while the command waits for a reader."""
    script = (
        "import sys\n"
        "from signer.operator_cli import cli\n"
        "cli._end_on_interrupt(lambda: 'interrupted')\n"
        "sys.stdout.write('x' * (1 << 20))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert process.stdout.read(1) == b"x"
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
            assert process.stderr.read() == b"interrupted"
        finally:
            process.kill()
