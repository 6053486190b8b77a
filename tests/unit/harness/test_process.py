"""Programs of tests end with the test run, even when it is killed."""

import os
import secrets
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.harness import process

FOREVER = ["sleep", "600"]


def alive(pid: int) -> bool:
    """Return whether a process runs. A zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_output_is_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    started = process.start(["sh", "-c", "echo out; echo err >&2"], log=log)
    assert started.wait(60) == 0
    assert log.read_text() == "out\nerr\n"


def test_stop_sends_sigterm_first(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = "trap 'echo asked; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
    started = process.start(["sh", "-c", script], log=log)
    process.wait_until_ready(started, lambda: "ready" in log.read_text(), what="ready", log=log)
    process.stop(started)
    assert "asked" in log.read_text()
    assert started.returncode == 0


def test_stop_ends_the_children(tmp_path: Path) -> None:
    log = tmp_path / "log"
    started = process.start(["sh", "-c", "sleep 600 & echo $!; wait"], log=log)
    process.wait_until_ready(started, lambda: log.read_text() != "", what="has a child", log=log)
    child = int(log.read_text())
    assert alive(child)
    process.stop(started)
    process.wait_until(lambda: not alive(child), what="the child is gone")


def test_a_program_that_ignores_the_request_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
    started = process.start(["sh", "-c", script], log=log)
    process.wait_until_ready(started, lambda: "ready" in log.read_text(), what="ready", log=log)
    process.stop(started, seconds=0.2)
    assert started.returncode == -signal.SIGKILL


def test_ending_before_ready_is_an_error_with_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    started = process.start(["sh", "-c", "echo no such flag; exit 3"], log=log)
    with pytest.raises(process.ProcessFailed, match=r"(?s)ended with 3 before up.*no such flag"):
        process.wait_until_ready(started, lambda: False, what="up", log=log)


def test_not_getting_ready_is_an_error_with_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        process.running(FOREVER, log=log) as started,
        pytest.raises(process.ProcessFailed, match=r"not within 0.2 s: up"),
    ):
        process.wait_until_ready(started, lambda: False, what="up", log=log, seconds=0.2)


def test_a_program_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        started.append(process.start(FOREVER, log=tmp_path / "log"))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    with pytest.raises(subprocess.TimeoutExpired):
        started[0].wait(0.3)
    process.stop(started[0])


def test_no_program_outlives_a_killed_test_run(tmp_path: Path) -> None:
    script = (
        "import pathlib, signal, sys; from tests.harness import process;"
        "print(process.start(['sleep', '600'], log=pathlib.Path(sys.argv[1])).pid, flush=True);"
        "signal.pause()"
    )
    runner = subprocess.Popen(
        [sys.executable, "-c", script, tmp_path / "log"], stdout=subprocess.PIPE, text=True
    )
    assert runner.stdout is not None
    with runner.stdout:
        program = int(runner.stdout.readline())
    assert alive(program)
    runner.kill()
    runner.wait()
    process.wait_until(lambda: not alive(program), what="the program is gone")


def test_free_ports_are_never_returned_twice() -> None:
    ports = [process.free_port() for _ in range(50)]
    assert len(set(ports)) == len(ports)
    assert max(ports) < 32768, "the kernel may give it to an outgoing connection"


def test_name_is_reserved_until_its_process_ends() -> None:
    name = f"test/{secrets.token_hex(8)}"
    script = (
        "import signal, sys; from tests.harness import process;"
        "print(process.claim(sys.argv[1]), flush=True); signal.pause()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", script, name], stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    with other.stdout:
        assert other.stdout.readline() == "True\n"
    assert not process.claim(name)
    other.kill()
    other.wait()
    assert process.claim(name)
    assert not process.claim(name)


def test_returned_port_is_not_returned_again_although_it_is_unused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = process.free_port()
    monkeypatch.setattr(process, "_PORTS", range(given, given + 1))
    with pytest.raises(RuntimeError, match="no port is free"):
        process.free_port()


def test_every_program_has_a_new_session(tmp_path: Path) -> None:
    with process.running(FOREVER, log=tmp_path / "log") as started:
        assert os.getsid(started.pid) == started.pid
